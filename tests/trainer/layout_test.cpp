// SPDX-License-Identifier: Apache-2.0
// The bits of a run don't depend on its layout. Runs on 8 ranks, of which each case uses some.
#include <gtest/gtest.h>

#include <cstdio>
#include <ostrakon/base/error.hpp>
#include <string>

#include "support/messages.hpp"
#include "support/trials.hpp"
#include "trainer/comparison.hpp"
#include "trainer/layouts.hpp"
#include "trainer/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

void expect_every_layout_gives_the_same_bits(config::Settings settings) {
  settings.training.steps = 8;
  const History reference = reference_run(settings);
  ASSERT_LT(reference.losses.back(), reference.losses.front());
  bool is_full = true;  // each pair of ranks, orders and shardings occurs
  for (int ranks : {1, 2, 4, 8}) {
    const FirstRanks some(ranks);
    for (const auto order :
         {plan::LeafOrder::ascending, plan::LeafOrder::descending, plan::LeafOrder::shuffled}) {
      is_full = !is_full;
      if (!some.has_me()) continue;
      settings.parallel.sharding = is_full ? plan::Sharding::full : plan::Sharding::none;
      settings.parallel.leaf_order = order;
      expect_same_bits(train_history(settings, some.comm()), reference,
                       "ranks " + std::to_string(ranks) + ", sharding " +
                           std::to_string(static_cast<int>(settings.parallel.sharding)) +
                           ", order " + std::to_string(static_cast<int>(order)));
    }
  }
}

TEST(Layout, Gpt2HasTheSameBitsOnEveryLayout) {
  expect_every_layout_gives_the_same_bits(small_gpt2(8));
}

TEST(Layout, LlamaHasTheSameBitsOnEveryLayout) {
  expect_every_layout_gives_the_same_bits(small_llama(8));
}

TEST(Layout, EveryTwoChoicesTogetherGiveTheSameBits) {
  const Comparison comparison;
  const std::vector<Layout> layouts = pairwise_layouts();
  EXPECT_GE(layouts.size(), 16u);  // of two factors with four choices each
  for (const Layout& layout : layouts)
    if (comparison.has_me(layout)) comparison.run(layout);
  std::printf("%zu layouts\n", layouts.size());
}

TEST(Layout, TiedEmbeddingsNeedTwoGathersInFlight) {
  config::Settings settings = small_gpt2(8);
  settings.parallel.in_flight_gathers.units = 1;
  EXPECT_HAS(refusal(settings), "embedding");
}

// Other orders and other times than those of the plan, as far as its waits allow them.
void expect_perturbed_runs_give_the_same_bits(config::StreamsChoice streams,
                                              double longest_seconds) {
  const int runs = takes_every_case() ? 200 : 48;  // after 48 come other seeds
  config::Settings settings[] = {small_gpt2(8), small_llama(8)};
  History references[2];
  for (int model = 0; model < 2; ++model) {
    settings[model].training.steps = 1;
    settings[model].optimizer.clip_norm = 0.0;  // so that updates on the host begin early
    references[model] = reference_run(settings[model]);
    settings[model].runtime.streams = streams;
    settings[model].parallel.forward_prefetch.depth = 2;
    settings[model].parallel.in_flight_reductions = 2;
  }
  const FirstRanks some(4);
  for (int run = 0; some.has_me() && run < runs; ++run) {
    config::Settings& one = settings[run % 2];
    one.parallel.reshard_after_forward = {static_cast<plan::Reshard::Kind>(run / 2 % 4), 2};
    one.parallel.accumulation = static_cast<plan::Accumulation>(1 + run / 8 % 3);
    // Mostly where there is most to upset.
    one.parallel.sharding = static_cast<plan::Sharding>(run % 8 < 6 ? 3 : run / 8 % 3);
    one.shard_group = run / 24 % 2 == 0 ? mesh::world_group : 2;
    one.parallel.offload = static_cast<plan::Offload>(run / 3 % 4);
    one.parallel.offload_activations = run / 5 % 2 == 1;
    const auto seed = static_cast<std::uint64_t>(run) + 1;
    expect_same_bits(train_history(one, some.comm(), {seed, longest_seconds}), references[run % 2],
                     "schedule " + std::to_string(run));
  }
}

TEST(Layout, OtherOrdersGiveTheSameBits) {
  expect_perturbed_runs_give_the_same_bits(config::StreamsChoice::in_plan_order, 0.0);
}

TEST(Layout, OtherTimesGiveTheSameBits) {
  expect_perturbed_runs_give_the_same_bits(on_threads, 2e-4);
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

/// What two levels may be combined with, as numbered choices.
enum LevelsFactor {
  levels_model,
  levels_node,
  levels_ranks,
  levels_group,
  levels_sharding,
  levels_over,
  levels_accumulation,
  levels_reshard,
  levels_offload,
  levels_optimizer,
  levels_streams,
  levels_factors
};
constexpr int levels_choices[levels_factors] = {2, 2, 2, 3, 4, 2, 4, 6, 4, 2, 2};
int ranks_of_levels(const Choices& row) { return 4 << row[levels_ranks]; }
int node_of_levels(const Choices& row) { return 2 << row[levels_node]; }
int group_of_levels(const Choices& row) {
  const int groups[] = {mesh::world_group, 1, 2};
  return groups[row[levels_group]];
}

config::Settings settings_in_levels(config::Settings settings, const Choices& row) {
  plan::PolicyChoices& policy = settings.parallel;
  policy.hierarchical.kind = plan::Hierarchical::always;
  settings.ranks_per_node = node_of_levels(row);
  settings.shard_group = group_of_levels(row);
  policy.sharding = static_cast<plan::Sharding>(row[levels_sharding]);
  if (policy.sharding != plan::Sharding::none)
    policy.shard_optimizer_over = static_cast<plan::OptimizerGroup>(row[levels_over]);
  policy.accumulation = static_cast<plan::Accumulation>(row[levels_accumulation]);
  const plan::Reshard reshards[] = {{plan::Reshard::automatic, 0}, {plan::Reshard::always, 0},
                                    {plan::Reshard::never, 0},     {plan::Reshard::end_of_step, 0},
                                    {plan::Reshard::partly, 2},    {plan::Reshard::partly, 4}};
  policy.reshard_after_forward = reshards[row[levels_reshard]];
  policy.offload = static_cast<plan::Offload>(row[levels_offload]);
  settings.runtime.streams =
      row[levels_streams] == 0 ? config::StreamsChoice::in_plan_order : on_threads;
  return settings;
}

plan::Grid grid_of(const config::Settings& settings, MPI_Comm comm) {
  mesh::Mesh mesh(comm, static_cast<int>(settings.ranks_per_node), settings.shard_group);
  return train::make_trainer(settings, mesh).program(plan::Purpose::train).plan.grid;
}

TEST(Layout, TwoLevelsGiveTheBitsOfOneRank) {
  config::Settings settings[2][2];
  History references[2][2];
  for (const int model : {0, 1})
    for (const int optimizer : {0, 1}) {
      config::Settings& one = settings[model][optimizer];
      one = model == 0 ? small_gpt2(8) : small_llama(8);
      one.training.steps = 2;
      if (optimizer == 1) one.optimizer.kind = optim::OptimizerKind::muon;
      references[model][optimizer] = reference_run(one);
    }
  const std::vector<Choices> rows =
      covering_rows({std::begin(levels_choices), std::end(levels_choices)},
                    [](const Choices& row) { return node_of_levels(row) < ranks_of_levels(row); });
  int in_shards = 0, in_replicas = 0;
  for (const Choices& row : rows) {
    std::string name = "choices";
    for (const int choice : row) name += " " + std::to_string(choice);
    SCOPED_TRACE(name);
    const FirstRanks some(ranks_of_levels(row));
    if (!some.has_me()) continue;
    const int model = row[levels_model], optimizer = row[levels_optimizer];
    const config::Settings one = settings_in_levels(settings[model][optimizer], row);
    const plan::Grid grid = grid_of(one, some.comm());
    in_shards += grid.levels(plan::Axis::shard).size() > 1 ? 1 : 0;
    in_replicas += grid.levels(plan::Axis::replicate).size() > 1 ? 1 : 0;
    expect_same_bits(train_history(one, some.comm()), references[model][optimizer], name);
  }
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    EXPECT_GT(in_shards, 5);
    EXPECT_GT(in_replicas, 5);
  }
}

// Rounded for the wire, gradients have not the bits of one rank; but two levels round them once, as
// one level does.
TEST(Layout, TwoLevelsGiveTheBitsOfOneLevelWhereGradientsAreRounded) {
  for (config::Settings settings : {small_gpt2(8), small_llama(8)}) {
    settings.training.steps = 2;
    settings.parallel.reduce = DType::bf16;
    settings.ranks_per_node = 2;
    for (const int group : {mesh::world_group, 4}) {
      settings.shard_group = group;
      settings.parallel.hierarchical.kind = plan::Hierarchical::never;
      const History flat = train_history(settings, MPI_COMM_WORLD);
      settings.parallel.hierarchical.kind = plan::Hierarchical::always;
      ASSERT_TRUE(grid_of(settings, MPI_COMM_WORLD).has_levels());
      expect_same_bits(train_history(settings, MPI_COMM_WORLD), flat, "bf16 on the wire");
    }
  }
}

// Three ranks of a node are no node of the tree: one level, or an error that says why not two.
TEST(Layout, NodesOfThreeHaveOneLevel) {
  config::Settings settings = small_gpt2(6);
  settings.training.steps = 1;
  settings.ranks_per_node = 3;
  settings.parallel.hierarchical.bytes = 1;
  const FirstRanks some(6);
  if (!some.has_me()) return;
  EXPECT_FALSE(grid_of(settings, some.comm()).has_levels());
  settings.parallel.hierarchical.kind = plan::Hierarchical::always;
  EXPECT_EQ(ostrakon::testing::error_of([&] { grid_of(settings, some.comm()); }),
            "parallel.hierarchical_collectives = always: nodes have 3 ranks of a shard group; "
            "expected a power of two, with which sums keep their bits, or auto");
}

TEST(Layout, ThreeRanksAgreeToRounding) {
  for (config::Settings settings : {small_gpt2(6), small_llama(6)}) {
    settings.training.steps = 8;
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
    const bool same = train::make_trainer(settings, mesh)
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
