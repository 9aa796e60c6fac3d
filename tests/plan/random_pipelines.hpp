// SPDX-License-Identifier: Apache-2.0
#pragma once

// Plans of pipelines of all kinds.

#include "plan/random_plans.hpp"

namespace ostrakon::tests {

/// Divides forward and backward of some units into phases, with exchanges along the axes of
/// `ranks` ranks in shard groups of `group`.
inline void divide_into_phases(Random& random, ModelDescription& model, int ranks, int group) {
  const auto below = [&](std::int64_t count) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
  };
  const auto random_exchange = [&] {
    Exchange exchange;
    exchange.kind = static_cast<ExchangeKind>(below(3));
    exchange.span.axis = below(2) == 0 ? Axis::shard : Axis::replicate;
    const int size = exchange.span.axis == Axis::shard ? group : ranks / group;
    exchange.span.ranks = size;
    if (size % 2 == 0 && below(2) == 0) {
      exchange.span.ranks = size / 2;
      if (below(2) == 0) exchange.span.stride = 2;
    }
    exchange.elements = exchange.span.ranks * (1 + below(1000));
    exchange.element_bytes = model.element_bytes;
    return exchange;
  };
  for (UnitDescription& unit : model.units) {
    if (below(2) == 0) continue;
    for (Phases* phases : {&unit.forward, &unit.backward}) {
      for (std::int64_t more = below(3); more > 0; --more) {
        phases->back().then = random_exchange();
        phases->emplace_back();
        phases->back().reads = {static_cast<int>(phases->size()) - 2};
        phases->back().flops = static_cast<double>(below(1000));
        phases->back().workspace_bytes = 4 * below(3000);
      }
    }
  }
}

/// Lets some units defer the last phases of backward.
inline void defer_gradients(Random& random, ModelDescription& model) {
  const auto below = [&](std::int64_t count) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
  };
  for (UnitDescription& unit : model.units) {
    const bool has_loss = unit.name == model.units.back().name;
    // What is tied adds to gradients that the other unit opens, in the order of both backwards.
    if (has_loss || unit.tied_to >= 0 || below(3) == 0) continue;
    unit.deferral.phases = static_cast<int>(1 + below(2));
    unit.deferral.bytes = 4 * below(4000);
    unit.deferral.backward_at_once = unit.backward;
    for (int p = 0; p < unit.deferral.phases; ++p) {
      unit.backward.emplace_back();
      unit.backward.back().flops = static_cast<double>(below(1000));
      unit.backward.back().workspace_bytes = 4 * below(3000);
    }
  }
}

/// Has neighbours of a shard group compute with parts of some units, where there are enough.
inline void divide_into_parts(Random& random, ModelDescription& model, int group, Policy& policy) {
  std::vector<int> parts;
  for (int some = 2; some <= group; some *= 2)
    if (group % some == 0 && (policy.sum_grain == 0 || policy.sum_grain >= some))
      parts.push_back(some);
  if (parts.empty()) return;
  policy.expert_ranks = parts[random() % parts.size()];
  std::vector<bool> is_tied(model.units.size(), false);
  for (std::size_t u = 0; u < model.units.size(); ++u)
    if (model.units[u].tied_to >= 0)
      is_tied[u] = is_tied[static_cast<std::size_t>(model.units[u].tied_to)] = true;
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    UnitDescription& unit = model.units[u];
    const std::int64_t whole = 64 * policy.expert_ranks;
    if (is_tied[u] || random() % 2 == 0 || !unit.whole_matrices.empty()) continue;
    unit.expert_ranks = policy.expert_ranks;
    unit.frozen_elements = unit.frozen_elements / whole * whole;
    unit.parameter_elements = unit.frozen_elements + (unit.trained_elements() / whole + 1) * whole;
    for (Phases* phases : {&unit.forward, &unit.backward})
      for (Phase& phase : *phases)
        if (phase.then && random() % 2 == 0) {
          phase.then->kind = ExchangeKind::all_to_all;
          phase.then->span = {Axis::shard, unit.expert_ranks};
          phase.then->elements = unit.expert_ranks * static_cast<std::int64_t>(1 + random() % 1000);
        }
  }
}

struct RandomPipeline {
  std::vector<StepPlan> stages;
  std::string described;
};

struct PipelineSizes {
  int stages = 8;
  int ranks_of_stage = 4;
  int micro_batches = 16;
  int more_units = 5;   ///< than chunks
  int chunks = 3;       ///< of each stage
  bool defers = false;  ///< zero_bubble, of units of which most defer something
};

/// Up to `most` of everything, with everything in it that may be in a model and a policy.
inline RandomPipeline random_pipeline(Random& random, const PipelineSizes& most) {
  const auto upto = [&](int count) {
    return static_cast<int>(1 + random() % static_cast<std::uint64_t>(count));
  };
  for (;;) {
    const std::uint64_t seed = random();
    const int stages = most.defers ? 1 + upto(most.stages - 1) : upto(most.stages),
              chunks = stages == 1 ? 1 : upto(most.chunks);
    const int ranks = upto(most.ranks_of_stage);
    const int micro_batches = upto(most.micro_batches);
    // An embedding and a head are there in any case.
    const int blocks = std::max(stages * chunks - 2, 0) + upto(most.more_units) - 1;
    ModelDescription model = make_model(blocks, random() % 2 == 0, seed);
    const bool varies = random() % 4 != 0;
    if (varies) vary(random, model);
    for (UnitDescription& unit : model.units) unit.reads_batch = random() % 2 == 0;
    Policy policy = random_policy(random, model, ranks, std::int64_t{ranks} * micro_batches);
    if (varies) vary(random, model, policy);
    if (random() % 3 == 0) add_grain(random, ranks, policy);
    if (random() % 2 == 0) place_on_nodes(random, ranks, policy);
    divide_into_phases(random, model, ranks, policy.shard_group > 0 ? policy.shard_group : ranks);
    if (random() % 2 == 0)
      divide_into_parts(random, model, policy.shard_group > 0 ? policy.shard_group : ranks, policy);
    policy.chunks = chunks;
    if (chunks > 1) policy.schedule = ScheduleKind::interleaved;
    if (most.defers || (chunks == 1 && random() % 2 == 0))
      policy.schedule = ScheduleKind::zero_bubble;
    if (most.defers || random() % 2 == 0) defer_gradients(random, model);
    if (random() % 2 == 0) policy.zero_bubble_memory = ZeroBubbleMemory::unlimited;
    if (most.defers) policy.activation_checkpointing = {};
    if (policy.offload == Offload::none && random() % 2 == 0) policy.updates = Updates::optimistic;
    const auto drawn = random() % 8;
    const Purpose purpose = drawn == 0   ? Purpose::evaluate
                            : drawn == 1 ? Purpose::export_parameters
                                         : Purpose::train;
    try {
      return {
          build_stage_plans(model, divide_units(model, stages * chunks), ranks, policy, purpose),
          text("seed ", seed, ", ", name(policy.schedule), ", ", stages, " stages of ", chunks,
               " chunks, of ", ranks, " ranks in groups of ", policy.shard_group, " on nodes of ",
               policy.ranks_per_node, ", grain ", policy.sum_grain, ", ", micro_batches,
               " micro-batches, ", blocks + 2, " units, purpose ", name(purpose))};
    } catch (const Error&) {
      // A limit that is below what one action needs, or micro-batches that can't be interleaved.
    }
  }
}

}  // namespace ostrakon::tests
