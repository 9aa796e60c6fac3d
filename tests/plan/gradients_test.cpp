// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/passes/gradients.hpp>
#include <ostrakon/plan/report/report.hpp>
#include <random>

#include "random_plans.hpp"

namespace ostrakon::tests {
namespace {

using namespace ostrakon::plan;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

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
      for (const auto& [micro_batches, grain] : {std::pair<std::int64_t, std::int64_t>{1, 0},
                                                 {2, 0},
                                                 {3, 0},
                                                 {4, 0},
                                                 {6, 0},
                                                 {7, 0},
                                                 {8, 0},
                                                 {8, 1},
                                                 {8, 2},
                                                 {7, 4},
                                                 {8, 8},
                                                 {13, 8},
                                                 {16, 16}}) {
        Policy policy;
        policy.leaves = ranks * micro_batches;
        policy.sum_grain = grain;
        policy.shard_group = group;
        policy.accumulation = accumulation;
        policy.in_flight_reductions = 0;
        policy.offload = offload;
        const StepPlan plan = build_step_plan(model, ranks, policy, Purpose::train);
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
          const Action& action = plan.actions[static_cast<std::size_t>(a)];
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

TEST(Gradients, AreSumsOnceTheUpdateBegins) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    ModelDescription model = make_model(3, seed % 2 == 0, seed);
    model.units.back().sums_tied_apart = seed % 4 == 2;
    vary(random, model);
    Policy policy = random_policy(random, model, 4, 4 * (1 + static_cast<std::int64_t>(seed % 5)));
    vary(random, model, policy);
    if (seed % 3 == 0) add_grain(random, 4, policy);
    policy.early_updates = false;
    const StepPlan plan = build_step_plan(model, 4, policy, Purpose::train);
    const auto clip = std::find_if(plan.actions.begin(), plan.actions.end(),
                                   [](const Action& action) { return action.kind == Kind::clip; });
    ASSERT_NE(clip, plan.actions.end());
    for (Space space : {Space::device, Space::host}) {
      const std::vector<CategoryBytes> live = live_bytes(plan, space);
      for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
        const GradientBytes bytes = gradients_alive(plan, space, a);
        const std::int64_t all =
            live[static_cast<std::size_t>(a)][static_cast<std::size_t>(Category::gradients)];
        EXPECT_EQ(bytes.in_flight + bytes.partial_sums + bytes.sums, all);
        const bool updates = a >= clip - plan.actions.begin();
        if (updates) {
          EXPECT_EQ(bytes.partial_sums, 0);
        }
      }
      const GradientBytes at_clip =
          gradients_alive(plan, space, static_cast<int>(clip - plan.actions.begin()));
      EXPECT_EQ(at_clip.in_flight, 0);
      EXPECT_EQ(at_clip.sums > 0, space == plan.layouts.update.space);
    }
  }
}

}  // namespace
}  // namespace ostrakon::tests
