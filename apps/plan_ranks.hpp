// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/settings.hpp>
#include <ostrakon/plan/description.hpp>

namespace ostrakon::apps {

/// Fills in what training takes from the ranks that it is started on. Throws Error where these
/// settings do not fit that number of ranks.
void place_on_ranks(config::Settings& settings, int ranks, int ranks_per_node);

/// What a step of `settings` on `ranks` ranks makes of `seconds`, at `flops` of a rank.
struct Throughput {
  double tokens_per_second = 0.0;  ///< of all ranks
  double mfu = 0.0;                ///< of plan::model_flops
};
Throughput throughput(const config::Settings& settings, const plan::ModelDescription& model,
                      int ranks, double seconds, double flops);

}  // namespace ostrakon::apps
