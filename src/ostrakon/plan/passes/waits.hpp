// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/step_plan.hpp>

namespace ostrakon::plan {

/// Writes the waits of all actions, so that streams may run at the same time and every action still
/// reads what it would read in plan order. An action waits for
/// - actions that write the buffers it reads, and, before it writes, those that read or wrote them;
/// - the compute action before it in the plan, if a buffer begins with it on another stream: the
/// buffer's bytes may have been in use until then.
void find_waits(StepPlan& plan);

}  // namespace ostrakon::plan
