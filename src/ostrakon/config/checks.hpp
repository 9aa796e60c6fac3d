// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/settings.hpp>
#include <string>
#include <vector>

namespace ostrakon::config {

/// Throws Error, beginning with `name`, for settings that are each valid but contradict each other.
void check_consistency(const Settings& settings, const std::string& name);

/// Throws Error, beginning with `name`, for settings that lack the data to train and validate on.
void check_data(const Settings& settings, const std::string& name);

/// Returns all parameters of the model, in its order. Throws Error for contradicting settings.
std::vector<model::Parameter> parameters_of(const Settings& settings);

}  // namespace ostrakon::config
