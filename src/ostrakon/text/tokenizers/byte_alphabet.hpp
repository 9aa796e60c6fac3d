// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ostrakon::texts {

// Byte-level tokenizers write each byte as one printable character: those of Latin-1 that are
// printable stand for themselves, and the 68 others, in order, for U+0100 to U+0143 (GPT-2).

/// Returns the character of a byte, UTF-8.
std::string_view character_of(std::uint8_t byte);

/// Appends the characters of bytes.
void append_characters(std::string_view bytes, std::string& text);

/// Returns the bytes of a text whose characters all stand for bytes; nothing for another one.
std::optional<std::string> bytes_of(std::string_view characters);

}  // namespace ostrakon::texts
