// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/fit.hpp>
#include <ostrakon/plan/purpose.hpp>
#include <ostrakon/plan/space.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/plan/timing.hpp>
#include <vector>

namespace ostrakon::plan {

/// Returns the plans in the form that simulations of stages take.
std::vector<const StepPlan*> pointers_to(const std::vector<StepPlan>& plans);

/// The plans of a candidate: those of all stages, of which there may be one.
class CandidateStages {
 public:
  /// Plans a training step on `ranks` ranks in all. Throws Error where that can't be. Keeps a
  /// reference. `threads`: on which stages are planned.
  CandidateStages(const Candidate& candidate, int ranks, int threads = 1);

  /// Plans of the training step, one for each stage.
  std::vector<const StepPlan*> plans() const;

  /// Peak live bytes of a stage's step: a lower bound of the arena.
  std::int64_t most_alive(Space space) const;

  /// All figures, of all plans of a run; `timings` are those of the training step.
  Fit count(int ranks_per_node, const std::vector<Timing>& timings) const;

 private:
  struct Arenas {
    std::vector<std::int64_t> device, host;
  };

  std::vector<StepPlan> build(Purpose purpose) const;
  /// `known`: those on the device; -1, or none: not known.
  Arenas lay_out(const std::vector<StepPlan>& plans, const std::vector<std::int64_t>& known) const;

  const Candidate& candidate_;
  const int ranks_of_stage_, threads_;
  TrainingStages training_;
};

}  // namespace ostrakon::plan
