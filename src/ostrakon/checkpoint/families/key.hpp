// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// The reading of one config.json into settings. Keys of the file are read one after the other;
/// each says which keys of a deck it sets.
class ConfigReading {
 public:
  /// `file`: a JSON object. `name` and `type`: the file and its model type, for messages.
  ConfigReading(std::string name, std::string type, const nlohmann::json& file);

  model::DecoderSettings model;
  std::int64_t positions = 1;  ///< the file's longest context in tokens

  /// What the file says of a key of a deck: ("rotary_base", "rope_theta is 10000.0").
  struct Said {
    std::string deck_key, words;
  };
  std::vector<Said> said;
  /// What the file has and Decoder does not compute, each a key, its value and the reason.
  std::vector<std::string> problems;

  const nlohmann::json& file() const { return file_; }
  /// Whether the file has a key with a value other than null.
  bool has(const std::string& key) const;
  /// Whether the file has a key, perhaps null.
  bool is_there(const std::string& key) const;
  /// Returns the value of a key; null if it is missing.
  const nlohmann::json& at(const std::string& key) const;

  /// Returns an integer of at least `least`.
  std::int64_t whole(const std::string& key, std::int64_t least = 1) const;
  double number(const std::string& key) const;
  bool flag(const std::string& key) const;
  std::string words(const std::string& key) const;
  /// Returns a list with one entry for each layer of `model`.
  const nlohmann::json& of_layers(const std::string& key) const;

  /// Throws Error that begins with the file's name, the key and its value.
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;
  void problem(const std::string& key, const std::string& why);
  void say(const std::string& deck_key, const std::string& words) {
    said.push_back({deck_key, words});
  }
  /// Returns "rope_theta is 10000.0", or "rope_theta is missing (llama: 10000.0)", for a missing
  /// key, whose value is then `value`.
  std::string is(const std::string& key, const std::string& value = "null") const;

 private:
  std::string name_, type_;
  const nlohmann::json& file_;
};

/// Returns JSON in one line, cut if it is long.
std::string shown_json(const nlohmann::json& value);

/// A key of config.json, or some that say one thing together: how it is read into settings, and
/// written for a model that has no config.json yet. Missing keys have the defaults of transformers'
/// configuration classes, versions 4 and 5.
struct Key {
  std::vector<std::string> names;
  /// By name, the keys of a deck's section `model` that hold what it says, where there are such.
  std::map<std::string, std::vector<std::string>> deck_keys = {};
  std::function<void(ConfigReading& reading)> read = {};
  /// Writes settings as well as the key can say them. Not set: the key is not written.
  std::function<void(const model::DecoderSettings&, nlohmann::ordered_json& to)> write = {};
};

}  // namespace ostrakon::checkpoint
