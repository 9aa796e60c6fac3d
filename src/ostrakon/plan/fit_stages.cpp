// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/fit_stages.hpp>

#include <algorithm>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/plan/traffic.hpp>

namespace ostrakon::plan {
CandidateStages::CandidateStages(const Candidate& candidate, int ranks)
    : candidate_(candidate), ranks_of_stage_(ranks / candidate.policy.stages) {
  if (candidate.policy.stages > 1) {
    training_ = plan_training(*candidate.model, ranks_of_stage_, candidate.policy);
    return;
  }
  training_.plans = build(Purpose::train);
  training_.arenas = {-1};
}

std::vector<StepPlan> CandidateStages::build(Purpose purpose) const {
  const ModelDescription& model = *candidate_.model;
  if (candidate_.policy.stages > 1)
    return build_stage_plans(model, training_.chunks, ranks_of_stage_, candidate_.policy, purpose);
  std::vector<StepPlan> plans;
  plans.push_back(build_step_plan(model, ranks_of_stage_, candidate_.policy, purpose));
  return plans;
}

std::vector<const StepPlan*> CandidateStages::plans() const {
  std::vector<const StepPlan*> plans;
  for (const StepPlan& plan : training_.plans) plans.push_back(&plan);
  return plans;
}

std::int64_t CandidateStages::most_alive(Space space) const {
  std::int64_t most = 0;
  for (const StepPlan& plan : training_.plans) most = std::max(most, peak_live_bytes(plan, space));
  return most;
}

Fit CandidateStages::count(int ranks_per_node, const std::vector<Timing>& timings) const {
  Fit fit;
  std::size_t largest = 0;  // stage, in training
  for (std::size_t s = 0; s < training_.plans.size(); ++s) {
    const StepPlan& plan = training_.plans[s];
    const std::int64_t known = training_.arenas[s];
    const std::int64_t arena = known >= 0 ? known : plan_memory(plan).arena_bytes;
    if (arena > fit.arena_bytes) largest = s;
    fit.arena_bytes = std::max(fit.arena_bytes, arena);
    fit.host_arena_bytes =
        std::max(fit.host_arena_bytes, plan_memory(plan, Space::host).arena_bytes);
  }
  for (Purpose purpose : {Purpose::evaluate, Purpose::export_parameters})
    for (const StepPlan& plan : build(purpose)) {
      fit.arena_bytes = std::max(fit.arena_bytes, plan_memory(plan).arena_bytes);
      fit.host_arena_bytes =
          std::max(fit.host_arena_bytes, plan_memory(plan, Space::host).arena_bytes);
    }
  const StepPlan& shown = training_.plans[largest];
  const Links links(shown, ranks_per_node);
  fit.flops = shown.flops();
  for (const Action& action : shown.actions) {
    fit.bytes_inside_nodes += links.bytes_inside_nodes(action);
    fit.bytes_across_nodes += links.bytes_across_nodes(action);
  }
  fit.bytes_copied =
      copied_bytes(shown, Kind::copy_to_device) + copied_bytes(shown, Kind::copy_to_host);
  fit.bytes_on_host = bytes_on_host(shown);
  fit.seconds = timings[largest].seconds;
  fit.exposed_communication = timings[largest].exposed_communication;
  fit.bits_of_one_rank = shown.has_the_bits_of_one_rank();
  return fit;
}

}  // namespace ostrakon::plan
