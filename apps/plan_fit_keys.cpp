// SPDX-License-Identifier: Apache-2.0
#include "plan_fit_keys.hpp"

namespace ostrakon::apps::fit {

std::string written(const config::Settings& settings) {
  std::string text;
  for (const Varied& key : varied) text += key.get(settings) + "\n";
  return text;
}

}  // namespace ostrakon::apps::fit
