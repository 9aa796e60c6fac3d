// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/step_plan.hpp>

namespace ostrakon::plan {

/// Writes the waits of all actions, so that streams may run at the same time and every action still
/// finds what it finds in program order. An action waits for
/// - those that write what it reads, and, before it writes, those that read or wrote that buffer;
/// - where a buffer begins with it on another stream than compute, the compute action before it in
///   the plan: the bytes that it takes may have been in use until then.
/// Only waits that do not follow from others are written down.
void find_waits(StepPlan& plan);

}  // namespace ostrakon::plan
