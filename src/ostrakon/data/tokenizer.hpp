// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ostrakon::data {

/// The name for an unknown tokenizer, of imported ids and weights.
constexpr const char* unknown_tokenizer = "external";

/// The name for no tokenizer, of synthetic data and weights trained on it alone.
constexpr const char* no_tokenizer = "synthetic";

/// A tokenizer whose tokens are bytes, and one more that ends a document. It handles any text in
/// any language without training; in return sequences are long.
class ByteTokenizer {
 public:
  static constexpr const char* name = "byte";
  static constexpr std::int32_t end_of_text = 256;
  static constexpr std::int64_t vocabulary = 257;

  /// Appends the tokens of `bytes` to `tokens`.
  static void encode(std::string_view bytes, std::vector<std::int32_t>& tokens);

  /// Returns the bytes of `count` tokens, with `end_mark` for each end_of_text. Throws Error for a
  /// token outside the vocabulary.
  static std::string decode(const std::int32_t* tokens, std::int64_t count,
                            std::string_view end_mark = "");
};

}  // namespace ostrakon::data
