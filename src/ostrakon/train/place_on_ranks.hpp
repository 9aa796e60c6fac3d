// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/settings.hpp>

namespace ostrakon::train {

/// Fills in what training takes from the ranks that it is started on. Throws Error where these
/// settings do not fit that number of ranks.
void place_on_ranks(config::Settings& settings, int ranks, int ranks_per_node);

}  // namespace ostrakon::train
