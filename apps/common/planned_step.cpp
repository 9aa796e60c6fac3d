// SPDX-License-Identifier: Apache-2.0
#include "planned_step.hpp"

#include <algorithm>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/trainer/resolve.hpp>

namespace ostrakon::apps {
namespace {

std::int64_t largest_arena(const std::vector<plan::StepPlan>& stages) {
  std::int64_t most = 0;
  for (const plan::StepPlan& stage : stages)
    most = std::max(most, plan::plan_memory(stage).arena_bytes);
  return most;
}

/// The model as a stack computes it. `own`: as Ostrakon does.
plan::ModelDescription computed_model(const simulate::Stack& stack, config::Settings settings,
                                      const plan::ModelDescription& own,
                                      const plan::Policy& policy) {
  math::ProductDType& products = settings.precision.products.dtype;
  if (stack.rounding_traffic == 1.0 || products == math::ProductDType::as_stored)
    return simulate::computed_by(stack, own, policy);
  products = math::ProductDType::as_stored;
  const auto as_stored = train::make_decoder(settings);
  return simulate::computed_by(
      stack, simulate::rounded_by(stack, own, train::describe(*as_stored, settings.optimizer)),
      policy);
}

}  // namespace

DeckPlans::DeckPlans(const config::Settings& settings, int ranks, int ranks_per_node,
                     simulate::Stack stack)
    : stack_(std::move(stack)),
      policy_(train::resolve(settings, ranks, ranks_per_node)),
      ranks_of_stage_(ranks / policy_.stages),
      model_(train::make_decoder(settings)),
      own_description_(train::describe(*model_, settings.optimizer)),
      description_(computed_model(stack_, settings, own_description_, policy_)),
      chunks_(plan::find_chunks(description_, ranks_of_stage_, policy_)),
      tokens_(static_cast<double>(settings.training.global_batch_size *
                                  settings.training.sequence_length)),
      flops_(plan::model_flops(own_description_) * static_cast<double>(settings.leaves()) *
             static_cast<double>(settings.tensor)) {
  policy_ = simulate::planned_by(stack_, policy_, description_);
}

std::vector<plan::StepPlan> DeckPlans::of(plan::Purpose purpose) const {
  std::vector<plan::StepPlan> stages =
      plan::build_stage_plans(description_, chunks_, ranks_of_stage_, policy_, purpose);
  for (plan::StepPlan& stage : stages) simulate::order_as(stack_, stage);
  return stages;
}

std::vector<const plan::StepPlan*> PlannedStep::plans() const {
  std::vector<const plan::StepPlan*> all;
  for (const plan::StepPlan& stage : stages) all.push_back(&stage);
  return all;
}

simulate::Prediction PlannedStep::on(const simulate::Machine& machine) const {
  return simulate::predict(plans(), machine, ranks_per_node,
                           train::streams_of(settings, machine, ranks_per_node), model_flops,
                           arena_bytes);
}

double PlannedStep::audited_seconds(const simulate::Machine& machine) const {
  std::vector<const plan::StepPlan*> all;
  for (const plan::StepPlan& stage : audited) all.push_back(&stage);
  return simulate::predict(all, machine, ranks_per_node,
                           train::streams_of(settings, machine, ranks_per_node), model_flops,
                           arena_bytes)
      .step_seconds;
}

PlannedStep plan_step(config::Settings settings, int ranks, int ranks_per_node,
                      const simulate::Stack& stack) {
  const DeckPlans plans(settings, ranks, ranks_per_node, stack);
  PlannedStep step;
  step.stages = plans.of(plan::Purpose::train);
  step.arena_bytes = largest_arena(
      is_ostrakon(stack) ? step.stages
                         : DeckPlans(settings, ranks, ranks_per_node).of(plan::Purpose::train));
  if (settings.runtime.audit > 0) {
    step.audited = plans.of(plan::Purpose::audit);
    step.arena_bytes = std::max(step.arena_bytes, largest_arena(step.audited));
  }
  step.settings = std::move(settings);
  step.stack = stack;
  step.ranks = ranks;
  step.ranks_per_node = ranks_per_node;
  step.tokens = plans.tokens();
  step.model_flops = plans.flops();
  return step;
}

}  // namespace ostrakon::apps
