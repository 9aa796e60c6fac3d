// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/plan/fit.hpp>
#include <ostrakon/simulate/machine.hpp>

namespace ostrakon::apps {

/// The request of `ostrakon-plan --fit`.
struct FitRequest {
  plan::Room room;
  int ranks = 1;
  int ranks_per_node = 1;
  bool any_precision = false;
  plan::Rates rates;                         ///< without a machine
  std::optional<simulate::Machine> machine;  ///< whose steps are simulated
};

/// Those that divide a batch, and share units: of all ranks, where there are no stages.
inline int ranks_of_stage(const config::Settings& settings, const FitRequest& request) {
  return std::max(1, request.ranks / static_cast<int>(settings.pipeline));
}

}  // namespace ostrakon::apps
