// SPDX-License-Identifier: Apache-2.0

// Plans over tensor ranks: what is reported of them, the order of their sums, what overlaps, and
// what is computed again.

#include <array>
#include <iterator>
#include <map>
#include <ostrakon/plan/report/report.hpp>

#include "plan/random_plans.hpp"
#include "plan/tensor_plans.hpp"

namespace ostrakon::tests {
namespace {

// ---- reports

/// Bytes that each rank sends to other nodes, over tensor ranks or over all others, message by
/// message.
std::vector<std::int64_t> count_across(const StepPlan& plan, int node, bool over_tensor) {
  const int ranks = plan.grid.ranks(), pieces = plan.grid.tensor(), shards = plan.grid.shard();
  const auto place = [&](int rank, Axis axis) {
    const int in_group = rank % (pieces * shards);
    if (axis == Axis::replicate) return rank / (pieces * shards);
    if (plan.grid.shard_first) return axis == Axis::shard ? in_group % shards : in_group / shards;
    return axis == Axis::tensor ? in_group % pieces : in_group / pieces;
  };
  std::vector<std::int64_t> across(static_cast<std::size_t>(ranks));
  for (const Action& action : plan.actions) {
    if (!is_collective(action) || is_over_tensor(action) != over_tensor) continue;
    for (int a = 0; a < ranks; ++a)
      for (int b = 0; b < ranks; ++b) {
        const bool partners =
            std::all_of(std::begin(axis_names), std::end(axis_names), [&](const Named<Axis>& axis) {
              return axis.value == action.span.axis || axis.value == Axis::micro_batch ||
                     axis.value == Axis::pipeline || axis.value == Axis::tensor_shard ||
                     place(a, axis.value) == place(b, axis.value);
            });
        if (partners && a / node != b / node) across[a] += message_bytes(action);
      }
  }
  return across;
}

TEST(TensorReports, CountTheTrafficOfTensorGroupsByItself) {
  for (const TensorRanks& ranks : {TensorRanks{2, 2, 1}, {4, 2, 1}, {2, 2, 2}})
    for (RankOrder order : {RankOrder::tensor_first, RankOrder::shard_first})
      for (int node : {1, 2, 4}) {
        SCOPED_TRACE(text("tensor ", ranks.tensor, ", ", name(order), ", nodes of ", node));
        const TensorDecoder decoder(ranks.tensor);
        Policy policy = ranks.policy(2);
        policy.rank_order = order;
        policy.activation_checkpointing.every = 1;
        const StepPlan plan = train_plan(decoder.description(), ranks.all(), policy);
        const Report report =
            make_report(plan, plan_memory(plan), plan_memory(plan, Space::host), node);
        std::int64_t over_tensor_ranks = 0;
        for (std::size_t a : actions_of(plan, is_over_tensor))
          over_tensor_ranks += plan.bytes_sent(plan.actions[a]);
        EXPECT_EQ(report.tensor.ranks, ranks.tensor);
        EXPECT_EQ(report.tensor.bytes_sent, over_tensor_ranks);
        // Two blocks with 5, 4 and 7 exchanges, an embedding with 2 and a head with 5.
        EXPECT_EQ(report.tensor.collectives, 2 * (2 * (5 + 4 + 7) + 2 + 5));
        EXPECT_EQ(report.tensor.bytes_sent + report.shard.bytes_sent + report.replicate.bytes_sent,
                  plan.bytes_sent());
        const int last = (ranks.tensor - 1) * (order == RankOrder::shard_first ? ranks.shard : 1);
        EXPECT_EQ(report.tensor.spans_nodes, last >= node);
        const auto over_tensor = count_across(plan, node, true);
        const auto over_others = count_across(plan, node, false);
        std::int64_t most = 0, of_most = 0;
        for (std::size_t rank = 0; rank < over_tensor.size(); ++rank)
          if (over_tensor[rank] + over_others[rank] > most) {
            most = over_tensor[rank] + over_others[rank];
            of_most = over_tensor[rank];
          }
        EXPECT_EQ(report.bytes_across_nodes, most);
        EXPECT_EQ(report.tensor.bytes_across_nodes, of_most);
      }
}

TEST(TensorReports, SayWhetherTensorGroupsSpanNodesWhateverTheySend) {
  const TensorRanks ranks{2, 2, 1};
  const Policy policy = ranks.policy(1);
  ModelDescription model = make_model(1, false, 3);
  model.tensor_ranks = 2;
  const StepPlan plan = train_plan(model, ranks.all(), policy);
  for (int node : {1, 2, 4}) {
    const Report report =
        make_report(plan, plan_memory(plan), plan_memory(plan, Space::host), node);
    EXPECT_EQ(report.tensor.collectives, 0);
    EXPECT_EQ(report.tensor.spans_nodes, node == 1);
    EXPECT_EQ(report.shard.spans_nodes, node < 4);
  }
}

// ---- sums

TEST(TensorSums, HaveTheBitsOfOneRankInAsManyPieces) {
  const std::string equal = "bitwise equal to 1 rank", rounding = "equal to 1 rank up to rounding";
  const std::string shared = "bitwise equal to 2 ranks, which share each sequence";
  const std::string pieces = " with model.tensor_grain = 2";
  const auto changed = [](TensorDecoder decoder, bool is_half, std::int64_t grain = 1) {
    decoder.is_half = is_half;
    decoder.leaf.grain = grain;
    return decoder;
  };
  const auto by_sequence = [](std::int64_t batch) {
    TensorDecoder decoder(2);
    decoder.leaf.batch = batch;
    decoder.leaf.by_sequence = true;
    return decoder;
  };
  const TensorRanks ranks{2, 2, 1};
  const TensorDecoder parts = TensorDecoder(2).in_parts(2), chunks = TensorDecoder(2).in_chunks(2);
  struct Sums {
    TensorDecoder decoder;
    TensorRanks ranks;
    std::string words;
    bool cuts_products = false;
    DType reduce = DType::fp32;
    Accumulation accumulation = Accumulation::automatic;
  };
  const std::string apart =
      rounding +
      ", as ranks that share sequences or experts each sum their micro-batches first "
      "(parallel.accumulation = reduce_last)";
  std::vector<Sums> all = {
      // Ranks that share sequences.
      {parts, ranks, shared},
      {TensorDecoder(2, 1).in_parts(2), ranks, shared + "," + pieces},
      {changed(parts, false, 2), ranks, equal},
      {changed(TensorDecoder(2, 1).in_parts(2), false, 2), ranks, equal + pieces},
      {parts, ranks, apart, false, DType::fp32, Accumulation::reduce_last},
      {changed(parts, false, 2), ranks, apart, false, DType::fp32, Accumulation::reduce_last},
      // Gradients that are sent rounded, and three ranks that are summed before two.
      {TensorDecoder(2), ranks, rounding, false, DType::bf16},
      {TensorDecoder(2), {2, 3, 2}, rounding},
      // Chunks of rows are other products: in 16 bits a library's.
      {chunks, ranks, equal},
      {changed(chunks, true), ranks, equal, true},
      {changed(TensorDecoder(2), true), ranks, equal},
      {changed(parts, true), ranks, shared, true},
      // With three sequences at once, each rank has only a part of the tree.
      {by_sequence(3), {2, 1, 1}, rounding},
      {by_sequence(4), {2, 1, 1}, equal}};
  for (int grain : {1, 2, 4})
    for (int tensor : {1, 2, 4})
      for (int shards : {1, 2})
        if (grain == 1 || grain >= tensor)  // a decoder has no other pieces
          all.push_back(
              {TensorDecoder(tensor, grain),
               {tensor, shards, 2},
               equal + (tensor <= grain ? "" : text(" with model.tensor_grain = ", tensor))});
  for (const Sums& sums : all) {
    Policy policy = sums.ranks.policy(2);
    policy.context_ranks = static_cast<int>(sums.decoder.leaf.context_ranks);
    policy.reduce = sums.reduce;
    policy.accumulation = sums.accumulation;
    const StepPlan plan = train_plan(sums.decoder.description(), sums.ranks.all(), policy);
    EXPECT_EQ(plan.has_the_bits_of_one_rank(), sums.words == equal);
    EXPECT_EQ(describe_sums(plan), sums.words);
    EXPECT_EQ(plan.layouts.tensor_grain, sums.decoder.leaf.tensor_grain);
    EXPECT_EQ(testing::contains(describe_cut_products(plan), "16-bit products of fewer rows"),
              sums.cuts_products);
  }
}

// ---- overlap

/// Bytes that the tensor and context exchanges of a block's forward, or backward, bring, and those
/// of the exchanges that overlap with products.
struct Overlapped {
  double all = 0.0, overlapped = 0.0;
  double part() const { return overlapped / all; }
};
Overlapped overlap_of(const StepPlan& plan, Kind work) {
  Overlapped found;
  const std::vector<Kind> of = works(plan);
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    const Action& exchange = plan.actions[a];
    if (exchange.kind != Kind::exchange || exchange.unit != 1 || of[a] != work) continue;
    const int brought = exchange.buffer(Role::recv_buffer);
    const auto bytes = static_cast<double>(plan.bytes_sent(exchange));
    double flops = 0.0;
    for (std::size_t b = a + 1; b < plan.actions.size(); ++b) {
      const Action& next = plan.actions[b];
      const bool reads = std::any_of(next.uses.begin(), next.uses.end(),
                                     [&](const Use& use) { return use.buffer == brought; });
      if (reads) break;
      flops += next.flops;
    }
    found.all += bytes;
    if (flops > 0.0) found.overlapped += bytes;
  }
  return found;
}

TEST(TensorOverlap, OfExchangesWithProductsOfTheirBlock) {
  const auto plan_of = [](const TensorDecoder& decoder) {
    const TensorRanks ranks{2, 2, 1};
    Policy policy = ranks.policy(1);
    policy.context_ranks = static_cast<int>(decoder.leaf.context_ranks);
    return train_plan(decoder.description(), ranks.all(), policy);
  };
  for (bool again : {false, true})
    for (int parts : {1, 2}) {
      const auto decoder = [&](int chunks) {
        TensorDecoder made(2);
        if (parts > 1) made.in_parts(parts);
        made.recompute = {again, again, again};
        return made.in_chunks(chunks);
      };
      SCOPED_TRACE(text(parts, " parts, computed again: ", again));
      // Forward has nothing to overlap with but other chunks; in parts keys and values, here as
      // wide as rows, overlap with queries.
      EXPECT_LT(overlap_of(plan_of(decoder(1)), Kind::forward).part(), parts == 1 ? 0.01 : 0.33);
      const double two = overlap_of(plan_of(decoder(2)), Kind::forward).part();
      const double four = overlap_of(plan_of(decoder(4)), Kind::forward).part();
      EXPECT_GT(two, 0.45);
      EXPECT_GT(four, 0.7);
      // All but the gradient that a block begins with, and vectors.
      EXPECT_GT(overlap_of(plan_of(decoder(1)), Kind::backward).part(), 0.75);
    }
}

TEST(TensorOverlap, ChunksAndPhasesTakeNoMoreOperations) {
  const auto flops_of = [](const TensorDecoder& decoder) {
    const UnitDescription block = decoder.description().units[1];
    EXPECT_GE(flops(block.backward), block.gradient_flops);
    return std::array<double, 3>{flops(block.forward), recompute_flops(block.forward),
                                 flops(block.backward)};
  };
  for (bool again : {false, true})
    for (int parts : {1, 2}) {
      const auto decoder = [&](int tensor, int chunks) {
        TensorDecoder made(tensor);
        if (parts > 1) made.in_parts(parts);
        made.recompute = {again, again, again};
        return made.in_chunks(chunks);
      };
      // These are the operations of one rank, in one phase where there are no parts.
      std::array<double, 3> half = flops_of(decoder(1, 1));
      for (double& one : half) one /= 2.0;
      for (int chunks : {1, 2, 4}) {
        const std::array<double, 3> found = flops_of(decoder(2, chunks));
        for (std::size_t i = 0; i < half.size(); ++i)
          EXPECT_DOUBLE_EQ(found[i], half[i]) << chunks << " " << i << again << parts;
      }
    }
}

// ---- what is computed again

/// A block of five phases, of which some do nothing where only what is saved is wanted.
StepPlan plan_of_phases(const std::array<bool, 5>& recomputes) {
  ModelDescription model = make_model(2, false, 7);
  model.tensor_ranks = 2;
  UnitDescription& block = model.units[1];
  block.recomputes = true;
  block.forward.clear();
  for (std::size_t p = 0; p < recomputes.size(); ++p) {
    Phase phase{100.0, 10.0 + static_cast<double>(p), 512};
    if (p + 1 < recomputes.size())
      phase.then = Exchange{p % 2 == 0 ? ExchangeKind::gather : ExchangeKind::reduce_scatter,
                            {Axis::tensor, 2},
                            1000 + 2 * static_cast<std::int64_t>(p),
                            4};
    if (p > 0) phase.reads = {static_cast<int>(p) - 1};
    phase.recomputes = recomputes[p];
    block.forward.push_back(phase);
  }
  const TensorRanks ranks{2, 2, 1};
  Policy policy = ranks.policy(2);
  policy.activation_checkpointing.every = 1;
  return train_plan(model, ranks.all(), policy);
}

TEST(TensorRecompute, LeavesOutTheLastPhasesThatSaveNothing) {
  const auto expect = [](const std::array<bool, 5>& recomputes, int phases) {
    const StepPlan plan = plan_of_phases(recomputes);
    const std::vector<Kind> work = works(plan);
    std::vector<std::string> found, expected;
    for (std::size_t a = 0; a < plan.actions.size(); ++a) {
      const Action& action = plan.actions[a];
      if (work[a] != Kind::recompute || action.micro_batch != 1) continue;
      found.push_back(text(name(action.kind), " ", action.phase));
      if (action.kind != Kind::recompute) continue;
      EXPECT_EQ(action.flops, 10.0 + action.phase);
      const bool is_last = action.phase + 1 == phases;
      EXPECT_EQ(action.buffer(Role::send_buffer) >= 0, !is_last);
      EXPECT_EQ(action.buffer(Role::recv_buffer) >= 0, action.phase > 0);
    }
    for (int p = 0; p < phases; ++p) {
      expected.push_back(text("recompute ", p));
      if (p + 1 < phases) expected.push_back(text("exchange ", p));
    }
    EXPECT_EQ(found, expected);
    expect_proven(plan);
  };
  expect({true, true, true, true, true}, 5);
  expect({true, true, true, true, false}, 4);
  expect({true, true, true, false, false}, 3);
  expect({true, false, true, false, false}, 3);
  expect({false, true, true, true, true}, 5);
  expect({false, true, false, false, true}, 5);
  expect({false, false, false, false, false}, 1);
}

TEST(TensorRecompute, OfABlockEndsWithWhatItSaves) {
  for (bool again : {false, true}) {
    TensorDecoder decoder(2);
    decoder.recompute.mlp = again;
    for (std::int64_t blocks : {1, 2}) {
      decoder.settings.blocks_per_unit = blocks;
      const TensorRanks ranks{2, 2, 1};
      Policy policy = ranks.policy(1);
      policy.activation_checkpointing.every = 1;
      const StepPlan plan = train_plan(decoder.description(), ranks.all(), policy);
      std::map<int, int> last;  // phase of each unit
      for (const Action& action : plan.actions)
        if (action.kind == Kind::recompute) last[action.unit] = action.phase;
      // Without the output, and without an MLP that backward computes.
      EXPECT_EQ(last.size(), blocks == 1 ? 2u : 1u);
      const UnitDescription unit = decoder.description().units[1];
      const auto phases = static_cast<int>(unit.forward.size());
      for (const auto& [index, phase] : last) EXPECT_EQ(phase, phases - (again ? 3 : 2)) << index;
    }
  }
}

}  // namespace
}  // namespace ostrakon::tests
