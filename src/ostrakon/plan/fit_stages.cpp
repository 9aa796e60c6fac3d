// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/fit_stages.hpp>

#include <algorithm>
#include <ostrakon/base/threads.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/plan/traffic.hpp>

namespace ostrakon::plan {
namespace {

std::int64_t most_of(const std::vector<std::int64_t>& bytes) {
  return *std::max_element(bytes.begin(), bytes.end());
}

}  // namespace

std::vector<const StepPlan*> pointers_to(const std::vector<StepPlan>& plans) {
  std::vector<const StepPlan*> pointers;
  for (const StepPlan& plan : plans) pointers.push_back(&plan);
  return pointers;
}

CandidateStages::CandidateStages(const Candidate& candidate, int ranks, int threads)
    : candidate_(candidate), ranks_of_stage_(ranks / candidate.policy.stages), threads_(threads) {
  if (candidate.policy.stages > 1) {
    training_ = plan_training(*candidate.model, ranks_of_stage_, candidate.policy, threads_);
    return;
  }
  training_.plans = build(Purpose::train);
  training_.arenas = {-1};
}

std::vector<StepPlan> CandidateStages::build(Purpose purpose) const {
  const ModelDescription& model = *candidate_.model;
  if (candidate_.policy.stages > 1)
    return build_stage_plans(model, training_.chunks, ranks_of_stage_, candidate_.policy, purpose,
                             threads_);
  std::vector<StepPlan> plans;
  plans.push_back(build_step_plan(model, ranks_of_stage_, candidate_.policy, purpose));
  return plans;
}

std::vector<const StepPlan*> CandidateStages::plans() const { return pointers_to(training_.plans); }

std::int64_t CandidateStages::most_alive(Space space) const {
  std::int64_t most = 0;
  for (const StepPlan& plan : training_.plans) most = std::max(most, peak_live_bytes(plan, space));
  return most;
}

CandidateStages::Arenas CandidateStages::lay_out(const std::vector<StepPlan>& plans,
                                                 const std::vector<std::int64_t>& known) const {
  Arenas arenas;
  arenas.device = known;
  arenas.device.resize(plans.size(), -1);
  arenas.host.resize(plans.size());
  in_threads(threads_, static_cast<std::int64_t>(plans.size()), [&](int, std::int64_t i) {
    const auto s = static_cast<std::size_t>(i);
    if (arenas.device[s] < 0) arenas.device[s] = plan_memory(plans[s]).arena_bytes;
    arenas.host[s] = plan_memory(plans[s], Space::host).arena_bytes;
  });
  return arenas;
}

Fit CandidateStages::count(int ranks_per_node, const std::vector<Timing>& timings) const {
  Fit fit;
  std::size_t largest = 0;  // stage, in training
  const Arenas training = lay_out(training_.plans, training_.arenas);
  for (std::size_t s = 0; s < training_.plans.size(); ++s) {
    if (training.device[s] > fit.arena_bytes) largest = s;
    fit.arena_bytes = std::max(fit.arena_bytes, training.device[s]);
  }
  fit.host_arena_bytes = most_of(training.host);
  for (Purpose purpose : {Purpose::evaluate, Purpose::export_parameters}) {
    const Arenas arenas = lay_out(build(purpose), {});
    fit.arena_bytes = std::max(fit.arena_bytes, most_of(arenas.device));
    fit.host_arena_bytes = std::max(fit.host_arena_bytes, most_of(arenas.host));
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
