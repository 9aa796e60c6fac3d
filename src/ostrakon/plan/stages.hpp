// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/plan/purpose.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <vector>

namespace ostrakon::plan {

/// Neighbouring units of a model: those of a stage of a pipeline.
struct UnitRange {
  int first = 0;
  int end = 0;
};

/// Shares the units out to `stages` stages, neighbours to the same one, so that the stage with the
/// most floating-point operations has as few as can be. Throws Error where there are more stages
/// than units.
std::vector<UnitRange> divide_units(const ModelDescription& model, int stages);

/// The units of a stage as a model of their own, with what comes from and goes to other stages.
ModelDescription model_of_stage(const ModelDescription& model, UnitRange units);

/// `policy` for one stage: of what it says of units by name, that which concerns units of the
/// stage.
Policy policy_of_stage(const Policy& policy, const ModelDescription& stage);

/// Writes the plans of one step in which each stage of a pipeline, of `ranks_of_stage` ranks, has
/// some of the model's units: one plan for each stage, which all of its ranks run. They run one
/// forward, one backward. Units, flat parameters and buffers of a plan are those of its stage. What
/// a stage sends to a neighbour is in flight while the stage computes for other micro-batches.
///
/// `stages` must name each unit once, in order. Throws Error where that does not hold, where a
/// unit is tied to one of another stage, for what build_step_plan throws it, and for decoding,
/// which is one rank's. To be proven together: see prove_stages.
std::vector<StepPlan> build_stage_plans(const ModelDescription& model,
                                        const std::vector<UnitRange>& stages, int ranks_of_stage,
                                        const Policy& policy, Purpose purpose);

}  // namespace ostrakon::plan
