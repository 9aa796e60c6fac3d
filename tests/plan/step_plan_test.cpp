// SPDX-License-Identifier: Apache-2.0

// What a plan divides over ranks, sends and saves; tied units; hashes.

#include <set>
#include <utility>

#include "plan/random_plans.hpp"
#include "plan/traffic.hpp"

namespace ostrakon::tests {
namespace {

TEST(StepPlan, TrafficIsThatOfTheFormulas) {
  // M bytes of parameters, W ranks in groups of G, one micro-batch on each rank.
  const ModelDescription model = make_model(3, false, 4);
  constexpr int ranks = 8;
  for (int group : {8, 4, 2, 1}) {
    const int replicas = ranks / group;
    std::int64_t whole = 0, regathered = 0;
    const auto sent = [&](Sharding sharding, OptimizerGroup over) {
      Policy policy = make_policy(ranks);
      policy.sharding = sharding;
      policy.shard_group = group;
      policy.shard_optimizer_over = over;
      policy.reshard_after_forward.kind = Reshard::always;
      const StepPlan plan = train_plan(model, ranks, policy);
      whole = regathered = 0;
      for (std::size_t u = 0; u < model.units.size(); ++u) {
        const std::int64_t bytes = plan.padded(plan.trained(static_cast<int>(u))) * 4;
        whole += bytes;
        // The embedding needs no parameters in backward; the head's forward and backward are one.
        if (u > 0 && u + 1 < model.units.size()) regathered += bytes;
      }
      return std::make_pair(bytes_sent(plan, Axis::shard), bytes_sent(plan, Axis::replicate));
    };
    const auto within = [&](std::int64_t bytes) { return bytes / group * (group - 1); };
    const auto across = [&](std::int64_t bytes) { return bytes / ranks * (replicas - 1); };
    for (const auto over : {OptimizerGroup::shard_group, OptimizerGroup::world}) {
      // Replicas reduce and gather their shards, gradients or updates: 2 M (W/G - 1) / W in all.
      for (Sharding sharding :
           {Sharding::none, Sharding::optimizer, Sharding::gradients, Sharding::full}) {
        const auto found = sent(sharding, over);
        const std::int64_t again = sharding == Sharding::full ? regathered : 0;
        EXPECT_EQ(found.first, within(2 * whole + again));
        EXPECT_EQ(found.second, 2 * across(whole));
      }
    }
  }
}

TEST(StepPlan, ThousandsOfRanksArePlannedLikeTwo) {
  const ModelDescription model = make_model(126, false, 14);
  const StepPlan plan = train_plan(model, 4096, make_policy(8192));
  expect_proven(plan);
  EXPECT_TRUE(plan.has_the_bits_of_one_rank());
  for (const FlatParameter& flat : plan.flats) EXPECT_EQ(flat.padded % (4096 * 64), 0);
}

TEST(StepPlan, AUnitIsTiedToOneBeforeItAndNoTwoToTheSame) {
  ModelDescription model = make_model(2, true, 15);
  model.units[2].tied_to = 0;
  EXPECT_THROW(train_plan(model, 1, make_policy(1)), Error);
  model.units[2].tied_to = 2;
  EXPECT_THROW(train_plan(model, 1, make_policy(1)), Error);
}

// Not only the last unit may be tied, and not only to the first.
TEST(StepPlan, UnitsInTheMiddleMayBeTied) {
  ModelDescription model = make_model(4, true, 15);
  model.units[4].tied_to = 2;
  for (std::uint64_t choice = 0; choice < 400; ++choice) {
    const StepPlan plan = train_plan(model, 4, make_policy(8, choice));
    ASSERT_EQ(memory_refused(plan), "") << choice;
    int opened = 0;
    for (const Action& action : plan.actions) {
      if (action.kind != Kind::backward) continue;
      EXPECT_EQ(action.adds_gradients(), action.unit == 2 || action.unit == 0);
      EXPECT_EQ(action.buffer(Role::tied_gradients) >= 0, action.unit == 4 || action.unit == 5);
      EXPECT_EQ(action.buffer(Role::tied_parameters) >= 0, action.unit == 4 || action.unit == 5);
      if (action.adds_gradients()) ++opened;
      // What units 4 and 5 opened is what units 2 and 0 add to.
      if (action.unit != 2) continue;
      const int gradients = action.buffer(Role::parameter_gradients);
      const bool found =
          std::any_of(plan.actions.begin(), plan.actions.end(), [&](const Action& other) {
            return other.unit == 4 && other.buffer(Role::tied_gradients) == gradients;
          });
      EXPECT_TRUE(found);
    }
    EXPECT_EQ(opened, 2 * plan.grid.micro_batches());
  }
}

TEST(StepPlan, RefusesLeavesThatRanksCannotShare) {
  EXPECT_THROW(train_plan(make_model(1, false, 1), 3, make_policy(8)), Error);
}

TEST(StepPlan, HashTellsPlansApart) {
  const auto hash = [](int ranks, std::uint64_t choice) {
    return train_plan(make_model(2, false, 6), ranks, make_policy(4, choice)).hash();
  };
  EXPECT_EQ((std::set<std::uint64_t>{hash(2, 0), hash(2, 1), hash(2, 12), hash(4, 0)}.size()), 4u);
  EXPECT_EQ(hash(2, 0), hash(2, 0));
}

}  // namespace
}  // namespace ostrakon::tests
