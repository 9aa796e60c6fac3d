// SPDX-License-Identifier: Apache-2.0
#include "stage_plans.hpp"

#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/trainer/resolve.hpp>

namespace ostrakon::apps {

DeckPlans::DeckPlans(const config::Settings& settings, int ranks, int ranks_per_node)
    : policy_(train::resolve(settings, ranks, ranks_per_node)),
      ranks_of_stage_(ranks / policy_.stages),
      model_(train::describe(*train::make_decoder(settings), settings.optimizer)),
      chunks_(plan::find_chunks(model_, ranks_of_stage_, policy_)) {}

std::vector<plan::StepPlan> DeckPlans::of(plan::Purpose purpose) const {
  return plan::build_stage_plans(model_, chunks_, ranks_of_stage_, policy_, purpose);
}

}  // namespace ostrakon::apps
