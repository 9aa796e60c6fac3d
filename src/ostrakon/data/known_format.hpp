// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/base/files/files.hpp>
#include <string>

namespace ostrakon::data {

/// A file format that is neither text nor bare numbers.
struct KnownFormat {
  std::string what;    ///< "a zip archive"
  std::string advice;  ///< how to read its content: "decompress it with gunzip"; may be empty
};

/// Number of bytes at a file's beginning that identify its format.
constexpr std::int64_t head_bytes = 8192;
std::string head_of(const PlainFile& file);

/// Returns the format that a file's first bytes identify; nothing for text, bare numbers, and
/// formats without a mark. A mark of few bytes only counts if the bytes after it are plausible,
/// too: numbers may begin with the same bytes.
std::optional<KnownFormat> known_format(const PlainFile& file, const std::string& head);

/// Whether a file's first bytes are those of Parquet.
bool is_parquet(const std::string& head);

/// Whether a file's first bytes are text: UTF-8 without control characters.
bool begins_as_text(const std::string& head);

/// Whether a file's first bytes are UTF-16, with a byte-order mark or, if they are mostly ASCII,
/// without.
bool begins_as_utf16(const std::string& head);

KnownFormat utf16();

/// Whether a file's first bytes are lines of JSON objects.
bool begins_as_json_lines(const std::string& head);

/// Whether a file begins with the byte-order mark that some editors put before UTF-8.
bool begins_with_utf8_mark(const std::string& head);

}  // namespace ostrakon::data
