// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/tune/run_plans.hpp>

#include <algorithm>
#include <ostrakon/base/threads.hpp>
#include <ostrakon/plan/ir/reduction_tree.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/passes/gradients.hpp>
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

RunPlans::RunPlans(const plan::ModelDescription& model, plan::Policy policy, int ranks, bool audits,
                   int threads)
    : model_(model),
      policy_(std::move(policy)),
      ranks_of_stage_(ranks / policy_.stages),
      audits_(audits),
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
  std::vector<Purpose> others = {Purpose::evaluate, Purpose::export_parameters};
  if (audits_) others.push_back(Purpose::audit);
  for (const Purpose purpose : others) {
    const Memory other = lay_out(build(purpose), {});
    most = {std::max(most.device, other.device), std::max(most.host, other.host)};
  }
  return most;
}

namespace {

using plan::Axis;

/// How many sums of each unit wait for the last of so many micro-batches.
std::int64_t sums_before_last(const plan::StepPlan& plan, std::int64_t micro_batches) {
  std::vector<plan::Span> spans = plan.sum_spans();
  for (plan::Span& span : spans)
    if (span.axis == Axis::micro_batch) span.ranks = static_cast<int>(micro_batches);
  std::int64_t tree = 0;
  for (const plan::SpanSum& sum : plan::span_sums(spans, plan.layouts.sum_grain,
                                                  plan.leaves_apart(), plan.layouts.summation)) {
    if (sum.continues) return 1;
    if (sum.span.axis == Axis::micro_batch) tree = sum.tree;
  }
  std::int64_t count = 0;
  for (plan::TreeNode node{micro_batches - 1, 1}; node.leaves < micro_batches;) {
    const auto [parent, sibling] = plan::parent_and_sibling(node, micro_batches, tree);
    if (sibling.begin < micro_batches - 1) ++count;
    node = parent;
  }
  return count;
}

/// The last action that computes backward for the last unit: about where most is live.
int last_loss(const plan::StepPlan& plan) {
  int last = 0;
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
    const plan::Action& action = plan.actions[a];
    if (action.kind == plan::Kind::backward &&
        action.unit + 1 == static_cast<int>(plan.units.size()))
      last = a;
  }
  return last;
}

}  // namespace

Memory more_partial_sums(const plan::StepPlan& plan, std::int64_t micro_batches) {
  const std::int64_t fewer = plan.grid.micro_batches();
  if (fewer < 2 || fewer >= micro_batches) return {};
  const std::int64_t before = sums_before_last(plan, fewer);
  const std::int64_t more = sums_before_last(plan, micro_batches) - before;
  const int at = last_loss(plan);
  const auto added = [&](plan::Space space) {
    return gradients_alive(plan, space, at).partial_sums / before * more;
  };
  return {added(plan::Space::device), added(plan::Space::host)};
}

}  // namespace ostrakon::tune
