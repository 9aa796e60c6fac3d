// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/settings.hpp>
#include <ostrakon/plan/ir/description.hpp>

namespace ostrakon::apps {

/// The throughput of a step of `settings` on `ranks` ranks that takes `seconds`, with `flops` per
/// rank.
struct Throughput {
  double tokens_per_second = 0.0;  ///< of all ranks
  double mfu = 0.0;                ///< by plan::model_flops
};
Throughput throughput(const config::Settings& settings, const plan::ModelDescription& model,
                      int ranks, double seconds, double flops);

}  // namespace ostrakon::apps
