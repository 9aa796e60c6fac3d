// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/report.hpp>
#include <ostrakon/plan/step_plan.hpp>

namespace ostrakon::plan {

/// Writes the whole plan as JSON: the report, every buffer with its offset in the arena of its
/// space, every action with the buffers that it uses and the indices of the actions that it waits
/// for. One buffer or action per line; field names are stable within a `format`.
void write_report_json(std::ostream& out, const StepPlan& plan, const MemoryPlan& memory,
                       const MemoryPlan& host_memory, const Report& report);

}  // namespace ostrakon::plan
