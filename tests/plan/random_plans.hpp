// SPDX-License-Identifier: Apache-2.0
#pragma once

// Models and policies of all kinds, to write plans with.

#include <ostrakon/base/text.hpp>
#include <ostrakon/plan/ir/levels.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <random>

#include "plan/checks.hpp"

namespace ostrakon::tests {

using Random = std::mt19937_64;

/// An embedding, `blocks` blocks and a head of made-up sizes.
inline ModelDescription make_model(int blocks, bool tied, std::uint64_t seed) {
  Random random(seed);
  const auto size = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)) + 1;
  };
  ModelDescription model;
  model.batch_bytes = 8 * size(300);
  model.gradient_bytes = 4 * size(5000);
  model.sums_bytes = 1088;
  for (int u = 0; u < blocks + 2; ++u) {
    UnitDescription unit;
    unit.name = u == 0 ? "embedding" : u == blocks + 1 ? "head" : "block." + std::to_string(u - 1);
    unit.parameter_elements = 64 * size(500);
    unit.output_bytes = u == blocks + 1 ? 4 * size(300) : model.gradient_bytes;
    unit.saved_bytes = u == 0 || u == blocks + 1 ? 0 : 4 * size(20000);
    unit.forward.front().workspace_bytes = 4 * size(8000);
    unit.backward.front().workspace_bytes = u == 0 ? 0 : 4 * size(9000);
    unit.forward.front().flops = static_cast<double>(size(1000));
    unit.backward.front().flops = static_cast<double>(size(2000));
    unit.backward_reads_parameters = u != 0;
    if (u == blocks + 1 && tied) unit.tied_to = 0;
    model.units.push_back(unit);
  }
  return model;
}

/// Ties units to others before them, here and there: also blocks, and units that are tied to one
/// that is tied itself.
inline void tie_units(Random& random, ModelDescription& model) {
  std::vector<bool> is_shared(model.units.size(), false);
  for (std::size_t u = 1; u < model.units.size(); ++u) {
    UnitDescription& unit = model.units[u];
    unit.tied_to = -1;
    const std::size_t other = random() % u;
    if (random() % 3 == 0 || is_shared[other]) continue;
    is_shared[other] = true;
    unit.tied_to = static_cast<int>(other);
    unit.tied_gradients = model.units[other].trained_elements() > 0 && random() % 4 > 0;
  }
}

/// Adds to a model, here and there, all else that may be in one: frozen parameters, matrices that
/// are updated as a whole, activations that can be recomputed, 16-bit dtypes.
inline void vary(Random& random, ModelDescription& model) {
  const auto below = [&](std::int64_t count) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
  };
  if (below(2) == 0) model.element_bytes = 2;
  const bool freezes = below(2) == 0, has_matrices = below(2) == 0;
  const auto never_frozen =
      static_cast<std::size_t>(below(static_cast<std::int64_t>(model.units.size())));
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    UnitDescription& unit = model.units[u];
    const std::int64_t blocks = unit.parameter_elements / 64;
    if (freezes && u != never_frozen && below(3) > 0)
      unit.frozen_elements = below(2) == 0 ? unit.parameter_elements : 64 * below(blocks);
    unit.recomputes = unit.saved_bytes > 0 && below(2) == 0;
    unit.forward.front().recompute_flops = unit.recomputes ? 0.5 * unit.forward.front().flops : 0.0;
    const std::int64_t trained = unit.parameter_elements - unit.frozen_elements;
    if (!has_matrices) continue;
    for (std::int64_t first = 64 * below(20); first < trained;) {
      const std::int64_t elements = std::min(1 + below(64 * 40), trained - first);
      unit.whole_matrices.push_back({first, elements, static_cast<double>(2 * elements)});
      first += (elements + 63) / 64 * 64 + 64 * below(20);
    }
    if (!unit.whole_matrices.empty()) unit.orthogonalize_workspace_bytes = 4 * (1 + below(3000));
  }
  const int tied_to = model.units.back().tied_to;
  if (tied_to < 0) return;
  const UnitDescription& table = model.units[static_cast<std::size_t>(tied_to)];
  model.units.back().tied_gradients =
      table.frozen_elements < table.parameter_elements && below(4) > 0;
}

/// The policy with number `choice` of all combinations of what changes sums, storage and order.
inline Policy make_policy(std::int64_t leaves, std::uint64_t choice = 0) {
  Policy policy;
  policy.leaves = leaves;
  const auto choose = [&](std::uint64_t count) {
    const std::uint64_t digit = choice % count;
    choice /= count;
    return digit;
  };
  policy.sharding = static_cast<Sharding>(3 - choose(4));
  policy.accumulation = static_cast<Accumulation>(choose(4));
  policy.shard_optimizer_over = static_cast<OptimizerGroup>(choose(2));
  policy.reshard_after_forward.kind = static_cast<Reshard::Kind>(choose(3));
  policy.leaf_order = static_cast<LeafOrder>(choose(3));
  return policy;
}
constexpr std::uint64_t choices = 4 * 4 * 2 * 3 * 3;

/// Sizes of shard groups to try on `ranks` ranks: 0 is all of them.
inline std::vector<int> groups_of(int ranks) {
  std::vector<int> groups = {0};
  for (int group = 1; group < ranks; ++group)
    if (ranks % group == 0) groups.push_back(group);
  return groups;
}

constexpr Purpose purposes[] = {Purpose::train, Purpose::evaluate, Purpose::export_parameters};

/// A policy with everything in it that may be in one, for a model of `blocks` blocks (tied or not)
/// on `ranks` ranks: limits allow what one action needs.
inline Policy random_policy(Random& random, const ModelDescription& model, int ranks,
                            std::int64_t leaves) {
  const auto below = [&](std::uint64_t count) { return static_cast<int>(random() % count); };
  Policy policy = make_policy(leaves, random() % choices);
  const std::vector<int> groups = groups_of(ranks);
  policy.shard_group = groups[random() % groups.size()];
  const int group = policy.shard_group > 0 ? policy.shard_group : ranks;
  const auto random_reshard = [&] {
    Reshard reshard;
    reshard.kind = static_cast<Reshard::Kind>(below(5));
    if (reshard.kind == Reshard::partly) {
      reshard.ranks = 2;
      while (group % reshard.ranks != 0 && reshard.ranks < group) ++reshard.ranks;
    }
    return reshard;
  };
  const auto random_prefetch = [&](bool lists) {
    Prefetch prefetch;
    prefetch.depth = below(4);
    if (lists)
      for (int i = below(4); i > 0; --i)
        prefetch.units.push_back(model.units[random() % model.units.size()].name);
    return prefetch;
  };
  policy.reshard_after_forward = random_reshard();
  policy.forward_prefetch = random_prefetch(false);
  policy.backward_prefetch = random_prefetch(false);
  // From the least that is allowed upwards: what the largest unit needs, or two that are gathered
  // together.
  if (below(2) == 0) policy.in_flight_gathers.units = 2 + below(3);
  if (below(2) == 0) {
    std::int64_t least = 0;
    for (const UnitDescription& unit : model.units) {
      const auto padded = [&](const UnitDescription& one) {
        const std::int64_t block = 64 * ranks;
        const auto segment = [&](std::int64_t elements) {
          return (elements + block - 1) / block * block * model.element_bytes;
        };
        return segment(one.frozen_elements) + segment(one.parameter_elements - one.frozen_elements);
      };
      std::int64_t bytes = padded(unit);
      if (unit.tied_to >= 0) bytes += padded(model.units[static_cast<std::size_t>(unit.tied_to)]);
      least = std::max(least, bytes);
    }
    policy.in_flight_gathers.bytes = least + below(4) * (least / 3);
  }
  policy.in_flight_reductions = below(3);
  const char* const patterns[] = {"block.*", "*", "head", "embedding", "*e*"};
  for (int i = below(3); i > 0; --i) {
    UnitRule rule;
    rule.pattern = patterns[below(5)];
    if (rule.pattern == "block.*" && model.units.size() == 2) continue;
    if (below(2) == 0) rule.reshard_after_forward = random_reshard();
    if (below(2) == 0) rule.forward_prefetch = random_prefetch(true);
    if (below(2) == 0) rule.backward_prefetch = random_prefetch(true);
    policy.units.push_back(rule);
  }
  return policy;
}

/// Puts a policy's ranks on nodes of some size, most often with collectives in two levels where
/// they can be.
inline void place_on_nodes(Random& random, int ranks, Policy& policy) {
  const std::vector<int> nodes = groups_of(ranks);  // 0 is one node
  policy.ranks_per_node = nodes[random() % nodes.size()];
  policy.hierarchical.kind = random() % 8 == 0 ? Hierarchical::never : Hierarchical::by_size;
  policy.hierarchical.bytes = 1;
}

/// Adds to a policy for `model` what keeps things elsewhere, or otherwise.
inline void vary(Random& random, const ModelDescription& model, Policy& policy) {
  const auto below = [&](std::uint64_t count) { return static_cast<int>(random() % count); };
  policy.offload = static_cast<Offload>(below(4));
  policy.offload_activations = below(2) == 0;
  policy.early_updates = below(3) == 0;
  policy.activation_checkpointing.every = below(3);
  const bool needs_momentum =
      std::any_of(model.units.begin(), model.units.end(),
                  [](const UnitDescription& unit) { return !unit.whole_matrices.empty(); });
  policy.moment_count = needs_momentum ? 1 + below(2) : below(3);
  policy.moments.dtype = below(2) == 0 ? DType::fp32 : DType::bf16;
  policy.reduce = below(2) == 0 ? DType::fp32 : DType::bf16;
  policy.checkpoint_staging = below(2) == 0;
}

/// Gives a policy a grain of its sums. Leaves are in ascending order where that takes it.
inline void add_grain(Random& random, int ranks, Policy& policy) {
  policy.sum_grain = std::int64_t{1} << random() % 6;
  const Grid grid = one_level(ranks, policy);
  for (const SpanSum& sum :
       span_sums(sum_spans(grid, accumulation_of(policy, grid)), sum_grain_of(policy)))
    if (sum.continues) policy.leaf_order = LeafOrder::ascending;
}

/// Rarely, takes the parameters from a unit, or leaves one unit alone.
inline void thin_out(Random& random, ModelDescription& model) {
  if (random() % 8 == 0 && model.units.size() > 2) {
    UnitDescription& unit = model.units[1];
    unit.parameter_elements = unit.frozen_elements = unit.frozen_count = 0;
    unit.whole_matrices.clear();
    unit.backward_reads_parameters = false;
  }
  if (random() % 16 == 0 && model.units.back().tied_to < 0)
    model.units.erase(model.units.begin(), model.units.end() - 1);
}

/// A plan, and what it is for.
struct RandomPlan {
  StepPlan plan;
  std::string described;
  ModelDescription model;
  int ranks = 1;
  Policy policy;
  Purpose purpose = Purpose::train;
};

/// Up to `most_blocks` blocks and `most_micro_batches` on each of up to `most_ranks` ranks.
inline RandomPlan random_plan(Random& random, int most_blocks, int most_ranks,
                              int most_micro_batches) {
  const auto upto = [&](int most) {
    return static_cast<int>(1 + random() % static_cast<std::uint64_t>(most));
  };
  for (;;) {
    RandomPlan made;
    const std::uint64_t seed = random();
    const int blocks = upto(most_blocks), ranks = made.ranks = upto(most_ranks);
    ModelDescription& model = made.model = make_model(blocks, random() % 2 == 0, seed);
    model.units.back().sums_tied_apart = seed % 2 == 0;
    const bool varies = random() % 4 != 0;
    if (varies) vary(random, model);
    if (seed % 8 == 0) thin_out(random, model);
    Policy& policy = made.policy =
        random_policy(random, model, ranks, std::int64_t{ranks} * upto(most_micro_batches));
    if (varies) vary(random, model, policy);
    if (random() % 3 == 0) add_grain(random, ranks, policy);
    if (random() % 2 == 0) place_on_nodes(random, ranks, policy);
    const auto drawn = random() % 8;
    if (drawn < 2) made.purpose = drawn == 0 ? Purpose::evaluate : Purpose::export_parameters;
    if (drawn == 2 && ranks < 2) made.purpose = Purpose::decode;
    made.described = text("seed ", seed, ", ", blocks, " blocks, ", ranks, " ranks in groups of ",
                          policy.shard_group, ", purpose ", name(made.purpose));
    // A limit may be below what one action needs.
    const auto build = [&] { made.plan = build_step_plan(model, ranks, policy, made.purpose); };
    if (refusal(build).empty()) return made;
  }
}

}  // namespace ostrakon::tests
