// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <string>
#include <utility>
#include <vector>

// Text that several outputs of ostrakon-plan share.

namespace ostrakon::apps {

inline std::string seconds_text(double seconds) {
  if (seconds >= 1.0) return print("%.4g s", seconds);
  if (seconds >= 1e-3) return print("%.4g ms", 1e3 * seconds);
  return print("%.4g us", 1e6 * seconds);
}

inline nlohmann::ordered_json factors_json(const simulate::Factors& factors) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, factor] : list(factors)) json[name] = factor;
  return json;
}

}  // namespace ostrakon::apps
