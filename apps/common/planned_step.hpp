// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <vector>

namespace ostrakon::apps {

/// Writes the plans of a deck's steps, without ranks or arrays.
class DeckPlans {
 public:
  /// `stack`: of another one than Ostrakon, plans are only to be simulated. Throws Error if the
  /// deck does not fit these ranks, or can't be planned.
  DeckPlans(const config::Settings& settings, int ranks, int ranks_per_node,
            simulate::Stack stack = {});

  const model::Model& model() const { return *model_; }
  /// Returns a plan for each stage, without proving it. Throws Error.
  std::vector<plan::StepPlan> of(plan::Purpose purpose) const;
  double tokens() const { return tokens_; }  ///< of a step on all ranks
  double flops() const { return flops_; }    ///< of a step on all ranks, that count for MFU

 private:
  simulate::Stack stack_;
  plan::Policy policy_;
  int ranks_of_stage_;
  std::unique_ptr<model::Model> model_;
  plan::ModelDescription own_description_;  ///< as Ostrakon computes it
  plan::ModelDescription description_;
  std::vector<plan::UnitRange> chunks_;
  double tokens_, flops_;
};

/// A deck's training step on some ranks, planned but not proven.
struct PlannedStep {
  config::Settings settings;
  simulate::Stack stack;
  int ranks = 1;
  int ranks_per_node = 1;
  std::vector<plan::StepPlan> stages;
  std::vector<plan::StepPlan> audited;  ///< an audited step; empty if none is
  double tokens = 0.0;                  ///< of a step on all ranks
  double model_flops = 0.0;             ///< the same, that count for MFU

  /// The largest arena of any stage in device memory, as Ostrakon plans the step.
  std::int64_t arena_bytes = 0;

  std::vector<const plan::StepPlan*> plans() const;
  /// `machine`: with the stack of this step.
  simulate::Prediction on(const simulate::Machine& machine) const;
  /// The seconds of an audited step, which there must be.
  double audited_seconds(const simulate::Machine& machine) const;
};

/// Throws Error where the deck does not fit these ranks.
PlannedStep plan_step(config::Settings settings, int ranks, int ranks_per_node,
                      const simulate::Stack& stack);

}  // namespace ostrakon::apps
