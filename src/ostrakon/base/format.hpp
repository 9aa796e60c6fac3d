// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ostrakon {

/// Bytes in the largest binary unit that keeps the number at least 1: "512 B", "3.25 GiB".
std::string format_bytes(std::int64_t bytes);

/// A count with thousands separators: "8,030,261,248".
std::string format_count(std::int64_t count);

// Text that others wrote (names in files, attributes, paths, messages with any of these), as a
// terminal may show it: bytes that are no UTF-8 and all that a terminal takes for an order, to
// itself or to the text around it, are escaped, "\x1b". What programs write for people goes through
// these.

/// On one line: new lines and tabs are escaped, too.
std::string printable(const std::string& text);

/// Several lines, as they are.
std::string printable_lines(const std::string& text);

/// Printable, in double quotes, and not too long: "..." replaces what is cut off at the end.
std::string shown(const std::string& text);

/// `text`, where it has more than `most` bytes without its middle, but for how much that is.
std::string without_middle(const std::string& text, std::size_t most);

/// The byte where a text stops to be UTF-8; its size where it is.
std::size_t first_not_utf8(const std::string& text);

/// Sixteen lower-case hexadecimal digits.
std::string format_hex(std::uint64_t value);

}  // namespace ostrakon
