// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ostrakon::data {

/// What is named as the tokenizer where it is not known: of ids from elsewhere, and weights.
constexpr const char* unknown_tokenizer = "external";

/// The name where there was no tokenizer: of synthetic data, and of weights trained on nothing
/// else.
constexpr const char* no_tokenizer = "synthetic";

/// Every byte is a token; one more ends a document. Any text, any language, no training; a model
/// sees long sequences in return.
class ByteTokenizer {
 public:
  static constexpr const char* name = "byte";
  static constexpr std::int32_t end_of_text = 256;
  static constexpr std::int64_t vocabulary = 257;

  /// Appends the tokens of `bytes` to `tokens`.
  static void encode(std::string_view bytes, std::vector<std::int32_t>& tokens);

  /// The bytes of `count` tokens; `end_mark` for each end_of_text. Throws Error for a token outside
  /// the vocabulary.
  static std::string decode(const std::int32_t* tokens, std::int64_t count,
                            std::string_view end_mark = "");
};

}  // namespace ostrakon::data
