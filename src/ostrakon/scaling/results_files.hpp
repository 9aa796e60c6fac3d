// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostrakon/scaling/results.hpp>
#include <string>
#include <vector>

namespace ostrakon::scaling {

/// What collected.json says about the sizes: an object for each point.
nlohmann::ordered_json points_json(const std::vector<ScalingPoint>& points);

/// A row for each size, for other tools.
std::string points_csv(const std::vector<ScalingPoint>& points);

}  // namespace ostrakon::scaling
