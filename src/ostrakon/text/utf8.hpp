// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ostrakon::texts {

/// Returns how many bytes the character has whose first byte this is, in valid UTF-8.
inline std::size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/// Returns the code point of the character at `at` of valid UTF-8.
inline std::uint32_t code_point(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  switch (utf8_length(text[at])) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1fU) << 6 | (byte(1) & 0x3fU);
    case 3:
      return (byte(0) & 0x0fU) << 12 | (byte(1) & 0x3fU) << 6 | (byte(2) & 0x3fU);
    default:
      return (byte(0) & 0x07U) << 18 | (byte(1) & 0x3fU) << 12 | (byte(2) & 0x3fU) << 6 |
             (byte(3) & 0x3fU);
  }
}

/// Returns where the last character of `text`, valid UTF-8 that is not empty, begins.
inline std::size_t last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

/// Appends a code point as UTF-8.
void append_utf8(std::uint32_t code_point, std::string& text);

/// Returns how many of the first bytes are valid UTF-8: the text's size if all are.
std::size_t valid_utf8(std::string_view text);

/// Returns the length of the longest beginning of a character that is at `at`, in bytes: less than
/// that of the character where what follows does not belong to it, at least 1. Decoders that
/// replace what is not UTF-8 replace that many bytes by one U+FFFD, as the Unicode standard
/// recommends (chapter 3.9, "maximal subparts"). `complete`: whether it is a whole character.
std::size_t subpart(std::string_view text, std::size_t at, bool& complete);

}  // namespace ostrakon::texts
