// SPDX-License-Identifier: Apache-2.0
// The bits of a run don't depend on its layout. Runs on 8 ranks, of which each case uses some.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "train/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

void expect_same_bits(const History& run, const History& reference, const std::string& name) {
  ASSERT_EQ(run.losses.size(), reference.losses.size());
  for (std::size_t i = 0; i < run.losses.size(); ++i) {
    EXPECT_EQ(run.losses[i], reference.losses[i]) << name << ", step " << i + 1;
    EXPECT_EQ(run.norms[i], reference.norms[i]) << name << ", step " << i + 1;
    EXPECT_EQ(run.digests[i], reference.digests[i]) << name << ", step " << i + 1;
  }
  EXPECT_EQ(run.validation_loss, reference.validation_loss) << name;
}

/// One rank, one tree, nothing sharded: computed by every rank for itself.
History reference_run(config::Settings settings) {
  settings.parallel.sharding = plan::Sharding::none;
  settings.parallel.leaf_order = plan::LeafOrder::ascending;
  return train_history(settings, MPI_COMM_SELF);
}

void expect_every_layout_gives_the_same_bits(config::Settings settings) {
  const History reference = reference_run(settings);
  ASSERT_LT(reference.losses.back(), reference.losses.front());
  for (int ranks : {1, 2, 4, 8}) {
    const FirstRanks some(ranks);
    if (!some.has_me()) continue;
    for (const auto sharding : {plan::Sharding::full, plan::Sharding::none})
      for (const auto order :
           {plan::LeafOrder::ascending, plan::LeafOrder::descending, plan::LeafOrder::shuffled}) {
        settings.parallel.sharding = sharding;
        settings.parallel.leaf_order = order;
        expect_same_bits(train_history(settings, some.comm()), reference,
                         "ranks " + std::to_string(ranks) + ", sharding " +
                             std::to_string(static_cast<int>(sharding)) + ", order " +
                             std::to_string(static_cast<int>(order)));
      }
  }
}

TEST(Layout, Gpt2HasTheSameBitsOnEveryLayout) {
  expect_every_layout_gives_the_same_bits(small_gpt2(8));
}

TEST(Layout, LlamaHasTheSameBitsOnEveryLayout) {
  expect_every_layout_gives_the_same_bits(small_llama(8));
}

/// Every strategy, or where `every` is false one in seven of them in turn, so that each value of
/// each choice meets many of the others.
void expect_every_strategy_gives_the_same_bits(config::Settings settings, bool every) {
  const History reference = reference_run(settings);
  int number = 0;
  for (int ranks : {1, 2, 4, 8}) {
    const FirstRanks some(ranks);
    for (const auto sharding : all_shardings)
      for (int group : groups_of(ranks))
        for (const auto over : {plan::OptimizerGroup::shard_group, plan::OptimizerGroup::world})
          for (const auto accumulation :
               {plan::Accumulation::reduce_each, plan::Accumulation::shard_each,
                plan::Accumulation::reduce_last})
            for (const auto reshard : {plan::Reshard::always, plan::Reshard::never}) {
              if (!every && ++number % 7 != 0) continue;
              if (!some.has_me()) continue;
              settings.parallel.sharding = sharding;
              settings.shard_group = group;
              settings.parallel.shard_optimizer_over = over;
              settings.parallel.accumulation = accumulation;
              settings.parallel.reshard_after_forward = reshard;
              expect_same_bits(train_history(settings, some.comm()), reference,
                               "ranks " + std::to_string(ranks) + ", group " +
                                   std::to_string(group) + ", sharding " +
                                   std::to_string(static_cast<int>(sharding)) + ", over " +
                                   std::to_string(static_cast<int>(over)) + ", accumulation " +
                                   std::to_string(static_cast<int>(accumulation)));
            }
  }
}

TEST(Layout, EveryStrategyGivesTheSameBits) {
  for (config::Settings settings : {small_gpt2(8), small_llama(8)}) {
    settings.training.steps = 3;
    expect_every_strategy_gives_the_same_bits(settings, false);
  }
}

// The whole matrix, for --gtest_also_run_disabled_tests.
TEST(Layout, DISABLED_TrulyEveryStrategyGivesTheSameBits) {
  for (config::Settings settings : {small_gpt2(8), small_llama(8)}) {
    settings.training.steps = 3;
    expect_every_strategy_gives_the_same_bits(settings, true);
  }
}

TEST(Layout, PretendedNodesAreShardGroups) {
  config::Settings settings = small_llama(8);
  settings.training.steps = 4;
  const History reference = reference_run(settings);
  for (int ranks_per_node : {2, 4}) {
    settings.ranks_per_node = ranks_per_node;
    settings.shard_group = mesh::node_group;
    expect_same_bits(train_history(settings, MPI_COMM_WORLD), reference, "nodes");
  }
}

TEST(Layout, ThreeRanksAgreeToRounding) {
  for (config::Settings settings : {small_gpt2(6), small_llama(6)}) {
    const History reference = reference_run(settings);
    const FirstRanks some(3);
    if (!some.has_me()) continue;
    for (const auto sharding : {plan::Sharding::full, plan::Sharding::none}) {
      settings.parallel.sharding = sharding;
      const History run = train_history(settings, some.comm());
      for (std::size_t i = 0; i < run.losses.size(); ++i) {
        EXPECT_NEAR(run.losses[i], reference.losses[i], 1e-4 * reference.losses[i]);
        EXPECT_NEAR(run.norms[i], reference.norms[i], 1e-3 * reference.norms[i]);
      }
      // Two leaves a rank are a node of the tree over six: the same bits even on three ranks.
      settings.parallel.accumulation = plan::Accumulation::reduce_last;
      expect_same_bits(train_history(settings, some.comm()), reference, "three ranks");
      settings.parallel.accumulation = plan::Accumulation::automatic;
    }
  }
}

TEST(Layout, PlansKnowWhetherTheirBitsAreThoseOfOneRank) {
  // Six leaves on two ranks: three to a rank are no node of the tree, but rounds of two ranks are.
  config::Settings settings = small_gpt2(6);
  settings.training.steps = 4;
  const History reference = reference_run(settings);
  const FirstRanks some(2);
  if (!some.has_me()) return;
  for (const auto accumulation :
       {plan::Accumulation::reduce_each, plan::Accumulation::reduce_last}) {
    settings.parallel.accumulation = accumulation;
    mesh::Mesh mesh(some.comm(), 0);
    const bool same = train::Trainer(settings, mesh)
                          .program(plan::Purpose::train)
                          .plan.has_the_bits_of_one_rank();
    EXPECT_EQ(same, accumulation == plan::Accumulation::reduce_each);
    EXPECT_EQ(train_history(settings, some.comm()).digests == reference.digests, same);
  }
}

TEST(Layout, AnotherSeedIsAnotherRun) {
  config::Settings settings = small_gpt2(2);
  settings.training.steps = 2;
  const History reference = reference_run(settings);
  settings.training.seed = 2;
  EXPECT_NE(reference_run(settings).digests.back(), reference.digests.back());
}

}  // namespace
