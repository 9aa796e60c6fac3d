// SPDX-License-Identifier: Apache-2.0
// With a grain, gradients are summed by trees over a few leaves, one after the other: with the bits
// of one rank on more ranks than that, too. Runs on 8 ranks, of which each case uses some.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "support/messages.hpp"
#include "trainer/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

/// 32 leaves in trees over 4, on one rank to eight with four leaves each.
config::Settings with_grain(config::Settings settings) {
  settings.training.steps = 2;
  settings.training.sum_grain = 4;
  return settings;
}

using Change = std::function<void(config::Settings&)>;

History reference_run(config::Settings settings) {
  settings.parallel.sharding = plan::Sharding::none;
  return train_alone(settings);
}

/// Whether all that a run leaves behind is the same.
bool same_bits(const History& a, const History& b) {
  return a.losses == b.losses && a.norms == b.norms && a.digests == b.digests &&
         a.validation_loss == b.validation_loss;
}

struct Outcome {
  History history;
  bool promised = false;  ///< the bits of one rank, by the plan
};

Outcome run_on(const FirstRanks& some, const config::Settings& settings) {
  Outcome outcome;
  mesh::Mesh mesh(some.comm(), static_cast<int>(settings.ranks_per_node), settings.shard_group);
  outcome.promised = train::make_trainer(settings, mesh)
                         .program(plan::Purpose::train)
                         .plan.has_the_bits_of_one_rank();
  outcome.history = train_history(settings, some.comm());
  return outcome;
}

void expect_bits_of_one_rank(const config::Settings& base,
                             const std::vector<std::pair<std::string, Change>>& changes) {
  const History reference = reference_run(base);
  config::Settings one_tree = base;
  one_tree.training.sum_grain = 0;
  EXPECT_NE(reference.digests, reference_run(one_tree).digests) << "a grain must show in the bits";
  for (int ranks : {1, 2, 4, 8}) {
    const FirstRanks some(ranks);
    if (!some.has_me()) continue;
    for (const auto& [name, change] : changes) {
      SCOPED_TRACE(name + " on " + std::to_string(ranks));
      config::Settings settings = base;
      change(settings);
      if (settings.shard_group > ranks) continue;
      const Outcome outcome = run_on(some, settings);
      EXPECT_TRUE(outcome.promised);
      EXPECT_TRUE(same_bits(outcome.history, reference));
    }
  }
}

Change sharded(plan::Sharding sharding, int group = mesh::world_group,
               plan::Offload offload = plan::Offload::none) {
  return [=](config::Settings& settings) {
    settings.parallel.sharding = sharding;
    settings.shard_group = group;
    settings.parallel.offload = offload;
  };
}

TEST(SumGrain, EveryNumberOfRanksHasTheSameBits) {
  using plan::Sharding;
  expect_bits_of_one_rank(
      with_grain(small_gpt2(32)),
      {{"full", sharded(Sharding::full)},
       {"full in groups of 2", sharded(Sharding::full, 2)},
       {"full in groups of 4", sharded(Sharding::full, 4)},
       {"gradients", sharded(Sharding::gradients)},
       {"optimizer", sharded(Sharding::optimizer)},
       {"none", sharded(Sharding::none)},
       {"none in groups of 2", sharded(Sharding::none, 2)},
       {"full, updated on the host",
        sharded(Sharding::full, mesh::world_group, plan::Offload::optimizer)},
       {"all on the host, in groups of 2", sharded(Sharding::full, 2, plan::Offload::all)},
       {"optimizer, on the host",
        sharded(Sharding::optimizer, mesh::world_group, plan::Offload::optimizer)}});
}

TEST(SumGrain, SoHasWhatRunsAheadOnThreads) {
  const auto ahead = [](plan::Offload offload) {
    return [offload](config::Settings& settings) {
      settings.runtime.streams = on_threads;
      settings.parallel.in_flight_reductions = 2;
      settings.parallel.offload = offload;
      settings.optimizer.clip_norm = 0.0;
    };
  };
  config::Settings base = with_grain(small_llama(32));
  base.optimizer.clip_norm = 0.0;
  expect_bits_of_one_rank(base, {{"device", ahead(plan::Offload::none)},
                                 {"host, with early updates", ahead(plan::Offload::optimizer)}});
}

TEST(SumGrain, SoHasMuon) {
  config::Settings base = with_grain(small_llama(16));
  base.optimizer.kind = optim::OptimizerKind::muon;
  expect_bits_of_one_rank(
      base,
      {{"full", sharded(plan::Sharding::full)},
       {"full on the host", sharded(plan::Sharding::full, mesh::world_group, plan::Offload::all)}});
}

// Four leaves of a rank are one tree; more would be several, which ranks can't continue.
TEST(SumGrain, WholeGradientsHaveThemUpToTheGrain) {
  const config::Settings base = with_grain(small_gpt2(32));
  const History reference = reference_run(base);
  for (int ranks : {2, 4, 8}) {
    const FirstRanks some(ranks);
    if (!some.has_me()) continue;
    config::Settings settings = base;
    settings.parallel.accumulation = plan::Accumulation::reduce_last;
    const Outcome outcome = run_on(some, settings);
    EXPECT_EQ(outcome.promised, ranks == 8) << ranks;
    EXPECT_EQ(same_bits(outcome.history, reference), ranks == 8) << ranks;
  }
}

TEST(SumGrain, ReplicasThatCannotContinueASumDiffer) {
  const config::Settings base = with_grain(small_gpt2(32));
  const History reference = reference_run(base);
  const FirstRanks some(8);
  config::Settings settings = base;
  settings.shard_group = 2;
  settings.parallel.accumulation = plan::Accumulation::shard_each;
  const Outcome outcome = run_on(some, settings);
  EXPECT_FALSE(outcome.promised);
  EXPECT_FALSE(same_bits(outcome.history, reference));
}

// Rounded to be sent, gradients are summed in float all the same, wherever the sum so far waits.
TEST(SumGrain, SixteenBitsOnTheWireAreAddedToTheSameSum) {
  config::Settings settings = with_grain(small_gpt2(32));
  settings.parallel.reduce = DType::bf16;
  const History on_device = train_history(settings, MPI_COMM_WORLD);
  settings.parallel.offload = plan::Offload::optimizer;
  EXPECT_TRUE(same_bits(train_history(settings, MPI_COMM_WORLD), on_device));
  settings.parallel.sharding = plan::Sharding::none;
  settings.parallel.offload = plan::Offload::none;
  settings.parallel.accumulation = plan::Accumulation::reduce_each;
  EXPECT_TRUE(same_bits(train_history(settings, MPI_COMM_WORLD), on_device));
  settings.training.sum_grain = 0;
  EXPECT_FALSE(same_bits(train_history(settings, MPI_COMM_WORLD), on_device));
}

TEST(SumGrain, LeavesInAnotherOrderNeedTheGrainOfTheRanks) {
  config::Settings settings = with_grain(small_gpt2(32));
  settings.parallel.leaf_order = plan::LeafOrder::descending;
  const History reference = reference_run(settings);
  for (int ranks : {2, 4}) {
    const FirstRanks some(ranks);
    if (!some.has_me()) continue;
    EXPECT_TRUE(same_bits(train_history(settings, some.comm()), reference));
  }
  EXPECT_EQ(refusal(settings),
            "parallel.leaf_order = descending: expected ascending where training.sum_grain = 4 "
            "is less than the number of ranks over which each micro-batch is reduced");
}

}  // namespace
