// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace ostrakon::texts {

/// An object of a JSON file that is read field by field, each with the type that it must have. A
/// message names the file and the path of the field: "'a/tokenizer.json': pre_tokenizer.split is
/// 3; expected true or false". All functions throw Error.
class JsonFields {
 public:
  /// `path`: of this object in the file, such as "normalizer.normalizers[2]"; empty: the whole
  /// file. The JSON value must outlive the object. Throws Error unless it is an object.
  JsonFields(const nlohmann::json& json, std::string file, std::string path);

  /// Whether the field is there and not null. It is known from then on.
  bool has(const std::string& key);
  /// Returns the field, null if it is missing.
  const nlohmann::json& value(const std::string& key);

  bool boolean(const std::string& key);
  bool boolean(const std::string& key, bool otherwise);
  std::string string(const std::string& key);
  /// Returns an integer from 0 to 2^31 - 1.
  std::int32_t count(const std::string& key);
  /// Returns the single character of a string, UTF-8.
  std::string character(const std::string& key);
  JsonFields object(const std::string& key);
  std::vector<JsonFields> objects(const std::string& key);
  /// Returns `type`, by which objects of these files say what they are.
  std::string type() { return string("type"); }

  /// Refuses a field that none of the functions above has asked for.
  void finish() const;

  /// Throws Error: "<file>: <path> is <value>; expected <expected>".
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;
  /// Throws Error that the type of this object is not implemented; `known`: those that are.
  [[noreturn]] void refuse_type(const std::string& known) const;

  const nlohmann::json& json() const { return *json_; }
  const std::string& file() const { return file_; }
  /// The path of a field.
  std::string path(const std::string& key) const;

 private:
  const nlohmann::json* json_;
  std::string file_, path_;
  std::set<std::string> known_;
};

}  // namespace ostrakon::texts
