// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/keys.hpp>
#include <ostrakon/config/settings.hpp>
#include <string>
#include <vector>

namespace ostrakon::config {

/// A deck key whose value is varied.
struct Varied {
  const char* section;
  const char* name;

  const Key& key() const;
  /// Returns the key's full name: "parallel.sharding".
  std::string full_name() const { return std::string(section) + "." + name; }
  std::string get(const Settings& settings) const;
  /// Throws Error if the key does not take the value.
  void set(Settings& settings, const std::string& value) const;
};

/// Values of some keys together; empty: all as in the deck.
struct Assignment {
  const Varied* key;
  std::string value;
};
using Choice = std::vector<Assignment>;
using Choices = std::vector<Choice>;

/// Applies a choice. Throws Error if a key does not take its value.
void set(Settings& settings, const Choice& choice);

/// Returns --set options for these changes of a deck ("parallel.sharding=full"), quoted for a
/// shell.
std::string set_options(const std::vector<std::string>& changes);

}  // namespace ostrakon::config
