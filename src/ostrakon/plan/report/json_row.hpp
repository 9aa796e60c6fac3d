// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostream>
#include <string>

namespace ostrakon::plan {

/// A category as fields and values are called: "optimizer_state".
inline std::string category_key(Category category) {
  std::string text = name(category);
  std::replace(text.begin(), text.end(), ' ', '_');
  return text;
}

/// One object on a line, for the lists that may be long: Json itself takes much longer.
class JsonRow {
 public:
  JsonRow& put(const char* field, std::int64_t value) {
    return put_text(field, std::to_string(value));
  }
  JsonRow& put(const char* field, bool value) { return put_text(field, value ? "true" : "false"); }
  JsonRow& put(const char* field, double value) {
    return put_text(field, value == 0.0 ? "0.0" : nlohmann::json(value).dump());
  }
  JsonRow& put(const char* field, const std::string& value) {
    return put_text(field, nlohmann::json(value).dump());
  }
  /// A name without anything to escape.
  JsonRow& put(const char* field, const char* value) {
    return put_text(field, '"' + std::string(value) + '"');
  }
  template <class Value>
  JsonRow& put_or_null(const char* field, bool is_there, const Value& value) {
    return is_there ? put(field, value) : put_text(field, "null");
  }
  template <class Items, class Write>
  JsonRow& put_list(const char* field, const Items& items, const Write& write) {
    begin(field);
    text_ += '[';
    for (const auto& item : items) {
      if (text_.back() != '[') text_ += ',';
      text_ += write(item);
    }
    text_ += ']';
    return *this;
  }

  std::string end() const { return text_ + '}'; }

 private:
  void begin(const char* field) {
    if (text_.size() > 1) text_ += ',';
    ((text_ += '"') += field) += "\":";
  }
  JsonRow& put_text(const char* field, const std::string& value) {
    begin(field);
    text_ += value;
    return *this;
  }

  std::string text_ = "{";
};

/// Writes a member of an object that has others before it: a list with one item on a line.
template <class Item>
void write_list(std::ostream& out, const char* member, std::size_t count, const Item& item) {
  out << ",\n  \"" << member << "\": [";
  for (std::size_t i = 0; i < count; ++i) out << (i == 0 ? "\n    " : ",\n    ") << item(i);
  out << "\n  ]";
}

/// An object that is not empty, without the end: members may follow, then "\n}\n".
inline std::string without_end(const nlohmann::ordered_json& object) {
  std::string text = object.dump(2);
  text.resize(text.size() - 2);  // without "\n}"
  return text;
}

}  // namespace ostrakon::plan
