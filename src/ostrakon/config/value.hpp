// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ostrakon::config {

/// What a deck says for one key, before it is known what the key takes.
struct Value {
  enum class Kind { boolean, number, text, list, section, nothing };

  Kind kind = Kind::nothing;
  bool boolean = false;
  double number = 0.0;
  std::string text;  ///< of a number: as it was given, where that is known

  static Value of(bool boolean);
  static Value of(double number);
  static Value of(const std::string& text);
  static Value of(Kind kind);

  /// True for what fits on one line after a key: a boolean, a number or text.
  bool is_scalar() const;

  /// The number, where it is an integer within these bounds.
  std::optional<std::int64_t> integer(std::int64_t least, std::int64_t most) const;

  /// For messages: `256`, `true`, `"text"` (printable, and not all of a long text), "a list",
  /// "a section", "nothing". A number as it was given, where that is known.
  std::string shown() const;
};

/// What a plain scalar means in YAML 1.2 (core schema, and `yes` and `no`): nothing (null, ~), a
/// boolean, a number, or else text. A number too large for a double is infinite; one too small,
/// which is not 0, is NaN.
Value parse_scalar(const std::string& text);

/// The shortest decimal text that reads back to the same double.
std::string format_number(double number);

/// A deck as it was written: sections and their keys in the order of the text.
struct DeckEntry {
  std::string name;
  Value value;
};
struct DeckSection {
  std::string name;
  Value value;  ///< Kind::section, unless the deck has something else in its place
  std::vector<DeckEntry> entries;
};

/// `text` in double quotes, as a YAML scalar that reads back to it. Bytes that are no UTF-8 are
/// lost.
std::string quoted(const std::string& text);

/// Reads a deck's text. Throws Error starting with `name` where the text is not YAML
/// (not XML, where `xml`) or has not the one root `ostrakon`. Knows nothing of sections' and keys'
/// names.
std::vector<DeckSection> read_deck(const std::string& text, const std::string& name, bool xml);

}  // namespace ostrakon::config
