// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/families/key.hpp>

#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

using Json = nlohmann::json;

/// Largest integer of a deck: doubles represent all integers up to it exactly.
constexpr std::uint64_t most_whole = (std::uint64_t{1} << 53) - 1;

}  // namespace

std::string shown_json(const Json& value) {
  constexpr std::size_t most = 300;
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

ConfigReading::ConfigReading(std::string name, std::string type, const Json& file)
    : name_(std::move(name)), type_(std::move(type)), file_(file) {}

bool ConfigReading::has(const std::string& key) const { return !at(key).is_null(); }

bool ConfigReading::is_there(const std::string& key) const { return file_.contains(key); }

const Json& ConfigReading::at(const std::string& key) const {
  static const Json missing;
  const auto found = file_.find(key);
  return found == file_.end() ? missing : *found;
}

std::int64_t ConfigReading::whole(const std::string& key, std::int64_t least) const {
  const Json& value = at(key);
  const bool fits = value.is_number_unsigned() &&
                    value.get<std::uint64_t>() >= static_cast<std::uint64_t>(least) &&
                    value.get<std::uint64_t>() <= most_whole;
  if (!fits) refuse(key, text("expected a whole number from ", least, " to ", most_whole));
  return value.get<std::int64_t>();
}

double ConfigReading::number(const std::string& key) const {
  if (!at(key).is_number()) refuse(key, "expected a number");
  return at(key).get<double>();
}

bool ConfigReading::flag(const std::string& key) const {
  if (!at(key).is_boolean()) refuse(key, "expected true or false");
  return at(key).get<bool>();
}

std::string ConfigReading::words(const std::string& key) const {
  if (!at(key).is_string()) refuse(key, "expected text");
  return at(key).get<std::string>();
}

const Json& ConfigReading::of_layers(const std::string& key) const {
  const Json& list = at(key);
  if (!list.is_array() || static_cast<std::int64_t>(list.size()) != model.layers)
    refuse(key, text("expected a list with an entry for each of the ", model.layers, " layers"));
  return list;
}

void ConfigReading::refuse(const std::string& key, const std::string& why) const {
  const std::string found = is_there(key) ? shown_json(at(key)) : std::string("missing");
  throw Error(text("model configuration '", name_, "': ", key, " is ", found, "; ", why));
}

void ConfigReading::problem(const std::string& key, const std::string& why) {
  problems.push_back(text(key, " is ", shown_json(at(key)), "; ", why));
}

std::string ConfigReading::is(const std::string& key, const std::string& value) const {
  if (has(key)) return text(key, " is ", shown_json(at(key)));
  if (is_there(key)) return text(key, " is null", value == "null" ? "" : " (" + value + ")");
  return text(key, " is missing (", type_, ": ", value, ")");
}

}  // namespace ostrakon::checkpoint
