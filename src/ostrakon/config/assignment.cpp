// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/assignment.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/shell_word.hpp>
#include <ostrakon/config/value.hpp>

namespace ostrakon::config {

const Key& Varied::key() const { return *find_key(*find_section(section), name); }

std::string Varied::get(const Settings& settings) const {
  const Value value = key().get(settings);
  return value.kind == Value::Kind::text ? value.text : value.shown();
}

void Varied::set(Settings& settings, const std::string& value) const {
  const bool done = key().set(settings, parse_scalar(value));
  require(done, full_name(), " = ", value, ": expected ", key().expected);
}

void set(Settings& settings, const Choice& choice) {
  for (const Assignment& one : choice) one.key->set(settings, one.value);
}

std::string set_options(const std::vector<std::string>& changes) {
  if (changes.empty()) return "as the deck says";
  std::string text;
  for (const std::string& change : changes)
    text += (text.empty() ? "--set " : " --set ") + shell_word(change);
  return text;
}

}  // namespace ostrakon::config
