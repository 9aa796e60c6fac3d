// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <ostrakon/config/settings.hpp>

#include "plan_fit_request.hpp"

namespace ostrakon::apps {

/// Writes the ten fastest settings that fit, as a table or as JSON. Throws Error where none does,
/// naming those with the smallest arena.
void show_fits(const config::Settings& deck, const FitRequest& request, bool json,
               std::ostream& out);

}  // namespace ostrakon::apps
