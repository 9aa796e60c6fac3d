// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/ir/kinds.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/plan/pipeline/stages.hpp>
#include <vector>

namespace ostrakon::plan {

/// Floating-point operations of the units' forward and backward, without recomputation.
double flops_of(const ModelDescription& model, const UnitRange& units);

/// The schedule that determines how much memory stages may use.
ScheduleKind schedule_of_memory(const Policy& policy);

/// Whether find_chunks may move units away from their place in make_chunks.
bool moves_units(const Policy& policy);
/// Bound for find_chunks: no chunk gets more operations than this factor times the busiest before,
/// nor does computing take longer than this factor times the time before.
constexpr double max_slowdown = 1.001;

/// Returns the chunks of all stages: make_chunks; if the policy names none, units are then moved
/// from stages with the largest arena to others, while that makes the largest device arena of a
/// training step smaller, and computing no longer. No units are moved with
/// Policy::zero_bubble_memory as_1f1b, which uses that memory. Plans the stages a few times; throws
/// Error where build_stage_plans does.
std::vector<UnitRange> find_chunks(const ModelDescription& model, int ranks_of_stage,
                                   const Policy& policy);

/// Writes the plans of one step in which each stage of a pipeline, of `ranks_of_stage` ranks, has
/// some of the model's units: one plan for each stage, which all of its ranks run. Units, flat
/// parameters and buffers of a plan are those of its stage. Messages to another stage are in flight
/// while the stage computes for other micro-batches. Each stage has Policy::chunks of `chunks`,
/// which it computes in the order of Policy::schedule. Every rank has the memory that the stage
/// with the largest arena needs. In a training step of several stages the others use it: with
/// zero_bubble, deferred phases wait as long as the schedule says and there is room
/// (Policy::zero_bubble_memory); then units whose Policy::reshard_after_forward is automatic stay
/// gathered from their first use in the step to their last, as many as there is room for. No device
/// arena becomes larger than the largest by that.
///
/// Throws Error where make_stages or build_step_plan does, where the micro-batches do not fit the
/// schedule, and for decoding, which runs on one rank. The plans are to be proven together: see
/// prove_stages. `threads`: how many threads plan the stages.
std::vector<StepPlan> build_stage_plans(const ModelDescription& model,
                                        const std::vector<UnitRange>& chunks, int ranks_of_stage,
                                        const Policy& policy, Purpose purpose, int threads = 1);

/// Returns the training steps of make_chunks, in which no stage uses memory that another one needs:
/// no more units stay gathered, and zero_bubble defers all that the schedule says. Takes much less
/// time than build_stage_plans; for estimates.
std::vector<StepPlan> build_plain_stages(const ModelDescription& model, int ranks_of_stage,
                                         const Policy& policy);

/// The chunks of find_chunks, and the training steps of build_stage_plans with them.
struct TrainingStages {
  std::vector<UnitRange> chunks;
  std::vector<StepPlan> plans;       ///< one per stage
  std::vector<std::int64_t> arenas;  ///< device arena of each plan; -1: not known
};

/// Returns both in less time: plans that find_chunks has made are not made again.
TrainingStages plan_training(const ModelDescription& model, int ranks_of_stage,
                             const Policy& policy, int threads = 1);

}  // namespace ostrakon::plan
