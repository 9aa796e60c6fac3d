// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/tokenizer.hpp>

#include <ostrakon/base/error.hpp>

namespace ostrakon::data {

void ByteTokenizer::encode(std::string_view bytes, std::vector<std::int32_t>& tokens) {
  tokens.reserve(tokens.size() + bytes.size());
  for (const char byte : bytes) tokens.push_back(static_cast<unsigned char>(byte));
}

std::string ByteTokenizer::decode(const std::int32_t* tokens, std::int64_t count,
                                  std::string_view end_mark) {
  std::string bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t token = tokens[i];
    require(token >= 0 && token < vocabulary, "token ", token, " at position ", i,
            " is not in the byte tokenizer's vocabulary of ", vocabulary);
    if (token == end_of_text) {
      bytes += end_mark;
    } else {
      bytes += static_cast<char>(token);
    }
  }
  return bytes;
}

}  // namespace ostrakon::data
