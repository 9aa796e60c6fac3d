// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/base/dtype.hpp>
#include <stdexcept>
#include <string>

namespace ostrakon::config {

/// A field has a value that its key has no name for: only a program can set it so.
class UnnamedValue : public std::logic_error {
 public:
  UnnamedValue(const std::string& key, const std::string& value)
      : std::logic_error(key + " is " + value + ", which decks have no name for"), value_(value) {}

  /// Its name outside of decks, or its number.
  const std::string& value() const { return value_; }

 private:
  std::string value_;
};

/// For the value of an UnnamedValue.
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
