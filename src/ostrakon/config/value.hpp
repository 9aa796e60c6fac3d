// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/base/dtype.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace ostrakon::config {

/// The value of a deck key as parsed, before its expected type is known.
struct Value {
  enum class Kind { boolean, number, text, list, section, nothing };

  Kind kind = Kind::nothing;
  bool boolean = false;
  double number = 0.0;
  std::string text;  ///< of a number: as written, if known
  /// The elements of a list in a YAML deck, as written; none if one is a list or section itself.
  std::vector<std::string> items;

  static Value of(bool boolean);
  static Value of(double number);
  static Value of(const std::string& text);
  static Value of(Kind kind);

  /// Whether the value fits on one line after a key: a boolean, a number or text.
  bool is_scalar() const;

  /// Returns the number if it is an integer within these bounds.
  std::optional<std::int64_t> integer(std::int64_t least, std::int64_t most) const;

  /// Shows the value in messages: `256`, `true`, `"text"` (printable, and shortened if long), "a
  /// list", "a section", "nothing". A number is shown as written, if known.
  std::string shown() const;
};

/// Parses a plain scalar of YAML 1.2 (core schema, and `yes` and `no`): nothing (null, ~), a
/// boolean, a number, or else text. A number too large for a double becomes infinite; a nonzero one
/// too small becomes NaN.
Value parse_scalar(const std::string& text);

/// Formats a double as the shortest decimal text that reads back to it.
std::string format_number(double number);

/// A parsed deck: sections and their keys in the order of the text.
struct DeckEntry {
  std::string name;
  Value value;
};
struct DeckSection {
  std::string name;
  Value value;  ///< Kind::section, unless the deck has another value
  std::vector<DeckEntry> entries;
};

/// Returns `text` in double quotes, as a YAML scalar that reads back to it. Bytes that are not
/// UTF-8 are lost.
std::string quoted(const std::string& text);

/// Reads the text of a deck, or of a machine file, which messages call neither. Throws Error
/// starting with `name` if the text is not YAML (not XML, if `xml`), or its root is not `ostrakon`
/// alone. Does not check the names of sections and keys.
std::vector<DeckSection> read_deck(const std::string& text, const std::string& name, bool xml);

/// Error for a field whose value has no name in decks: only a program can set such a value.
class UnnamedValue : public std::logic_error {
 public:
  UnnamedValue(const std::string& key, const std::string& value)
      : std::logic_error(key + " is " + value + ", which decks have no name for"), value_(value) {}

  /// The value's name outside of decks, or its number.
  const std::string& value() const { return value_; }

 private:
  std::string value_;
};

/// Returns the text of a value for UnnamedValue.
template <class Enum>
std::string unnamed_text(Enum value) {
  return std::to_string(static_cast<long long>(value));
}
inline std::string unnamed_text(DType value) {
  for (const Named<DType>& one : dtype_names)
    if (one.value == value) return one.name;
  return std::to_string(static_cast<int>(value));
}
template <class Enum>
std::string unnamed_text(const std::optional<Enum>& value) {
  return value ? unnamed_text(*value) : "nothing";
}

}  // namespace ostrakon::config
