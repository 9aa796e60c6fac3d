// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/data/tokenizer.hpp>

#include "../support/scratch_folder.hpp"

namespace ostrakon::data {
namespace {

TEST(ByteTokenizer, EveryByteComesBack) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  std::vector<std::int32_t> tokens = {ByteTokenizer::end_of_text};
  ByteTokenizer::encode(bytes, tokens);
  ASSERT_EQ(tokens.size(), 257u);
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(tokens[static_cast<std::size_t>(byte) + 1], byte);
  EXPECT_EQ(ByteTokenizer::decode(tokens.data() + 1, 256), bytes);
}

TEST(ByteTokenizer, EndOfTextIsTheMark) {
  const std::int32_t tokens[] = {'a', 256, 'b', 256};
  EXPECT_EQ(ByteTokenizer::decode(tokens, 4), "ab");
  EXPECT_EQ(ByteTokenizer::decode(tokens, 4, "|"), "a|b|");
}

TEST(ByteTokenizer, RefusesOtherTokens) {
  const std::int32_t tokens[] = {'a', 257, -1};
  EXPECT_EQ(testing::error_of([&] { ByteTokenizer::decode(tokens, 2); }),
            "token 257 at position 1 is not in the byte tokenizer's vocabulary of 257");
  EXPECT_NE(testing::error_of([&] { ByteTokenizer::decode(tokens + 2, 1); }), "no error");
}

}  // namespace
}  // namespace ostrakon::data
