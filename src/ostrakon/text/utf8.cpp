// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/utf8.hpp>

#include <cstring>

namespace ostrakon::texts {

void append_utf8(std::uint32_t code_point, std::string& text) {
  const auto add = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  const auto add_rest = [&](int shift) { add(0x80 | (code_point >> shift & 0x3f)); };
  if (code_point < 0x80) {
    add(code_point);
  } else if (code_point < 0x800) {
    add(0xc0 | code_point >> 6);
    add_rest(0);
  } else if (code_point < 0x10000) {
    add(0xe0 | code_point >> 12);
    add_rest(6);
    add_rest(0);
  } else {
    add(0xf0 | code_point >> 18);
    add_rest(12);
    add_rest(6);
    add_rest(0);
  }
}

std::size_t subpart(std::string_view text, std::size_t at, bool& complete) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned first = byte(0);
  complete = first < 0x80;
  if (complete || first < 0xc2 || first > 0xf4) return 1;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  // Overlong forms, surrogates and what is above U+10FFFF show in the second byte.
  const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  std::size_t found = 1;
  while (found < length && at + found < text.size()) {
    const unsigned next = byte(found);
    if (next < (found == 1 ? least : 0x80) || next > (found == 1 ? most : 0xbf)) break;
    ++found;
  }
  complete = found == length;
  return found;
}

std::size_t valid_utf8(std::string_view text) {
  constexpr std::uint64_t high_bits = 0x8080808080808080;
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight = 0;
    if (at + sizeof(eight) <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof(eight));
      if ((eight & high_bits) == 0) {
        at += sizeof(eight);
        continue;
      }
    }
    bool complete = false;
    const std::size_t bytes = subpart(text, at, complete);
    if (!complete) return at;
    at += bytes;
  }
  return at;
}

}  // namespace ostrakon::texts
