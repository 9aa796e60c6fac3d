// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/json_fields.hpp>

#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/utf8.hpp>
#include <utility>

namespace ostrakon::texts {

namespace {

const nlohmann::json no_field;

/// A value for a message: strings and lists may be long.
std::string shown_value(const nlohmann::json& value) {
  constexpr std::size_t most = 120;
  if (value.is_null()) return "missing";
  return without_middle(printable(value.dump()), most);
}

}  // namespace

JsonFields::JsonFields(const nlohmann::json& json, std::string file, std::string path)
    : json_(&json), file_(std::move(file)), path_(std::move(path)) {
  require(json.is_object(), "'", file_, "': ", path_.empty() ? "the file" : path_, " is ",
          shown_value(json), "; expected an object");
}

std::string JsonFields::path(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

bool JsonFields::has(const std::string& key) { return !value(key).is_null(); }

const nlohmann::json& JsonFields::value(const std::string& key) {
  known_.insert(key);
  const auto found = json_->find(key);
  return found == json_->end() ? no_field : *found;
}

bool JsonFields::boolean(const std::string& key) {
  if (!value(key).is_boolean()) refuse(key, "true or false");
  return value(key).get<bool>();
}

bool JsonFields::boolean(const std::string& key, bool otherwise) {
  return has(key) ? boolean(key) : otherwise;
}

std::string JsonFields::string(const std::string& key) {
  if (!value(key).is_string()) refuse(key, "a string");
  return value(key).get<std::string>();
}

std::int32_t JsonFields::count(const std::string& key) {
  const nlohmann::json& number = value(key);
  constexpr std::uint64_t most = std::numeric_limits<std::int32_t>::max();
  if (!number.is_number_unsigned() || number.get<std::uint64_t>() > most)
    refuse(key, "an integer from 0 to 2147483647");
  return number.get<std::int32_t>();
}

std::string JsonFields::character(const std::string& key) {
  std::string found = string(key);
  if (found.empty() || utf8_length(found[0]) != found.size()) refuse(key, "one character");
  return found;
}

JsonFields JsonFields::object(const std::string& key) { return {value(key), file_, path(key)}; }

std::vector<JsonFields> JsonFields::objects(const std::string& key) {
  if (!value(key).is_array()) refuse(key, "a list");
  std::vector<JsonFields> list;
  for (const nlohmann::json& element : value(key))
    list.emplace_back(element, file_, text(path(key), "[", list.size(), "]"));
  return list;
}

void JsonFields::finish() const {
  for (const auto& [key, value] : json_->items())
    require(known_.count(key) == 1, "'", file_, "': the field ", path(printable(key)), " (",
            shown_value(value), ") is not implemented");
}

void JsonFields::refuse(const std::string& key, const std::string& expected) const {
  const auto found = json_->find(key);
  throw Error(text("'", file_, "': ", path(key), " is ",
                   shown_value(found == json_->end() ? no_field : *found), "; expected ",
                   expected));
}

void JsonFields::refuse_type(const std::string& known) const {
  const auto found = json_->find("type");
  throw Error(text("'", file_, "': ", path("type"), " ",
                   shown_value(found == json_->end() ? no_field : *found),
                   " is not implemented; expected ", known));
}

}  // namespace ostrakon::texts
