// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/config/value.hpp>
#include <string>
#include <vector>

namespace ostrakon::config {

/// One key of a deck. What is known of a key is said once, in keys_*.cpp; reading, checking and
/// writing decks all go by it.
struct Key {
  std::string name;
  std::string meaning;   ///< for people, without ends of lines
  std::string expected;  ///< for error messages: "an integer >= 1", "none or full"
  std::string limits;    ///< the same for comments: ">= 1", "none | full"; may be empty
  /// Sets the field from a value; returns false, changing nothing, for a value that isn't
  /// `expected`, or throws Error that says what is wrong with it, to follow the key's name.
  std::function<bool(Settings&, const Value&)> set;
  std::function<Value(const Settings&)> get;
  bool is_open_integer = false;  ///< an integer with no limit above but what a deck can hold
  bool is_text = false;          ///< takes text, so that --set takes it as it is
  /// The field of a key that names a file or folder.
  std::function<std::string&(Settings&)> path;
  bool is_written = false;  ///< that file or folder is made or changed
};

struct Section {
  std::string name;
  std::string meaning;
  std::vector<Key> keys;
};

/// The largest integer that a deck can hold: beyond it a double doesn't tell neighbours apart.
constexpr std::int64_t largest_integer = (std::int64_t{1} << 53) - 1;

/// All sections in the order in which decks are written.
const std::vector<Section>& sections();

const Section* find_section(const std::string& name);
const Key* find_key(const Section& section, const std::string& name);

/// The ending of the message about an unknown key: "; did you mean training.steps?", or what there
/// is to choose from.
std::string suggest_key(const std::string& section, const std::string& name);
/// Suggests a section for a name where one is expected.
std::string suggest_section(const std::string& name);

}  // namespace ostrakon::config
