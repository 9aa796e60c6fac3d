// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::texts {

// Sets of characters as the Python library `tokenizers` (0.20 to 0.23) has them. It is put together
// from parts with Unicode data of different age; nothing here depends on the Unicode version of a
// library that is installed.

/// A set of code points.
class CodePointSet {
 public:
  static constexpr std::uint32_t end = 0x110000;          ///< one more than the last code point
  using Range = std::pair<std::uint32_t, std::uint32_t>;  ///< first and last

  CodePointSet() : bits_(end / 64) {}
  explicit CodePointSet(const std::vector<Range>& ranges);

  void add(const Range& range);
  void add(const CodePointSet& other);
  void remove(const CodePointSet& other);
  bool contains(std::uint32_t code_point) const {
    return (bits_[code_point / 64] >> (code_point % 64) & 1) != 0;
  }
  bool empty() const;
  /// Returns the ranges in order, surrogates left out, which no text contains.
  std::vector<Range> ranges() const;

 private:
  std::vector<std::uint64_t> bits_;
};

/// Returns the characters of a general category of Unicode 16, "Lu", or of a group of them, "L";
/// nothing for another name. The library's regular expressions are Oniguruma's.
std::optional<CodePointSet> category(const std::string& name);

/// White space: the property White_Space.
const CodePointSet& white_space();
/// Letters, marks, digits and connecting punctuation: \w of the library's `Whitespace` and of
/// added tokens that are single words.
const CodePointSet& word_characters();
/// What `Digits` splits: categories Nd, Nl and No of Unicode 17.
const CodePointSet& numeric();
/// What `Punctuation` splits: ASCII punctuation, and category P of Unicode 8.
const CodePointSet& punctuation();
/// What `StripAccents` removes: category M of Unicode 9.
const CodePointSet& combining_marks();
/// Characters that the library's normal forms, of Unicode 9, leave as they are and take for ones
/// that combine with nothing: all that are newer.
const CodePointSet& unknown_to_normal_forms();

/// Appends the lower case of a character, by Unicode 17.
void append_lower_case(std::uint32_t code_point, std::string& text);

}  // namespace ostrakon::texts
