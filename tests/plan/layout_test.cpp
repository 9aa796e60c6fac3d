// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <ostrakon/plan/passes/builder.hpp>
#include <ostrakon/plan/passes/redistribute.hpp>

#include "plan/random_plans.hpp"
#include "plan/tensor_plans.hpp"
#include "support/covering.hpp"

namespace ostrakon::tests {
namespace {

Spans over_shard(const Grid& grid) { return {grid.span(Axis::shard)}; }
Spans over_world(const Grid& grid) { return {grid.span(Axis::shard), grid.span(Axis::replicate)}; }

/// With nodes of that many ranks.
Grid on_nodes(int node, Grid grid) {
  grid.node = node;
  return grid;
}

TEST(Grid, LevelsAreTheRanksOfANodeThenOneOfEach) {
  const Axis shard = Axis::shard, replicate = Axis::replicate;
  EXPECT_EQ(Grid(1, 8, 1).levels(shard), (Spans{{shard, 8}}));
  EXPECT_EQ(on_nodes(4, {1, 8, 1}).levels(shard), (Spans{{shard, 4}, {shard, 2, 4}}));
  EXPECT_EQ(on_nodes(4, {1, 12, 2}).levels(shard), (Spans{{shard, 4}, {shard, 3, 4}}));
  EXPECT_EQ(on_nodes(4, {1, 8, 1}).levels({shard, 4}), (Spans{{shard, 4}}));
  EXPECT_EQ(on_nodes(2, {1, 8, 1}).levels({shard, 4}), (Spans{{shard, 2}, {shard, 2, 2}}));
  // Replicas of the model next to each other on a node.
  EXPECT_EQ(on_nodes(4, {1, 2, 8}).levels(shard), (Spans{{shard, 2}}));
  EXPECT_EQ(on_nodes(4, {1, 2, 8}).levels(replicate), (Spans{{replicate, 2}, {replicate, 4, 2}}));
  EXPECT_EQ(on_nodes(6, {1, 3, 4}).levels(replicate), (Spans{{replicate, 2}, {replicate, 2, 2}}));
  // One rank on each node, groups inside nodes, nodes that groups don't fill evenly, and those with
  // no power of two.
  for (const Grid& grid : {on_nodes(1, {1, 4, 2}), on_nodes(4, {1, 4, 2}), on_nodes(6, {1, 4, 3}),
                           on_nodes(4, {1, 6, 2}), on_nodes(3, {1, 6, 1}), on_nodes(3, {1, 1, 6}),
                           on_nodes(4, {16, 1, 1})})
    EXPECT_FALSE(grid.has_levels()) << grid.shard() << " " << grid.replicas() << " " << grid.node;
  EXPECT_EQ(on_nodes(4, {8, 8, 1}).levels(Axis::micro_batch), (Spans{{Axis::micro_batch, 8}}));
}

TEST(Layouts, AreInTwoLevelsWhereItPaysOrIsAsked) {
  ModelDescription model;
  model.units.resize(2);
  model.units[1].parameter_elements = 1000;  // 4,000 bytes
  Policy policy;
  policy.leaves = 8;
  const auto node = [&](Hierarchical::Kind kind, std::int64_t bytes, int ranks_per_node) {
    policy.hierarchical = {kind, bytes};
    policy.ranks_per_node = ranks_per_node;
    return make_grid(model, 8, policy).node;
  };
  EXPECT_EQ(node(Hierarchical::by_size, 4000, 4), 4);
  EXPECT_EQ(node(Hierarchical::by_size, 4001, 4), 0);
  EXPECT_EQ(node(Hierarchical::never, 1, 4), 0);
  EXPECT_EQ(node(Hierarchical::always, 4001, 4), 4);
  for (const int nodes : {0, 1, 8, 16, 3}) EXPECT_EQ(node(Hierarchical::by_size, 1, nodes), 0);
  const auto refused = [&](int ranks, int group, int ranks_per_node) {
    policy.leaves = ranks;
    policy.shard_group = group;
    policy.hierarchical.kind = Hierarchical::always;
    policy.ranks_per_node = ranks_per_node;
    return refusal([&] { make_grid(model, ranks, policy); });
  };
  const std::string key = "parallel.hierarchical_collectives = always: ";
  EXPECT_EQ(refused(8, 0, 8), "");
  EXPECT_EQ(refused(8, 4, 4), "");
  EXPECT_EQ(refused(8, 2, 4), "");
  EXPECT_EQ(refused(12, 3, 6), "");
  EXPECT_HAS(refused(6, 0, 3),
             key + "nodes have 3 ranks of a shard group; expected a power of two");
  EXPECT_HAS(refused(12, 2, 6), key + "nodes have 3 ranks of a replicate group");
  EXPECT_HAS(refused(12, 6, 4), key +
                                    "shard groups of 6 ranks don't have equally many on each "
                                    "node of 4; expected parallel.shard_group to divide");
}

// Where trees are over fewer leaves than a node's ranks have, a part of them is summed first.
TEST(Layouts, LevelsAreInsideTheTreesOfAGrain) {
  ModelDescription model;
  model.units.resize(1);
  Policy policy;
  policy.leaves = 64;
  policy.ranks_per_node = 8;
  policy.hierarchical = {Hierarchical::by_size, 0};
  const auto node = [&](std::int64_t grain, int group, Accumulation accumulation) {
    policy.sum_grain = grain;
    policy.shard_group = group;
    policy.accumulation = accumulation;
    return make_grid(model, 16, policy).node;
  };
  EXPECT_EQ(node(0, 0, Accumulation::reduce_each), 8);
  EXPECT_EQ(node(8, 0, Accumulation::reduce_each), 8);
  EXPECT_EQ(node(4, 0, Accumulation::reduce_each), 4);
  EXPECT_EQ(node(1, 0, Accumulation::reduce_each), 0);
  // Sums of four leaves each, of two replicas on a node.
  EXPECT_EQ(node(8, 4, Accumulation::reduce_each), 8);
  EXPECT_EQ(node(4, 4, Accumulation::reduce_each), 4);
  EXPECT_FALSE(make_grid(model, 16, policy).has_levels());
  // Sums of whole trees are added by one tree: levels change nothing.
  EXPECT_EQ(node(4, 4, Accumulation::shard_each), 8);
  policy.hierarchical.kind = Hierarchical::always;
  EXPECT_EQ(node(8, 4, Accumulation::reduce_each), 8);
  EXPECT_HAS(
      refusal([&] { node(4, 4, Accumulation::reduce_each); }),
      "parallel.hierarchical_collectives = always: trees over training.sum_grain = 4 leaves");
}

/// Whether each group of a span, in each stage, lies on one node.
bool are_on_one_node(const Grid& grid, const Span& span, int ranks_per_node) {
  const int ranks = grid.ranks_of_stage(), apart = grid.stride(span);
  for (int rank = 0; rank < ranks * grid.stages(); ++rank) {
    const int in_stage = rank % ranks;
    const int first = rank - grid.coordinate(in_stage, span) * apart;
    if (rank / ranks_per_node != first / ranks_per_node) return false;
  }
  return true;
}

TEST(Windows, AreOfRanksOfANode) {
  int several = 0;
  for (int tensor = 1; tensor <= 2; ++tensor)
    for (const Choices& row : covering_rows({4, 3, 3, 2}, [](const Choices&) { return true; })) {
      const int shard = 1 + row[0], replicas = 1 + row[1], stages = 1 + row[2];
      const int ranks = tensor * shard * replicas, all = ranks * stages;
      for (int node = 1; node <= all; ++node) {
        if (all % node != 0) continue;
        Policy policy;
        policy.tensor_ranks = tensor;
        policy.shard_group = tensor * shard;
        policy.rank_order = row[3] == 0 ? RankOrder::tensor_first : RankOrder::shard_first;
        policy.ranks_per_node = node;
        policy.leaves = ranks;
        EXPECT_EQ(one_level(ranks, policy, stages).window, 0);
        policy.node_windows = NodeWindows::always;
        Grid grid = one_level(ranks, policy, stages);
        grid.node = node;
        std::vector<Span> spans = {{Axis::shard, 1}, {Axis::tensor_shard, tensor}};
        for (const Axis axis : {Axis::tensor, Axis::shard, Axis::replicate}) {
          spans.push_back(grid.span(axis));
          for (const Span& level : grid.levels(axis)) spans.push_back(level);
        }
        for (const Span& span : spans) {
          const bool on_one = are_on_one_node(grid, span, node);
          SCOPED_TRACE(text(tensor, " x ", shard, " x ", replicas, ", ", stages,
                            " stages, nodes of ", node, ", over ", name(span.axis), " ", span.ranks,
                            " by ", span.stride));
          if (grid.has_window(span)) {
            EXPECT_TRUE(on_one);
            several += span.ranks > 1 && node < all ? 1 : 0;
          }
          if (span.ranks > 1 && node > 1 && (ranks % node == 0 || node % ranks == 0)) {
            EXPECT_EQ(grid.has_window(span), on_one);
          }
        }
        EXPECT_FALSE(grid.has_window(grid.span(Axis::pipeline)));
      }
    }
  EXPECT_GT(several, 30);
}

TEST(Spans, LeaveOutThoseOfOneRankAndRefuseTooMany) {
  EXPECT_TRUE((Spans{{Axis::shard, 1}, {Axis::replicate, 1}}).empty());
  Spans spans{{Axis::shard, 4}, {Axis::replicate, 3}};
  EXPECT_EQ(spans.parts(), 12);
  EXPECT_EQ(spans.innermost(), (Span{Axis::replicate, 3}));
  EXPECT_EQ(spans.outer(), (Spans{{Axis::shard, 4}}));
  EXPECT_TRUE(spans.has(Axis::shard));
  EXPECT_FALSE(spans.outer().has(Axis::replicate));
  spans.push({Axis::shard, 2, 2});
  spans.push({Axis::replicate, 2, 3});
  spans.push({Axis::tensor, 2});
  EXPECT_EQ(spans.size(), 5);
  EXPECT_EQ(spans.parts(), 96);
  EXPECT_THROW(spans.push({Axis::shard, 2}), std::logic_error);
  EXPECT_NO_THROW(spans.push({Axis::shard, 1}));
  EXPECT_EQ(spans.size(), 5);
}

/// Makes a plan with one flat parameter, on 2 copies of 8 ranks.
StepPlan small_plan() {
  StepPlan plan;
  plan.grid = Grid(3, 8, 2);
  plan.flats = {{0, true, 16 * 64, 16 * 64, {}}};
  return plan;
}

// Every element belongs to as many ranks as hold copies of it: to one where all axes divide it.
TEST(StepPlan, PartsOfRanksTileTheFlatParameter) {
  const StepPlan plan = small_plan();
  const Grid& grid = plan.grid;
  for (const Spans& divided :
       {Spans(), over_shard(grid), over_world(grid), Spans{{Axis::replicate, 2}, {Axis::shard, 8}},
        Spans{{Axis::shard, 4}}, Spans{{Axis::shard, 2, 4}},
        Spans{{Axis::shard, 2, 4}, {Axis::shard, 4}},
        Spans{{Axis::shard, 2}, {Axis::replicate, 2}}}) {
    const std::int64_t part = plan.elements({0, 1}, divided);
    EXPECT_EQ(part * divided.parts(), plan.flats[0].padded);
    std::map<std::int64_t, int> holders;  // by first element
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      const std::int64_t first = plan.first_element(0, divided, rank);
      EXPECT_EQ(first % part, 0);
      ++holders[first];
    }
    EXPECT_EQ(static_cast<std::int64_t>(holders.size()), divided.parts());
    for (const auto& [first, count] : holders) EXPECT_EQ(count * divided.parts(), grid.ranks());
  }
}

TEST(StepPlan, PartsOfASpanLieInTheOrderOfItsRanks) {
  const StepPlan plan = small_plan();
  // Ranks 0 to 7 are one replica of the model. Of runs of four neighbours: the index of each.
  EXPECT_EQ(plan.first_element(0, {{Axis::shard, 4}}, 6), 2 * 256);
  // With one rank of each run, the place is that of the run.
  EXPECT_EQ(plan.first_element(0, {{Axis::shard, 2, 4}}, 6), 512);
  EXPECT_EQ(plan.grid.stride(Span{Axis::shard, 2, 4}), 4);
  EXPECT_EQ(plan.grid.stride(Span{Axis::replicate, 2}), 8);
}

struct Strategy {
  Sharding sharding = Sharding::full;
  OptimizerGroup group = OptimizerGroup::shard_group;
  Offload offload = Offload::none;
  std::int64_t element_bytes = 4;

  Layouts layouts(const Grid& grid, Purpose purpose = Purpose::train) const {
    Policy policy;
    policy.sharding = sharding;
    policy.shard_optimizer_over = group;
    policy.offload = offload;
    ModelDescription model;
    model.element_bytes = element_bytes;
    return find_layouts(policy, model, grid, purpose);
  }
};

/// On four ranks along shard and two replicas, each of one tensor rank or of two: DDP; ZeRO-1; a
/// whole 16-bit copy, with masters only where they are updated; FSDP with fp32 masters, rounded as
/// they are gathered; HSDP with the optimizer over all ranks, and with it on the host.
TEST(Layouts, AreThoseOfTheKnownStrategies) {
  const OptimizerGroup group = OptimizerGroup::shard_group, world = OptimizerGroup::world;
  for (int tensor : {1, 2}) {
    const Grid grid(1, 4, 2, 1, tensor);
    const Spans pieces{{Axis::tensor, tensor}}, shards{{Axis::tensor, tensor}, {Axis::shard, 4}};
    Spans all = shards;
    all.push({Axis::replicate, 2});
    struct Known {
      Strategy strategy;
      Spans masters, compute, update;
      bool has_copies, gathers;
    };
    for (const Known& known :
         {Known{{Sharding::none, group}, pieces, pieces, pieces, false, false},
          {{Sharding::optimizer, group}, pieces, pieces, shards, false, false},
          {{Sharding::gradients, world, Offload::none, 2}, all, pieces, all, true, false},
          {{Sharding::full, group, Offload::none, 2}, shards, shards, shards, false, true},
          {{Sharding::full, world}, shards, shards, all, false, true},
          {{Sharding::full, world, Offload::optimizer}, all, shards, all, true, true}}) {
      const Layouts layouts = known.strategy.layouts(grid);
      EXPECT_EQ(layouts.masters.divided, known.masters);
      EXPECT_EQ(layouts.masters.element_bytes, 4);
      EXPECT_EQ(layouts.compute.divided, known.compute);
      EXPECT_EQ(layouts.gathered.divided, pieces);
      EXPECT_EQ(layouts.gathered.element_bytes, known.strategy.element_bytes);
      EXPECT_EQ(layouts.gradient.divided, all);
      EXPECT_EQ(layouts.update.divided, known.update);
      EXPECT_EQ(layouts.has_copies(), known.has_copies);
      EXPECT_EQ(layouts.gathers(), known.gathers);
    }
  }
}

/// Without frozen parameters there is nothing to keep without masters, and so no copy. All stages
/// of a pipeline have the same layouts, whichever has frozen parameters.
TEST(Layouts, HaveCopiesForFrozenParametersWhereThereAreSome) {
  Policy policy;
  policy.sharding = Sharding::full;
  policy.frozen_without_masters = true;
  ModelDescription model;
  model.element_bytes = 2;
  model.units.resize(2);
  const auto has_copies = [&] {
    const Layouts layouts = find_layouts(policy, model, Grid(1, 4, 1), Purpose::train);
    EXPECT_EQ(layouts.frozen_without_masters, layouts.has_copies());
    return layouts.has_copies();
  };
  EXPECT_FALSE(has_copies());
  model.units[1].frozen_elements = 8;
  EXPECT_TRUE(has_copies());
  model.units[1].frozen_elements = 0;
  policy.stages = 2;
  EXPECT_TRUE(has_copies());
}

TEST(Layouts, OverTensorRanksAreThoseOfOneInsideOfThem) {
  for (const Choices& row :
       covering_rows({4, 2, 4, 2, 3, 2, 2}, [](const Choices&) { return true; })) {
    const Strategy strategy{static_cast<Sharding>(row[0]), static_cast<OptimizerGroup>(row[1]),
                            static_cast<Offload>(row[2]), row[3] == 0 ? 2 : 4};
    const int ranks = 1 << row[4], shard = 1 + row[5], replicas = 1 + 2 * row[6];
    const Layouts whole = strategy.layouts({1, shard, replicas});
    const Layouts parts = strategy.layouts({1, shard, replicas, 1, ranks});
    for (Layout Layouts::*one : {&Layouts::masters, &Layouts::compute, &Layouts::gathered,
                                 &Layouts::gradient, &Layouts::update}) {
      Spans expected{{Axis::tensor, ranks}};
      expected.push((whole.*one).divided);
      EXPECT_EQ(parts.*one, (whole.*one).over(expected));
    }
    EXPECT_EQ(parts.gathered.divided, (Spans{{Axis::tensor, ranks}}));
    EXPECT_EQ(parts.has_copies(), whole.has_copies());
    EXPECT_EQ(parts.gathers(), whole.gathers());
    EXPECT_EQ(parts.reduces(), whole.reduces());
  }
}

// A node of four has two of the four ranks along shard with the same pieces.
TEST(Layouts, AreDividedOverTheLevelsOfTheRanksWithTheSamePieces) {
  const TensorRanks ranks{2, 4, 2};
  Policy policy = ranks.policy(1);
  policy.ranks_per_node = 4;
  policy.hierarchical = {Hierarchical::always, 1};
  const StepPlan plan = train_plan(TensorDecoder(2).description(), ranks.all(), policy);
  Spans shards{{Axis::tensor, 2}, {Axis::shard, 2}, {Axis::shard, 2, 2}};
  EXPECT_EQ(plan.layouts.masters.divided, shards);
  EXPECT_EQ(plan.layouts.gathered.divided, (Spans{{Axis::tensor, 2}}));
  shards.push({Axis::replicate, 2});
  EXPECT_EQ(plan.layouts.gradient.divided, shards);
  expect_proven(plan);
}

TEST(Layouts, OfWhatDecodesAreParametersAsTheyAre) {
  const Layouts decode =
      Strategy{Sharding::full, OptimizerGroup::shard_group, Offload::all, 2}.layouts(
          {1, 4, 1}, Purpose::decode);
  EXPECT_EQ(decode.masters.space, Space::device);
  EXPECT_FALSE(decode.gathers());
}

// From any layout to any that is divided over its outer spans: the buffer at the end is laid out as
// was asked for, with one collective for each span that is left, the innermost first.
TEST(Redistribute, ArrivesAtTheLayoutThatIsAskedFor) {
  const ModelDescription model = make_model(1, false, 3);
  const Grid grid(1, 4, 3);
  const Spans all[] = {Spans(), over_shard(grid), over_world(grid)};
  for (int from = 0; from < 3; ++from)
    for (int to = 0; to <= from; ++to)
      for (Space source_space : {Space::device, Space::host})
        for (Space target_space : {Space::device, Space::host}) {
          Builder builder(model, grid, Layouts(), Purpose::train);
          const FlatRange flats = builder.plan().trained(0);
          const int source = builder.make_array("source", 0, Category::gradients, flats,
                                                {all[from], source_space, 4});
          std::vector<int> made;
          const Layout target{all[to], target_space, 4};
          const int arrived = redistribute(builder, 0, source, target, Redistribution(), made);
          const StepPlan& plan = builder.plan();
          EXPECT_EQ(plan.buffers[arrived].divided, target.divided);
          EXPECT_EQ(plan.buffers[arrived].space, target.space);
          EXPECT_EQ(plan.buffers[arrived].bytes, 4 * plan.elements(flats, target.divided));
          if (from == to && source_space == target_space) {
            EXPECT_EQ(arrived, source);
          } else {
            EXPECT_EQ(made.back(), arrived);
          }
          std::vector<Span> gathered;
          for (const Action& action : plan.actions) {
            if (!communicates(action.kind)) continue;
            gathered.push_back(action.span);
            for (const Use& use : action.uses)
              EXPECT_EQ(plan.buffers[use.buffer].space, Space::device);
          }
          std::vector<Span> expected;
          for (Spans at = all[from]; at.size() > to; at = at.outer())
            expected.push_back(at.innermost());
          EXPECT_EQ(gathered, expected);
        }
}

TEST(Redistribute, ConvertsOverOneRankWhereThereIsNothingToGather) {
  const ModelDescription model = make_model(1, false, 3);
  Builder builder(model, Grid(1, 1, 1), Layouts(), Purpose::train);
  const int source = builder.make_array("source", 0, Category::parameters,
                                        builder.plan().trained(0), {{}, Space::device, 4});
  std::vector<int> made;
  Redistribution moving;
  moving.converts = true;
  const int arrived = redistribute(builder, 0, source, {{}, Space::device, 2}, moving, made);
  ASSERT_EQ(builder.plan().actions.size(), 1u);
  EXPECT_TRUE(builder.plan().actions[0].converts);
  EXPECT_EQ(2 * builder.plan().buffers[arrived].bytes, builder.plan().buffers[source].bytes);
}

}  // namespace
}  // namespace ostrakon::tests
