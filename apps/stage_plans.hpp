// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/settings.hpp>
#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <vector>

namespace ostrakon::apps {

/// Writes the plans of a deck's steps, without ranks or arrays.
class DeckPlans {
 public:
  /// Throws Error if the deck does not fit these ranks, or can't be planned.
  DeckPlans(const config::Settings& settings, int ranks, int ranks_per_node);

  const plan::ModelDescription& model() const { return model_; }
  /// Returns a plan for each stage, without proving it. Throws Error.
  std::vector<plan::StepPlan> of(plan::Purpose purpose) const;

 private:
  plan::Policy policy_;
  int ranks_of_stage_;
  plan::ModelDescription model_;
  std::vector<plan::UnitRange> chunks_;
};

}  // namespace ostrakon::apps
