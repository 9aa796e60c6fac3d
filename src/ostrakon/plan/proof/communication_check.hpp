// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/step_plan.hpp>
#include <string>

namespace ostrakon::plan {

/// Returns what is wrong with a collective, a send or a receive as far as the plan of one rank
/// shows it, or "". A collective is over parts of an array: one buffer must hold a rank's part, the
/// other all parts of the span, and the action's elements be those of the latter. A message must be
/// its whole buffer.
std::string wrong_communication(const StepPlan& plan, const Action& action);

/// Returns "over 4 ranks along shard, of 4096 elements: " and the reason.
std::string of_collective(const Action& action, const std::string& reason);

}  // namespace ostrakon::plan
