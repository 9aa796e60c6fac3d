// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/plan/purpose.hpp>
#include <ostrakon/plan/stages.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <vector>

namespace ostrakon::plan {

/// Floating-point operations of some units' forward and backward, without what is recomputed.
double flops_of(const ModelDescription& model, const UnitRange& units);

/// The schedule with which the memory is planned that stages have.
ScheduleKind schedule_of_memory(const Policy& policy);

/// Whether find_chunks may move units from where make_chunks has them.
bool moves_units(const Policy& policy);
/// No chunk gets more than so many times the operations that the busiest has before, nor takes
/// computing so many times as long.
constexpr double no_longer = 1.001;

/// The chunks of all stages: make_chunks; where the policy names none, units are moved from stages
/// with the largest arena to others, as long as that makes the largest arena of a training step
/// smaller, on the device, and its computing no longer. Not with Policy::zero_bubble_memory
/// as_1f1b, which uses that memory. Plans the stages a few times; throws Error where
/// build_stage_plans does.
std::vector<UnitRange> find_chunks(const ModelDescription& model, int ranks_of_stage,
                                   const Policy& policy);

/// Writes the plans of one step in which each stage of a pipeline, of `ranks_of_stage` ranks, has
/// some of the model's units: one plan for each stage, which all of its ranks run. Units, flat
/// parameters and buffers of a plan are those of its stage. What a stage sends to another is in
/// flight while the stage computes for other micro-batches. Each stage has Policy::chunks of
/// `chunks`, which it computes in the order of Policy::schedule.
///
/// Every rank has the memory that the stage with the largest arena needs. In a training step of
/// several stages the others use it: with zero_bubble deferred phases wait as long as the schedule
/// says and there is room (Policy::zero_bubble_memory), and then as many units as there is room
/// for stay gathered from their first use in the step to their last, of those whose
/// Policy::reshard_after_forward is automatic. No arena on the device becomes larger
/// than the largest by that.
///
/// Throws Error where make_stages does, for what build_step_plan throws it, where the micro-batches
/// do not fit the schedule, and for decoding, which is one rank's. To be proven together: see
/// prove_stages. `threads`: on which stages are planned.
std::vector<StepPlan> build_stage_plans(const ModelDescription& model,
                                        const std::vector<UnitRange>& chunks, int ranks_of_stage,
                                        const Policy& policy, Purpose purpose, int threads = 1);

/// Training steps of make_chunks, in which no stage uses memory that another one needs: nothing
/// more stays gathered, and zero_bubble defers all that it says. In much less time than
/// build_stage_plans, for estimates.
std::vector<StepPlan> build_plain_stages(const ModelDescription& model, int ranks_of_stage,
                                         const Policy& policy);

/// The chunks of find_chunks, and the training steps of build_stage_plans with them.
struct TrainingStages {
  std::vector<UnitRange> chunks;
  std::vector<StepPlan> plans;       ///< of each stage
  std::vector<std::int64_t> arenas;  ///< of each plan, on the device; -1: not known
};

/// Both in less time, as what has been planned to find the chunks is not planned again.
TrainingStages plan_training(const ModelDescription& model, int ranks_of_stage,
                             const Policy& policy, int threads = 1);

}  // namespace ostrakon::plan
