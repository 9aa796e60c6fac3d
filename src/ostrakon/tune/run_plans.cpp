// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/tune/run_plans.hpp>

#include <algorithm>
#include <ostrakon/base/threads.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <utility>

namespace ostrakon::tune {

using plan::Purpose;
using plan::StepPlan;

std::vector<const StepPlan*> pointers_to(const std::vector<StepPlan>& plans) {
  std::vector<const StepPlan*> pointers;
  for (const StepPlan& plan : plans) pointers.push_back(&plan);
  return pointers;
}

bool have_the_bits_of_one_rank(const std::vector<StepPlan>& plans) {
  return std::all_of(plans.begin(), plans.end(),
                     [](const StepPlan& plan) { return plan.has_the_bits_of_one_rank(); });
}

RunState find_state(const plan::ModelDescription& model, const plan::Policy& policy, int ranks) {
  // Its persistent buffers are those of all plans of a run, and it takes little time to make.
  const StepPlan plan =
      build_step_plan(model, ranks / policy.stages, policy, Purpose::export_parameters);
  const auto least = [&](const plan::MemoryPlan& memory) {
    // Some stage has at least as much as all have on average.
    return policy.stages > 1 ? memory.persistent_bytes / policy.stages : memory.arena_bytes;
  };
  return {{least(plan_memory(plan)), least(plan_memory(plan, plan::Space::host))},
          plan.has_the_bits_of_one_rank()};
}

RunPlans::RunPlans(const plan::ModelDescription& model, plan::Policy policy, int ranks, int threads)
    : model_(model),
      policy_(std::move(policy)),
      ranks_of_stage_(ranks / policy_.stages),
      threads_(threads) {
  if (policy_.stages > 1)
    training_ = plan_training(model_, ranks_of_stage_, policy_, threads_);
  else
    training_.plans = build(Purpose::train);
  training_.arenas.resize(training_.plans.size(), -1);
}

std::vector<StepPlan> RunPlans::build(Purpose purpose) const {
  if (policy_.stages > 1)
    return build_stage_plans(model_, training_.chunks, ranks_of_stage_, policy_, purpose, threads_);
  std::vector<StepPlan> plans;
  plans.push_back(build_step_plan(model_, ranks_of_stage_, policy_, purpose));
  return plans;
}

Memory RunPlans::lay_out(const std::vector<StepPlan>& plans,
                         std::vector<std::int64_t> known) const {
  std::vector<std::int64_t> host(plans.size());
  known.resize(plans.size(), -1);
  in_threads(threads_, static_cast<std::int64_t>(plans.size()), [&](int, std::int64_t i) {
    const auto s = static_cast<std::size_t>(i);
    if (known[s] < 0) known[s] = plan_memory(plans[s]).arena_bytes;
    host[s] = plan_memory(plans[s], plan::Space::host).arena_bytes;
  });
  return {*std::max_element(known.begin(), known.end()),
          *std::max_element(host.begin(), host.end())};
}

Memory RunPlans::arenas() const {
  Memory most = lay_out(training_.plans, training_.arenas);
  for (const Purpose purpose : {Purpose::evaluate, Purpose::export_parameters}) {
    const Memory other = lay_out(build(purpose), {});
    most = {std::max(most.device, other.device), std::max(most.host, other.host)};
  }
  return most;
}

}  // namespace ostrakon::tune
