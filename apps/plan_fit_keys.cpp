// SPDX-License-Identifier: Apache-2.0
#include "plan_fit_keys.hpp"

#include <ostrakon/base/error.hpp>
#include <ostrakon/config/value.hpp>

namespace ostrakon::apps::fit {

using config::Settings;

const config::Key& Varied::key() const {
  return *config::find_key(*config::find_section(section), name);
}

std::string Varied::get(const Settings& settings) const {
  const config::Value value = key().get(settings);
  return value.kind == config::Value::Kind::text ? value.text : value.shown();
}

void Varied::set(Settings& settings, const std::string& value) const {
  const bool done = key().set(settings, config::parse_scalar(value));
  require(done, section, ".", name, " = ", value, ": expected ", key().expected);
}

void set(Settings& settings, const Choice& choice) {
  for (const Assignment& one : choice) one.key->set(settings, one.value);
}

std::string written(const Settings& settings) {
  std::string text;
  for (const Varied& key : varied) text += key.get(settings) + "\n";
  return text;
}

}  // namespace ostrakon::apps::fit
