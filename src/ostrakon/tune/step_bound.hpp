// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/plan/timing/timing.hpp>

namespace ostrakon::tune {

/// A lower bound of a step's time, from what ranks compute and what units in parts (experts, tensor
/// pieces) wait for: with the bubble, that is, what stages wait for each other. Deferred phases are
/// computed where there would be time for them. Stages have the units that plan::make_chunks gives
/// them; where units move to save memory, a step may be shorter by less than a hundredth. Throws
/// Error as make_chunks, and where the micro-batches do not fit the schedule.
double least_step_seconds(const plan::ModelDescription& model, const plan::Policy& policy,
                          int micro_batches, const plan::Rates& rates);

}  // namespace ostrakon::tune
