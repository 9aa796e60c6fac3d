// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/keys.hpp>
#include <ostrakon/config/settings.hpp>
#include <string>
#include <vector>

namespace ostrakon::config {

/// A key of the deck that is varied.
struct Varied {
  const char* section;
  const char* name;

  const Key& key() const;
  /// "parallel.sharding"
  std::string full_name() const { return std::string(section) + "." + name; }
  std::string get(const Settings& settings) const;
  /// Throws Error where the key has no such value.
  void set(Settings& settings, const std::string& value) const;
};

/// Values of some keys together; none: as the deck says.
struct Assignment {
  const Varied* key;
  std::string value;
};
using Choice = std::vector<Assignment>;
using Choices = std::vector<Choice>;

/// Throws Error where a key has no such value.
void set(Settings& settings, const Choice& choice);

/// The --set options that make these changes ("parallel.sharding=full") to a deck, as a shell takes
/// them.
std::string set_options(const std::vector<std::string>& changes);

}  // namespace ostrakon::config
