// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/gradients.hpp>

#include "plan/random_plans.hpp"

namespace ostrakon::tests {
namespace {

std::int64_t bits(std::int64_t number) {
  std::int64_t count = 0;
  for (; number > 0; number /= 2) count += number % 2;
  return count;
}

// The sums over the first n micro-batches are as many nodes of the tree as n has ones in binary.
// With a grain they are one over all whole trees, and the nodes of the next one.
TEST(Gradients, PartialSumsAreTheNodesOfTheTree) {
  constexpr int ranks = 4, group = 2;
  const ModelDescription model = make_model(4, false, 3);
  for (const Accumulation accumulation :
       {Accumulation::shard_each, Accumulation::reduce_each, Accumulation::reduce_last})
    for (const Offload offload : {Offload::none, Offload::optimizer})
      for (const std::int64_t micro_batches : {1, 2, 3, 4, 7, 8, 13, 16})
        for (const std::int64_t grain : {0, 1, 2, 4, 8, 16}) {
          Policy policy;
          policy.leaves = ranks * micro_batches;
          policy.sum_grain = grain;
          policy.shard_group = group;
          policy.accumulation = accumulation;
          policy.in_flight_reductions = 0;
          policy.offload = offload;
          const StepPlan plan = train_plan(model, ranks, policy);
          const Space space = offload == Offload::none ? Space::device : Space::host;
          const Spans whole, shard = {plan.grid.span(Axis::shard)};
          const Spans& all_ranks = plan.layouts.gradient.divided;
          const Spans& waiting = accumulation == Accumulation::shard_each    ? shard
                                 : accumulation == Accumulation::reduce_each ? all_ranks
                                                                             : whole;
          const std::int64_t before = accumulation == Accumulation::shard_each    ? group
                                      : accumulation == Accumulation::reduce_each ? ranks
                                                                                  : 1;
          // In micro-batches, of a tree.
          const std::int64_t tree =
              grain == 0 ? micro_batches : std::max<std::int64_t>(grain / before, 1);
          const auto bytes = [&](int unit, const Spans& divided) {
            return aligned(plan.elements(plan.trained(unit), divided) *
                           plan.layouts.gradient.element_bytes);
          };
          for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
            const Action& action = plan.actions[a];
            if (action.kind != Kind::backward) continue;
            GradientBytes expected;
            for (int u = 0; u < static_cast<int>(model.units.size()); ++u) {
              const std::int64_t done = action.micro_batch + (u > action.unit ? 1 : 0);
              if (done == micro_batches)
                expected.sums += bytes(u, all_ranks);
              else
                expected.partial_sums +=
                    (done / tree > 0 ? 1 + bits(done % tree) : bits(done)) * bytes(u, waiting);
            }
            const GradientBytes found = gradients_alive(plan, space, a);
            EXPECT_EQ(found.partial_sums, expected.partial_sums) << plan.describe(action);
            EXPECT_EQ(found.sums, expected.sums) << plan.describe(action);
            EXPECT_EQ(gradients_alive(plan, Space::device, a).in_flight, bytes(action.unit, whole))
                << plan.describe(action);
          }
        }
}

/// Returns what, of a rank's gradients on the device, is not in flight, in one of the last
/// backwards of the first unit: the most of them.
GradientBytes most_that_wait(const StepPlan& plan) {
  GradientBytes most;
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
    const Action& action = plan.actions[a];
    if (action.kind != Kind::backward || action.unit > 0 || action.micro_batch < 48) continue;
    const GradientBytes bytes = gradients_alive(plan, Space::device, a);
    if (bytes.partial_sums + bytes.sums > most.partial_sums + most.sums) most = bytes;
  }
  return most;
}

// The sizes of Llama 3 8B: 8.03 billion parameters in 34 units, on 8 ranks with 64 micro-batches.
TEST(Gradients, AGrainBoundsThePartialSumsOfManyMicroBatches) {
  ModelDescription model = make_model(32, false, 5);
  for (UnitDescription& unit : model.units) unit.parameter_elements = 218112000;
  model.units.front().parameter_elements = model.units.back().parameter_elements = 525336576;
  Policy policy;
  policy.leaves = 8 * 64;
  const auto shards = [&](std::int64_t grain) {
    policy.sum_grain = grain;
    const StepPlan plan = train_plan(model, 8, policy);
    EXPECT_TRUE(plan.has_the_bits_of_one_rank());
    double shard = 0.0;
    for (const FlatParameter& flat : plan.flats) shard += static_cast<double>(flat.padded) / 8 * 4;
    const GradientBytes most = most_that_wait(plan);
    return static_cast<double>(most.partial_sums + most.sums) / shard;
  };
  EXPECT_GT(shards(0), 5.5);  // log2(64) trees, but for units whose backward comes later
  EXPECT_LE(shards(8), 1.01);
  EXPECT_LE(shards(4), 1.01);
  EXPECT_LE(shards(1), 1.01);
  EXPECT_LE(shards(16), 2.01);
  EXPECT_LE(shards(64), 4.01);
}

}  // namespace
}  // namespace ostrakon::tests
