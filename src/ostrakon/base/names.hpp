// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace ostrakon {

/// An enumerator and its name for people and programs: in decks, messages, tables and JSON. Enums
/// whose enumerators have names define an array of Named next to them.
template <class Enum>
struct Named {
  Enum value;
  const char* name;
};

/// Returns the name of `value`; "?" if `names` has none.
template <class Enum, std::size_t count>
constexpr const char* name_in(const Named<Enum> (&names)[count], Enum value) {
  for (const Named<Enum>& one : names)
    if (one.value == value) return one.name;
  return "?";
}

/// Returns the enumerator called `name`; nothing if `names` has no such name.
template <class Enum, std::size_t count>
constexpr std::optional<Enum> find_named(const Named<Enum> (&names)[count], std::string_view name) {
  for (const Named<Enum>& one : names)
    if (one.name == name) return one.value;
  return std::nullopt;
}

}  // namespace ostrakon
