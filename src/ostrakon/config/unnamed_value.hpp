// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/base/dtype.hpp>
#include <stdexcept>
#include <string>

namespace ostrakon::config {

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
