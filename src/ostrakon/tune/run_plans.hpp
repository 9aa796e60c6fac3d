// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/ir/kinds.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/tune/search.hpp>
#include <vector>

namespace ostrakon::tune {

/// Returns the plans in the form that simulations of stages take.
std::vector<const plan::StepPlan*> pointers_to(const std::vector<plan::StepPlan>& plans);

bool have_the_bits_of_one_rank(const std::vector<plan::StepPlan>& plans);

/// What the plans of a run have in common, known before a step is planned.
struct RunState {
  Memory memory;                  ///< that a rank needs at least, of some stage
  bool bits_of_one_rank = false;  ///< whether sums may be bitwise equal to 1 rank
};

/// Returns what all plans of a run share. `ranks`: of all stages. Throws Error where no plan can
/// exist; that it does not throw does not mean that there is one.
RunState find_state(const plan::ModelDescription& model, const plan::Policy& policy, int ranks);

/// All plans of a run: those of a training step first, of all stages, of which there may be one.
class RunPlans {
 public:
  /// Plans a training step on `ranks` ranks in all. Throws Error where that can't be. Keeps a
  /// reference to the model. `audits`: whether some steps are audited. `threads`: on which stages
  /// are planned.
  RunPlans(const plan::ModelDescription& model, plan::Policy policy, int ranks, bool audits,
           int threads);

  /// Plans of the training step, one for each stage.
  const std::vector<plan::StepPlan>& training() const { return training_.plans; }

  /// The largest arenas of any stage: of training, validation, writing weights and audited steps.
  /// Throws Error where steps can't be audited.
  Memory arenas() const;

 private:
  std::vector<plan::StepPlan> build(plan::Purpose purpose) const;
  /// `known`: those on the device; -1: not known.
  Memory lay_out(const std::vector<plan::StepPlan>& plans, std::vector<std::int64_t> known) const;

  const plan::ModelDescription& model_;
  const plan::Policy policy_;
  const int ranks_of_stage_;
  const bool audits_;
  const int threads_;
  plan::TrainingStages training_;
};

/// What a step of `micro_batches` on each rank needs more than that of `plan`, which has fewer: the
/// sums of gradients over earlier micro-batches that wait for the last ones. A tree over more of
/// them has more levels.
Memory more_partial_sums(const plan::StepPlan& plan, std::int64_t micro_batches);

}  // namespace ostrakon::tune
