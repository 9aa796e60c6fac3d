// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/report/report.hpp>
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

/// The whole plan as JSON: the report, every buffer with its place in the arena of its space, every
/// action with the buffers that it uses and the actions that it waits for (as indices). One buffer
/// or action on a line; names of fields are stable within a `format`. `timed`: all stages, if the
/// times of their actions are to be written, too.
void write_report_json(std::ostream& out, const StepPlan& plan, const MemoryPlan& memory,
                       const MemoryPlan& host_memory, const Report& report,
                       const TimedStages& timed = {});

}  // namespace ostrakon::plan
