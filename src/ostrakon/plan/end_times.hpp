// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/step_plan.hpp>
#include <vector>

namespace ostrakon::plan {

/// When each action ends if it takes as long as `seconds` says and begins as soon as streams and
/// waits let it. The step begins at 0; the largest is how long it takes.
std::vector<double> end_times(const StepPlan& plan, const std::vector<double>& seconds);

}  // namespace ostrakon::plan
