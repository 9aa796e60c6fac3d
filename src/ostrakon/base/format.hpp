// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostrakon/base/text.hpp>
#include <string>

namespace ostrakon {

/// Formats bytes in the largest binary unit that keeps the number at least 1: "512 B", "3.25 GiB".
std::string format_bytes(std::int64_t bytes);

/// Formats a count with thousands separators: "8,030,261,248".
std::string format_count(std::int64_t count);

// The next functions make text from files, attributes and paths safe to show on a terminal. Bytes
// that are not UTF-8, and characters that a terminal acts on or that change the text around them,
// are escaped: "\x1b". All output for people goes through these functions.

/// Returns the text on one line: new lines and tabs are escaped, too.
std::string printable(const std::string& text);

/// Returns the text with its line breaks unescaped.
std::string printable_lines(const std::string& text);

/// Returns printable(text) in double quotes; a long text ends in "...".
std::string shown(const std::string& text);

/// Returns `text`; if it has more than `most` bytes, its middle is replaced by how many bytes that
/// is.
std::string without_middle(const std::string& text, std::size_t most);

/// Returns the first byte that is not UTF-8; the text's size if all of it is.
std::size_t first_not_utf8(const std::string& text);

/// Formats 16 lower-case hexadecimal digits.
std::string format_hex(std::uint64_t value);

/// Returns a line for tools that read results from the screen, such as ReFrame, Ramble and JUBE:
/// "figure: NAME VALUE UNIT", with six digits. Names have no spaces, and are stable across
/// versions.
inline std::string figure(const std::string& name, double value, const std::string& unit) {
  return text("figure: ", name, " ", value, " ", unit, "\n");
}

/// Returns the message of a program that ends with status 1: "<name>: error: <what>", escaped for a
/// terminal, and shortened in the middle if a value in it is very long.
std::string error_message(const std::string& name, const std::string& what);

/// Returns the message of one rank: "<name>: error on rank <rank>: <what>".
std::string error_message(const std::string& name, int rank, const std::string& what);

}  // namespace ostrakon
