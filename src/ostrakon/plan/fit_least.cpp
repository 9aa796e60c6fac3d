// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/fit_least.hpp>

#include <algorithm>
#include <ostrakon/plan/levels.hpp>
#include <ostrakon/plan/sum_order.hpp>
#include <ostrakon/plan/traffic.hpp>

namespace ostrakon::plan {

void StateOfCandidate::plan_for(const Candidate& candidate, int ranks) {
  const Policy& policy = candidate.policy;
  const Key key = {candidate.model,
                   ranks,
                   policy.sharding,
                   policy.shard_group,
                   policy.shard_optimizer_over,
                   accumulation_of(policy, one_level(ranks, policy)),
                   policy.reduce,
                   policy.offload,
                   policy.moments.count,
                   policy.moments.dtype,
                   policy.checkpoint_staging,
                   policy.leaves,
                   policy.sum_grain,
                   policy.summation,
                   make_grid(*candidate.model, ranks, policy).node};
  if (!plan_.actions.empty() && key_ == key) return;
  plan_.actions.clear();
  plan_ = plan_of_state(*candidate.model, ranks, policy);
  key_ = key;
  memory_ = plan_memory(plan_);
  host_memory_ = plan_memory(plan_, Space::host);
}

Least LeastFinder::of(const Candidate& candidate) {
  const int stages = candidate.policy.stages;
  state_.plan_for(candidate, ranks_ / stages);
  const Bounds bounds(*candidate.model, candidate.policy, state_.plan());
  Least least = stages > 1 ? of_pipeline(candidate, bounds) : of_stage(bounds);
  // What is computed or sent may be added, and so rounded, in another order in a plan.
  least.seconds *= 1.0 - 1e-9;
  least.bits_of_one_rank = state_.plan().has_the_bits_of_one_rank();
  return least;
}

Least LeastFinder::of_stage(const Bounds& bounds) const {
  Least least;
  least.device_bytes = least_arena_bytes(bounds, state_.memory());
  least.host_bytes = state_.host_memory().arena_bytes;
  const Totals totals = totals_of(bounds);
  least.seconds =
      std::max(seconds(totals), totals.flops / rates_.flops + bounds.waiting_seconds(rates_));
  return least;
}

/// Some stage has at least as much of everything as they have on average.
Least LeastFinder::of_pipeline(const Candidate& candidate, const Bounds& bounds) {
  const int stages = candidate.policy.stages, ranks = ranks_ / stages;
  Totals totals = totals_of(bounds);
  // Where stages lie otherwise on nodes than the first, they may send less across them.
  if (ranks_per_node_ > 0 && ranks % ranks_per_node_ != 0 && ranks_per_node_ % ranks != 0) {
    totals.bytes_inside_nodes += totals.bytes_across_nodes;
    totals.bytes_across_nodes = 0;
  }
  // The host updates when all stages have computed.
  const double updates = candidate.policy.early_updates
                             ? 0.0
                             : static_cast<double>(totals.bytes_on_host) / rates_.bytes_on_host;
  totals.bytes_copied += bounds.copied_sum_bytes();
  totals.bytes_on_host += bounds.summed_bytes_on_host();
  const PipelineBounds& pipeline = pipelines_.of(candidate, state_.plan().grid.micro_batches());
  Least least;
  least.device_bytes = pipeline.bytes(bounds);
  least.host_bytes = state_.host_memory().persistent_bytes / stages;
  least.seconds = std::max(pipeline.seconds() + updates / stages, seconds(totals) / stages);
  return least;
}

LeastFinder::Totals LeastFinder::totals_of(const Bounds& bounds) const {
  Totals totals;
  totals.flops = bounds.flops();
  totals.bytes_copied = bounds.copied_bytes();
  totals.bytes_on_host = bounds.bytes_on_host();
  const StepPlan collectives = bounds.collectives();
  const Links links(collectives, ranks_per_node_);
  for (const Action& action : collectives.actions) {
    totals.bytes_across_nodes += links.bytes_across_nodes(action);
    totals.bytes_inside_nodes += links.bytes_inside_nodes(action);
  }
  return totals;
}

/// The time that it takes if all of it overlaps.
double LeastFinder::seconds(const Totals& totals) const {
  const auto across = static_cast<double>(totals.bytes_across_nodes);
  // More may go across nodes in a step, and less inside of them.
  const double sent = across + static_cast<double>(totals.bytes_inside_nodes);
  return std::max({totals.flops / rates_.flops, across / rates_.bytes_across_nodes,
                   sent / (rates_.bytes_inside_nodes + rates_.bytes_across_nodes),
                   // Both ways at the same time.
                   static_cast<double>(totals.bytes_copied) / (2.0 * rates_.bytes_copied),
                   static_cast<double>(totals.bytes_on_host) / rates_.bytes_on_host});
}

}  // namespace ostrakon::plan
