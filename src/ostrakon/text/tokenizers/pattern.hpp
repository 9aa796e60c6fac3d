// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/text/json_fields.hpp>
#include <ostrakon/text/tokenizers/unicode.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ostrakon::texts {

/// Bytes [begin, end) of a text.
struct Span {
  std::uint32_t begin, end;
};

/// Throws Error for a text with more bytes than spans count: normal forms, replacements and
/// alphabets of bytes make texts longer.
void require_spans(std::size_t bytes);

/// What cuts text, or is replaced in it. Its functions change nothing: any number of threads may
/// call them at once.
class Pattern {
 public:
  virtual ~Pattern() = default;
  /// Appends the matches in `text`, valid UTF-8, from left to right, none of which is empty.
  /// `text` is all that the pattern sees. Offsets are those in `text` plus `offset`.
  virtual void find(std::string_view text, std::uint32_t offset,
                    std::vector<Span>& matches) const = 0;
};

/// Returns a pattern for a text that is not empty.
std::unique_ptr<Pattern> literal_pattern(std::string literal);

/// Returns a pattern for each single character of a set, which must outlive it.
std::unique_ptr<Pattern> character_pattern(const CodePointSet& set);

/// Reads {"String": ...} or {"Regex": ...}. Throws Error for a regular expression that is not
/// implemented.
std::unique_ptr<Pattern> read_pattern(JsonFields fields);

}  // namespace ostrakon::texts
