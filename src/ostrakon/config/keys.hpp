// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/config/value.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::config {

/// One key of a deck. Each key is defined once, in keys_*.cpp; reading, checking and writing decks
/// all use this definition.
struct Key {
  Key(std::string key_name, std::string key_meaning)
      : name(std::move(key_name)), meaning(std::move(key_meaning)) {}

  std::string name;
  std::string meaning;   ///< for people, without line breaks
  std::string expected;  ///< for error messages: "an integer >= 1", "none or full"
  std::string limits;    ///< `expected` in short, for comments: ">= 1", "none | full"; may be empty
  /// Sets the field from a value. Returns false, changing nothing, for a value that isn't
  /// `expected`; throws Error with a reason, to follow the key's name, for some wrong values.
  std::function<bool(Settings&, const Value&)> set;
  std::function<Value(const Settings&)> get;
  bool is_unbounded_integer = false;  ///< an integer bounded above only by what a deck can hold
  bool is_text = false;               ///< takes text: --set does not parse its value
  /// Calls a function with each path, none of them empty, of a key that names files or folders, to
  /// change it.
  std::function<void(Settings&, const std::function<void(std::string&)>&)> change_paths;
  bool is_written = false;  ///< whether a run creates or changes the file or folder
};

struct Section {
  std::string name;
  std::string meaning;
  std::vector<Key> keys;
};

/// The largest integer that a deck can hold: larger doubles do not distinguish all integers.
constexpr std::int64_t largest_integer = (std::int64_t{1} << 53) - 1;

/// All sections in the order in which decks are written.
const std::vector<Section>& sections();

const Section* find_section(const std::string& name);
const Key* find_key(const Section& section, const std::string& name);

/// Returns the ending of the message about an unknown key: "; did you mean training.steps?", or the
/// list of keys.
std::string suggest_key(const std::string& section, const std::string& name);
/// Suggests a section for a name that should be one.
std::string suggest_section(const std::string& name);

// keys_model.cpp: what is computed
Section model_section();
Section lora_section();

// keys_training.cpp: data, and how a model is trained
Section data_section();
Section training_section();
Section optimizer_section();
Section schedule_section();

// keys_parallel.cpp: how ranks share the work, and how memory is saved
Section parallel_section();
Section precision_section();
Section memory_section();

// keys_run.cpp: the files that a run writes, and the machine
Section checkpoint_section();
Section output_section();
Section runtime_section();

}  // namespace ostrakon::config
