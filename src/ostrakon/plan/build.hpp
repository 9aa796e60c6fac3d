// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <ostrakon/plan/ir/pipeline_schedule.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>

namespace ostrakon::plan {

/// Throws Error where no plan of the whole model can be written for this division over ranks.
void check_step(const ModelDescription& model, const Policy& policy, Purpose purpose,
                int ranks_of_stage);

/// Throws Error where a leaf can't be computed again before the update: with the parameters of the
/// step, by a rank that has all units.
void require_auditable(const ModelDescription& model, const Policy& policy);

/// Puts the passes together: the plan of a stage, whose units are those of `model`, with deferred
/// phases where `pipeline` has them, or earlier: see limit_deferred_bytes.
StepPlan build_plan(const ModelDescription& model, const Grid& grid, int stage,
                    const Pipeline& pipeline, const Policy& policy, Purpose purpose,
                    std::int64_t most_waiting = std::numeric_limits<std::int64_t>::max());

}  // namespace ostrakon::plan
