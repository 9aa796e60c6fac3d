// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/plan/timing/timing.hpp>
#include <vector>

namespace ostrakon::plan {

/// Plans of all stages of a pipeline, or the one plan, with the times of their actions.
struct TimedStages {
  std::vector<const StepPlan*> plans;
  std::vector<Timing> timings;  ///< one for each plan
};

/// Appends to an object of JSON that has members: "timelines", for each stage when its actions run
/// and when its buffers in device memory are live, in seconds from the begin of the step. What
/// takes no time is left out. One action or buffer on a line.
void write_timelines(std::ostream& out, const TimedStages& timed);

}  // namespace ostrakon::plan
