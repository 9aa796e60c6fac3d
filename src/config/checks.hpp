// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/settings.hpp>
#include <string>

namespace ostrakon::config {

/// Throws Error, beginning with `name`, for settings that don't go together though each by itself
/// is possible.
void check_together(const Settings& settings, const std::string& name);

}  // namespace ostrakon::config
