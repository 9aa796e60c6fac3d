// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/base/files.hpp>
#include <string>

namespace ostrakon::data {

/// A file format that is neither text nor bare numbers.
struct KnownFormat {
  std::string what;    ///< "a zip archive"
  std::string advice;  ///< how to get at what is in it: "decompress it with gunzip"; may be empty
};

/// How many bytes from a file's beginning tell what it is.
constexpr std::int64_t head_bytes = 8192;
std::string head_of(const PlainFile& file);

/// What a file's first bytes say that it is; none for text, bare numbers, and formats that have no
/// such mark. Marks of few bytes count only where what follows them agrees, so that numbers which
/// happen to begin like that are still numbers.
std::optional<KnownFormat> known_format(const PlainFile& file, const std::string& head);

/// Whether a file's first bytes are UTF-8 without control characters, as text is and numbers are
/// not.
bool begins_as_text(const std::string& head);

/// Whether they are UTF-16, with a byte-order mark or, where they are mostly ASCII, without.
bool begins_as_utf16(const std::string& head);

KnownFormat utf16();

/// Whether they are lines of JSON objects.
bool begins_as_json_lines(const std::string& head);

/// Whether they are the byte-order mark that some editors put before UTF-8.
bool begins_with_utf8_mark(const std::string& head);

}  // namespace ostrakon::data
