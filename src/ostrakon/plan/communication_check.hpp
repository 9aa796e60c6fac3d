// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/step_plan.hpp>
#include <string>

namespace ostrakon::plan {

/// What is wrong with a collective, a send or a receive as far as the plan of one rank shows it, or
/// nothing. A collective is over parts of an array, and buffers say what they are divided over: one
/// must be of a rank's part, the other of what has all parts of the span, and the elements be those
/// of the latter. A message is all of its buffer.
std::string wrong_communication(const StepPlan& plan, const Action& action);

/// "over 4 ranks along shard, of 4096 elements: ", and the reason.
std::string of_collective(const Action& action, const std::string& reason);

}  // namespace ostrakon::plan
