// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/settings.hpp>
#include <ostrakon/simulate/machine_costs.hpp>

namespace ostrakon::train {

/// Fills in the settings that depend on the ranks of the run. Throws Error where the settings do
/// not fit that number of ranks.
void resolve_for_ranks(config::Settings& settings, int ranks, int ranks_per_node);

/// How ranks run their streams on a machine, as runtime.streams says.
simulate::Streams streams_of(const config::Settings& settings, const simulate::Machine& machine,
                             int ranks_per_node);

}  // namespace ostrakon::train
