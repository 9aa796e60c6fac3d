// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/byte_alphabet.hpp>

#include <array>
#include <ostrakon/text/utf8.hpp>

namespace ostrakon::texts {
namespace {

struct Alphabet {
  static constexpr std::uint32_t end = 0x144;  ///< one more than the last code point
  std::array<std::string, 256> characters;
  std::array<std::int16_t, end> bytes{};  ///< by code point; -1: stands for none

  Alphabet() {
    bytes.fill(-1);
    std::uint32_t next = 0x100;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool is_printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      const std::uint32_t character = is_printable ? byte : next++;
      bytes[character] = static_cast<std::int16_t>(byte);
      append_utf8(character, characters[byte]);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet only;
  return only;
}

}  // namespace

std::string_view character_of(std::uint8_t byte) { return alphabet().characters[byte]; }

void append_characters(std::string_view bytes, std::string& text) {
  for (const char byte : bytes) text += character_of(static_cast<std::uint8_t>(byte));
}

std::optional<std::string> bytes_of(std::string_view characters) {
  std::string found;
  for (std::size_t at = 0; at < characters.size(); at += utf8_length(characters[at])) {
    const std::uint32_t character = code_point(characters, at);
    const int byte = character < Alphabet::end ? alphabet().bytes[character] : -1;
    if (byte < 0) return std::nullopt;
    found += static_cast<char>(byte);
  }
  return found;
}

}  // namespace ostrakon::texts
