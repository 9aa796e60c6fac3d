// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/settings.hpp>
#include <string>
#include <vector>

namespace ostrakon::config {

/// Throws Error, beginning with `name`, for settings that don't go together though each by itself
/// is possible.
void check_together(const Settings& settings, const std::string& name);

/// Throws Error, beginning with `name`, for settings that don't say what data to train and validate
/// on.
void check_data(const Settings& settings, const std::string& name);

/// All parameters, in the order of the model. Throws Error where its settings don't fit together.
std::vector<model::Parameter> parameters_of(const Settings& settings);

}  // namespace ostrakon::config
