// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/step_plan.hpp>
#include <vector>

namespace ostrakon::plan {

/// Returns when each action ends if it takes as long as `seconds` says and begins as soon as
/// streams and waits allow. The step begins at 0; its duration is the largest end.
std::vector<double> end_times(const StepPlan& plan, const std::vector<double>& seconds);

}  // namespace ostrakon::plan
