// SPDX-License-Identifier: Apache-2.0

// What a plan divides over ranks, sends and saves; tied units; hashes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <random>
#include <set>
#include <utility>

#include "plan/random_plans.hpp"
#include "plan/traffic.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

TEST(StepPlan, EveryLeafIsWorkedOnOnce) {
  const ModelDescription model = make_model(2, false, 1);
  for (std::uint64_t choice = 0; choice < choices; ++choice) {
    for (int ranks : {1, 2, 3, 6}) {
      for (int group : groups_of(ranks)) {
        Policy policy = make_policy(12, choice);
        policy.shard_group = group;
        const StepPlan plan = build_step_plan(model, ranks, policy, Purpose::train);
        std::set<std::int64_t> leaves;
        std::set<int> loaded;
        for (const Action& action : plan.actions)
          if (action.kind == Kind::load) {
            EXPECT_TRUE(loaded.insert(action.micro_batch).second);
            for (int rank = 0; rank < ranks; ++rank)
              EXPECT_TRUE(leaves.insert(plan.leaf(rank, action.micro_batch)).second);
          }
        EXPECT_EQ(leaves.size(), 12u);
        EXPECT_EQ(*leaves.rbegin(), 11);
      }
    }
  }
}

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
      const StepPlan plan = build_step_plan(model, ranks, policy, Purpose::train);
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

TEST(StepPlan, StateIsDividedAsTheStrategySays) {
  const ModelDescription model = make_model(4, false, 7);
  constexpr int ranks = 8, group = 4;
  const auto state = [&](Sharding sharding, OptimizerGroup over) {
    Policy policy = make_policy(ranks);
    policy.sharding = sharding;
    policy.shard_group = group;
    policy.shard_optimizer_over = over;
    const StepPlan plan = build_step_plan(model, ranks, policy, Purpose::train);
    std::int64_t parameters = 0, moments = 0, whole = 0;
    for (int u = 0; u < 6; ++u) {
      parameters += plan.buffers[plan.units[u].masters].bytes;
      moments += plan.buffers[plan.units[u].first_moments].bytes;
      whole += plan.padded(plan.trained(u)) * 4;
    }
    return std::make_pair(whole / parameters, whole / moments);
  };
  using Divisors = std::pair<std::int64_t, std::int64_t>;
  const auto group_over = OptimizerGroup::shard_group, world_over = OptimizerGroup::world;
  EXPECT_EQ(state(Sharding::none, group_over), Divisors(1, 1));
  EXPECT_EQ(state(Sharding::optimizer, group_over), Divisors(1, 4));
  EXPECT_EQ(state(Sharding::gradients, group_over), Divisors(1, 4));
  EXPECT_EQ(state(Sharding::full, group_over), Divisors(4, 4));
  EXPECT_EQ(state(Sharding::gradients, world_over), Divisors(1, 8));
  EXPECT_EQ(state(Sharding::full, world_over), Divisors(4, 8));
}

TEST(StepPlan, PersistentBuffersLieAlikeInAllPlansOfARun) {
  const ModelDescription model = make_model(3, true, 5);
  for (std::uint64_t choice = 0; choice < 2; ++choice) {
    const StepPlan train = build_step_plan(model, 2, make_policy(4, choice), Purpose::train);
    const MemoryPlan memory = plan_memory(train);
    for (Purpose purpose : purposes) {
      const StepPlan other = build_step_plan(model, 2, make_policy(4, choice), purpose);
      const MemoryPlan other_memory = plan_memory(other);
      EXPECT_EQ(other_memory.persistent_bytes, memory.persistent_bytes);
      for (std::size_t b = 0; b < other.buffers.size(); ++b)
        if (other.buffers[b].persistent) {
          EXPECT_EQ(other.buffers[b].name, train.buffers[b].name);
          EXPECT_EQ(other_memory.offsets[b], memory.offsets[b]);
        }
    }
  }
}

/// What a rank saves: its share of all masters, and moments of what is trained of it.
std::int64_t saved_bytes(const StepPlan& plan, const Policy& policy) {
  std::int64_t bytes = 0;
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    const std::int64_t frozen = plan.padded(plan.frozen(u)), trained = plan.padded(plan.trained(u));
    bytes +=
        (4 * (trained + frozen) + policy.moment_count * bytes_of(policy.moments.dtype) * trained) /
        plan.grid.ranks();
  }
  return bytes;
}

TEST(StepPlan, CheckpointsTakeHostMemoryOfWhatARankSaves) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(trial);
    const int ranks = static_cast<int>(1 + random() % 6);
    ModelDescription model = make_model(3, trial % 2 == 0, random());
    vary(random, model);
    Policy policy = random_policy(random, model, ranks, 2 * ranks);
    vary(random, model, policy);
    place_on_nodes(random, ranks, policy);
    Policy without = policy;
    policy.checkpoint_staging = true;
    without.checkpoint_staging = false;
    MemoryPlan of_training[spaces];
    for (Purpose purpose : purposes) {
      const StepPlan plan = build_step_plan(model, ranks, policy, purpose);
      const StepPlan less = build_step_plan(model, ranks, without, purpose);
      ASSERT_GE(plan.checkpoint, 0);
      EXPECT_EQ(less.checkpoint, -1);
      const Buffer& copy = plan.buffers[static_cast<std::size_t>(plan.checkpoint)];
      EXPECT_EQ(copy.name, "checkpoint");
      EXPECT_EQ(copy.space, Space::host);
      EXPECT_TRUE(copy.persistent);
      EXPECT_EQ(copy.bytes, saved_bytes(plan, policy));
      // Nothing else is different, and no action of a step touches it.
      EXPECT_EQ(plan.buffers.size(), less.buffers.size() + 1);
      ASSERT_EQ(plan.actions.size(), less.actions.size());
      for (const Action& action : plan.actions)
        for (const Use& use : action.uses) EXPECT_NE(use.buffer, plan.checkpoint);
      EXPECT_NE(plan.hash(), less.hash());
      const std::int64_t padded =
          (copy.bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
      EXPECT_EQ(plan_memory(plan, Space::host).persistent_bytes,
                plan_memory(less, Space::host).persistent_bytes + padded);
      EXPECT_EQ(plan_memory(plan).persistent_bytes, plan_memory(less).persistent_bytes);
      for (Space space : {Space::device, Space::host}) {
        const MemoryPlan memory = plan_memory(plan, space);
        ASSERT_NO_THROW(prove_memory(plan, memory));
        MemoryPlan& training = of_training[static_cast<int>(space)];
        if (purpose == Purpose::train) training = memory;
        for (std::size_t b = 0; b < plan.buffers.size() && plan.buffers[b].persistent; ++b)
          ASSERT_EQ(memory.offsets[b], training.offsets[b]) << plan.buffers[b].name;
      }
    }
  }
}

TEST(StepPlan, GeneratingSavesNothing) {
  Policy policy = make_policy(1);
  policy.checkpoint_staging = true;
  const StepPlan plan = build_step_plan(make_model(2, false, 4), 1, policy, Purpose::decode);
  EXPECT_EQ(plan.checkpoint, -1);
}

TEST(StepPlan, ThousandsOfRanksArePlannedLikeTwo) {
  const ModelDescription model = make_model(126, false, 14);
  const StepPlan plan = build_step_plan(model, 4096, make_policy(8192), Purpose::train);
  const MemoryPlan memory = plan_memory(plan);
  EXPECT_NO_THROW(prove_memory(plan, memory));
  EXPECT_TRUE(plan.has_the_bits_of_one_rank());
  for (const FlatParameter& flat : plan.flats) EXPECT_EQ(flat.padded % (4096 * 64), 0);
}

TEST(StepPlan, AUnitIsTiedToOneBeforeItAndNoTwoToTheSame) {
  ModelDescription model = make_model(2, true, 15);
  model.units[2].tied_to = 0;
  EXPECT_THROW(build_step_plan(model, 1, make_policy(1), Purpose::train), Error);
  model.units[2].tied_to = 2;
  EXPECT_THROW(build_step_plan(model, 1, make_policy(1), Purpose::train), Error);
}

// Not only the last unit may be tied, and not only to the first.
TEST(StepPlan, UnitsInTheMiddleMayBeTied) {
  ModelDescription model = make_model(4, true, 15);
  model.units[4].tied_to = 2;
  for (std::uint64_t choice = 0; choice < 400; ++choice) {
    const StepPlan plan = build_step_plan(model, 4, make_policy(8, choice), Purpose::train);
    EXPECT_NO_THROW(prove_memory(plan, plan_memory(plan))) << choice;
    int opened = 0;
    for (const Action& action : plan.actions) {
      if (action.kind != Kind::backward) continue;
      EXPECT_EQ(action.gradients_opened, action.unit == 2 || action.unit == 0);
      EXPECT_EQ(action.buffer(Role::tied_gradients) >= 0, action.unit == 4 || action.unit == 5);
      EXPECT_EQ(action.buffer(Role::tied_parameters) >= 0, action.unit == 4 || action.unit == 5);
      if (action.gradients_opened) ++opened;
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
  EXPECT_THROW(build_step_plan(make_model(1, false, 1), 3, make_policy(8), Purpose::train), Error);
}

TEST(StepPlan, HashTellsPlansApart) {
  const ModelDescription model = make_model(2, false, 6);
  std::set<std::uint64_t> hashes;
  hashes.insert(build_step_plan(model, 2, make_policy(4, 0), Purpose::train).hash());
  hashes.insert(build_step_plan(model, 2, make_policy(4, 1), Purpose::train).hash());
  hashes.insert(build_step_plan(model, 2, make_policy(4, 12), Purpose::train).hash());
  hashes.insert(build_step_plan(model, 4, make_policy(4, 0), Purpose::train).hash());
  EXPECT_EQ(hashes.size(), 4u);
  EXPECT_EQ(build_step_plan(model, 2, make_policy(4, 0), Purpose::train).hash(),
            build_step_plan(model, 2, make_policy(4, 0), Purpose::train).hash());
}

TEST(StepPlan, ShardedStateIsDividedByTheRanks) {
  const ModelDescription model = make_model(4, false, 7);
  const auto state = [&](int ranks) {
    return plan_memory(build_step_plan(model, ranks, make_policy(8), Purpose::train))
        .persistent_bytes;
  };
  const std::int64_t sums = 1280;  // 1088 bytes at an alignment of 256
  EXPECT_NEAR(static_cast<double>(state(8) - sums), static_cast<double>(state(1) - sums) / 8.0,
              0.02 * static_cast<double>(state(1)));
}

}  // namespace
