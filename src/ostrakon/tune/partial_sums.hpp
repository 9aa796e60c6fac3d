// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/tune/search.hpp>

namespace ostrakon::tune {

/// What a step of `micro_batches` on each rank needs more than that of `plan`, which has fewer: the
/// sums of gradients over earlier micro-batches that wait for the last ones. A tree over more of
/// them has more levels.
Memory more_partial_sums(const plan::StepPlan& plan, std::int64_t micro_batches);

}  // namespace ostrakon::tune
