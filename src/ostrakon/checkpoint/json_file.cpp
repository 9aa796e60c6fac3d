// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/json_file.hpp>

#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/new_file.hpp>
#include <ostrakon/checkpoint/input_file.hpp>
#include <set>
#include <vector>

namespace ostrakon::checkpoint {

using Json = nlohmann::json;

Json read_json_object(const std::string& path, const std::string& kind, std::int64_t most_bytes) {
  return parse_json_object(read_plain_file(path, kind, most_bytes), kind, path);
}

Json parse_json_object(const std::string& json, const std::string& kind, const std::string& path) {
  constexpr std::size_t deepest = 8;
  std::vector<std::set<std::string>> keys;
  std::size_t depth = 0;
  const auto watch = [&](int, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start)
      require(++depth <= deepest, kind, " '", path, "' is nested too deeply; expected at most ",
              deepest, " levels");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::object_end || event == Event::array_end) --depth;
    if (event == Event::key)
      require(keys.back().insert(value.get<std::string>()).second, kind, " '", path, "': the key ",
              shown(value.get<std::string>()), " is there twice; expected each once");
    return true;
  };
  Json object;
  try {
    object = Json::parse(json, watch);
  } catch (const Json::exception& error) {
    throw Error(text(kind, " '", path, "' is not JSON: ", reason_of(error)));
  }
  require(object.is_object(), kind, " '", path, "' is ", object.type_name(),
          "; expected an object");
  return object;
}

void write_text_file(const std::string& path, const std::string& kind, const std::string& text) {
  try {
    replace_file(path, text);
  } catch (const Error& error) {
    throw Error(ostrakon::text(kind, ": ", error.what()));
  }
}

std::string reason_of(const std::exception& error) {
  const std::string what = error.what();
  const std::size_t begin = what.find("] ");
  const std::string reason = begin == std::string::npos ? what : what.substr(begin + 2);
  return reason.substr(0, 300);
}

}  // namespace ostrakon::checkpoint
