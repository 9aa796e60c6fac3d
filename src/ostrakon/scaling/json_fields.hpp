// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <string>
#include <utility>

namespace ostrakon::scaling {

/// An object of a JSON file with required fields. Throws Error that names the file, the field, its
/// value and what was expected.
class Fields {
 public:
  /// `place`: path of the object in the file, "sizes[1]"; empty for the whole file.
  Fields(const nlohmann::json& object, std::string file, std::string place = "")
      : object_(object), file_(std::move(file)), place_(std::move(place)) {
    require(object.is_object(), "'", file_, "': ", place_.empty() ? "the file" : place_, " is ",
            object.type_name(), "; expected an object");
  }

  bool has(const std::string& key) const {
    return object_.contains(key) && !object_[key].is_null();
  }
  std::int64_t integer(const std::string& key, std::int64_t least = 0) const {
    const nlohmann::json& value = find(key);
    require(value.is_number_integer() &&
                (!value.is_number_unsigned() ||
                 value.get<std::uint64_t>() < (std::uint64_t{1} << 62)) &&
                value.get<std::int64_t>() >= least,
            about(key), "expected a whole number >= ", least);
    return value.get<std::int64_t>();
  }
  int small(const std::string& key, int least = 0) const {
    const std::int64_t value = integer(key, least);
    require(value <= 1 << 30, about(key), "expected at most ", 1 << 30);
    return static_cast<int>(value);
  }
  /// Returns a finite number that is not below 0.
  double number(const std::string& key) const {
    const nlohmann::json& value = find(key);
    require(value.is_number() && value.get<double>() >= 0.0, about(key), "expected a number >= 0");
    return value.get<double>();
  }
  double any_number(const std::string& key) const {
    require(find(key).is_number(), about(key), "expected a number");
    return find(key).get<double>();
  }
  bool flag(const std::string& key) const {
    require(find(key).is_boolean(), about(key), "expected true or false");
    return find(key).get<bool>();
  }
  std::string text(const std::string& key) const {
    require(find(key).is_string(), about(key), "expected text");
    return find(key).get<std::string>();
  }
  /// Checks the fields `format` and `format_version`.
  void require_format(const std::string& format, int version) const {
    require(text("format") == format, about("format"), "expected ", shown(format));
    require(integer("format_version") == version, about("format_version"), "this program reads ",
            version);
  }
  Fields object(const std::string& key) const { return {find(key), file_, place_of(key)}; }
  /// Calls visit(Fields) for each object of an array.
  template <class Visit>
  void each(const std::string& key, const Visit& visit) const {
    const nlohmann::json& values = find(key);
    require(values.is_array(), about(key), "expected an array");
    for (std::size_t i = 0; i < values.size(); ++i)
      visit(Fields(values[i], file_, place_of(key) + "[" + std::to_string(i) + "]"));
  }

 private:
  std::string place_of(const std::string& key) const {
    return place_.empty() ? key : place_ + "." + key;
  }
  const nlohmann::json& find(const std::string& key) const {
    const auto found = object_.find(key);
    require(found != object_.end(), "'", file_, "': ", place_of(key), " is missing");
    return *found;
  }
  std::string about(const std::string& key) const {
    const std::string value =
        find(key).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return ostrakon::text("'", file_, "': ", place_of(key), " = ",
                          printable(without_middle(value, 80)), "; ");
  }

  const nlohmann::json& object_;
  std::string file_, place_;
};

}  // namespace ostrakon::scaling
