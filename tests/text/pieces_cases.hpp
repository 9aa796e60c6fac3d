// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/tokenizer.hpp>
#include <string>
#include <vector>

#include "../support/scratch_folder.hpp"

namespace ostrakon::texts {

/// A file that tests/text/pieces.py has made with the tokenizers' own libraries.
inline std::string pieces_file(const std::string& name) {
  return OSTRAKON_SOURCE_DIR "/tests/text/pieces/" + name;
}

inline nlohmann::json pieces_json(const std::string& name) {
  return nlohmann::json::parse(testing::read_bytes(pieces_file(name)));
}

/// Encodes strings with the tokenizer of a file, and decodes the ids that they should have.
inline void expect_ids_of_library(const std::string& file) {
  const auto tokenizer = open_tokenizer(pieces_file(file));
  const auto encoder = tokenizer->encoder();
  const nlohmann::json cases = pieces_json("cases.json").at(file);
  EXPECT_GE(cases.size(), 130u);
  for (const nlohmann::json& row : cases) {
    const auto text = row[0].get<std::string>();
    const auto expected = row[1].get<std::vector<std::int32_t>>();
    std::vector<std::int32_t> ids;
    encoder->encode(text, false, ids);
    EXPECT_EQ(ids, expected) << printable(text);
    EXPECT_EQ(tokenizer->decode(expected.data(), static_cast<std::int64_t>(expected.size()), true),
              row[2].get<std::string>());
  }
}

}  // namespace ostrakon::texts
