// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/text/tokenizer.hpp>

#include "../support/messages.hpp"
#include "pieces_cases.hpp"

namespace ostrakon::texts {
namespace {

TEST(SentencePiece, IsRefusedWithWhatToInstall) {
  EXPECT_NE(testing::error_of([] {
              open_tokenizer(pieces_file("bpe.model"));
            }).find("libsentencepiece-dev"),
            std::string::npos);
}

}  // namespace
}  // namespace ostrakon::texts
