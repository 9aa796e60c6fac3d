// SPDX-License-Identifier: Apache-2.0

// Plans over tensor ranks: what they are divided over, that they hold for decoders of all kinds,
// and what they send and keep, against closed forms.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/ir/layout.hpp>
#include <ostrakon/plan/ir/levels.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/proof/stage_proof.hpp>
#include <ostrakon/plan/report/report.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostream>
#include <random>
#include <set>
#include <stdexcept>

#include "plan/random_plans.hpp"
#include "plan/rank_mutants.hpp"
#include "plan/tensor_plans.hpp"
#include "support/trials.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

std::string refused_plan(const ModelDescription& model, int ranks, const Policy& policy) {
  try {
    build_step_plan(model, ranks, policy, Purpose::train);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// ---- layouts

struct Strategy {
  Sharding sharding = Sharding::full;
  OptimizerGroup group = OptimizerGroup::shard_group;
  Offload offload = Offload::none;
  std::int64_t element_bytes = 4;
};

Layouts layouts_of(const Strategy& strategy, const Grid& grid) {
  Policy policy;
  policy.sharding = strategy.sharding;
  policy.shard_optimizer_over = strategy.group;
  policy.offload = strategy.offload;
  ModelDescription model;
  model.element_bytes = strategy.element_bytes;
  return find_layouts(policy, model, grid, Purpose::train);
}

TEST(TensorLayouts, AreThoseOfTheKnownStrategies) {
  const Grid grid(1, 4, 2, 1, 2);
  const OptimizerGroup group = OptimizerGroup::shard_group, world = OptimizerGroup::world;
  const Spans pieces{{Axis::tensor, 2}}, shards{{Axis::tensor, 2}, {Axis::shard, 4}};
  const Spans all{{Axis::tensor, 2}, {Axis::shard, 4}, {Axis::replicate, 2}};
  const auto expect = [&](const Strategy& strategy, const Spans& masters, const Spans& compute,
                          const Spans& update) {
    const Layouts layouts = layouts_of(strategy, grid);
    EXPECT_EQ(layouts.masters.divided, masters);
    EXPECT_EQ(layouts.compute.divided, compute);
    EXPECT_EQ(layouts.gathered.divided, pieces);
    EXPECT_EQ(layouts.gradient.divided, all);
    EXPECT_EQ(layouts.update.divided, update);
  };
  expect({Sharding::none, group, Offload::none, 4}, pieces, pieces, pieces);
  expect({Sharding::optimizer, group, Offload::none, 4}, pieces, pieces, shards);
  expect({Sharding::gradients, world, Offload::none, 2}, all, pieces, all);
  expect({Sharding::full, group, Offload::none, 2}, shards, shards, shards);
  expect({Sharding::full, world, Offload::none, 4}, shards, shards, all);
  expect({Sharding::full, world, Offload::optimizer, 4}, all, shards, all);
}

TEST(TensorLayouts, AreThoseWithoutTensorRanksInsideOfThem) {
  int compared = 0;
  for (Sharding sharding :
       {Sharding::none, Sharding::optimizer, Sharding::gradients, Sharding::full})
    for (OptimizerGroup group : {OptimizerGroup::shard_group, OptimizerGroup::world})
      for (Offload offload : {Offload::none, Offload::optimizer, Offload::parameters, Offload::all})
        for (std::int64_t bytes : {2, 4})
          for (int ranks : {1, 2, 4})
            for (const TensorRanks& rest :
                 {TensorRanks{1, 1, 1}, {1, 4, 1}, {1, 1, 3}, {1, 2, 3}}) {
              const Strategy strategy{sharding, group, offload, bytes};
              const Layouts whole = layouts_of(strategy, {1, rest.shard, rest.replicas});
              const Layouts parts = layouts_of(strategy, {1, rest.shard, rest.replicas, 1, ranks});
              for (Layout Layouts::*one : {&Layouts::masters, &Layouts::compute, &Layouts::gathered,
                                           &Layouts::gradient, &Layouts::update}) {
                Spans expected{{Axis::tensor, ranks}};
                expected.push((whole.*one).divided);
                EXPECT_EQ(parts.*one, (whole.*one).over(expected));
                ++compared;
              }
              EXPECT_EQ(parts.gathered.divided, (Spans{{Axis::tensor, ranks}}));
              EXPECT_EQ(parts.has_copies(), whole.has_copies());
              EXPECT_EQ(parts.gathers(), whole.gathers());
              EXPECT_EQ(parts.reduces(), whole.reduces());
            }
  EXPECT_EQ(compared, 4 * 2 * 4 * 2 * 3 * 4 * 5);
}

// A node of four has two of the four ranks along shard with the same pieces.
TEST(TensorLayouts, AreDividedOverTheLevelsOfTheRanksWithTheSamePieces) {
  const TensorRanks ranks{2, 4, 2};
  Policy policy;
  ranks.set(policy, 1);
  policy.ranks_per_node = 4;
  policy.hierarchical = {Hierarchical::always, 1};
  const StepPlan plan =
      build_step_plan(TensorDecoder(2).description(), ranks.all(), policy, Purpose::train);
  const Spans shards{{Axis::tensor, 2}, {Axis::shard, 2}, {Axis::shard, 2, 2}};
  EXPECT_EQ(plan.layouts.masters.divided, shards);
  EXPECT_EQ(plan.layouts.gathered.divided, (Spans{{Axis::tensor, 2}}));
  Spans all = shards;
  all.push({Axis::replicate, 2});
  EXPECT_EQ(plan.layouts.gradient.divided, all);
  EXPECT_NO_THROW(prove_stages({&plan}));
}

TEST(TensorLayouts, ExportGathersTheWhole) {
  int visits = 0;
  for (Sharding sharding : {Sharding::none, Sharding::optimizer, Sharding::full})
    for (Offload offload : {Offload::none, Offload::optimizer, Offload::all})
      for (const TensorRanks& ranks : {TensorRanks{2, 1, 1}, {2, 2, 2}, {4, 2, 1}, {4, 1, 2}}) {
        Policy policy;
        policy.sharding = sharding;
        policy.offload = offload;
        ranks.set(policy, 1);
        const StepPlan plan = build_step_plan(TensorDecoder(ranks.tensor).description(),
                                              ranks.all(), policy, Purpose::export_parameters);
        std::map<int, std::int64_t> gathered;  // over tensor ranks, of each unit
        for (const Action& action : plan.actions) {
          if (is_over_tensor(action)) {
            EXPECT_EQ(action.kind, Kind::gather);
            EXPECT_EQ(action.span, (Span{Axis::tensor, ranks.tensor}));
            gathered[action.unit] += action.elements;
          }
          if (action.kind != Kind::export_parameters) continue;
          const Buffer& shown = plan.buffers[action.buffer(Role::parameters)];
          const std::int64_t whole = plan.padded(plan.units[action.unit].flats);
          EXPECT_TRUE(shown.divided.empty());
          EXPECT_EQ(shown.bytes, 4 * whole);
          EXPECT_EQ(gathered[action.unit], whole);
          ++visits;
        }
        EXPECT_NO_THROW(prove_memory(plan, plan_memory(plan)));
        EXPECT_NO_THROW(prove_stages({&plan}));
      }
  EXPECT_EQ(visits, 3 * 3 * 4 * 4);
}

// ---- ranks

/// Plans of nothing on grids of all forms, with each order of ranks and of sums.
template <class Body>
void for_each_grid(const Body& body) {
  for (const TensorRanks& ranks : {TensorRanks{2, 1, 1}, {2, 2, 1}, {2, 4, 3}, {4, 2, 2}})
    for (RankOrder order : {RankOrder::tensor_first, RankOrder::shard_first})
      for (Accumulation accumulation :
           {Accumulation::reduce_each, Accumulation::shard_each, Accumulation::reduce_last}) {
        Policy policy;
        policy.rank_order = order;
        policy.accumulation = accumulation;
        ranks.set(policy, 3);
        StepPlan plan;
        plan.grid = one_level(ranks.all(), policy);
        plan.layouts.accumulation = accumulation;
        body(plan, order);
      }
}

TEST(TensorRanks, OfAGroupComputeTheSameLeaves) {
  for_each_grid([](const StepPlan& plan, RankOrder order) {
    const Grid& grid = plan.grid;
    std::map<std::int64_t, std::vector<int>> ranks_of_leaf;
    for (int rank = 0; rank < grid.ranks(); ++rank)
      for (int m = 0; m < grid.micro_batches(); ++m)
        ranks_of_leaf[plan.leaf(rank, m)].push_back(rank);
    EXPECT_EQ(static_cast<std::int64_t>(ranks_of_leaf.size()),
              grid.ranks() / grid.tensor() * grid.micro_batches());
    EXPECT_EQ(ranks_of_leaf.begin()->first, 0);
    EXPECT_EQ(ranks_of_leaf.rbegin()->first + 1, static_cast<std::int64_t>(ranks_of_leaf.size()));
    const int apart = order == RankOrder::shard_first ? grid.shard() : 1;
    for (const auto& [leaf, ranks] : ranks_of_leaf) {
      ASSERT_EQ(static_cast<int>(ranks.size()), grid.tensor()) << leaf;
      for (int place = 0; place < grid.tensor(); ++place)
        EXPECT_EQ(ranks[place], ranks[0] + place * apart) << leaf;
    }
  });
}

TEST(TensorRanks, HaveNeighbouringPiecesWhateverTheirOrder) {
  for_each_grid([](StepPlan plan, RankOrder) {
    const Grid& grid = plan.grid;
    const std::int64_t padded = 64 * grid.ranks();
    plan.flats = {{0, true, padded, padded}};
    const Spans all{grid.span(Axis::tensor), grid.span(Axis::shard), grid.span(Axis::replicate)};
    std::set<std::int64_t> begins;
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      const std::int64_t own = padded / grid.tensor();
      EXPECT_EQ(plan.first_element(0, {grid.span(Axis::tensor)}, rank),
                grid.place(rank, Axis::tensor) * own);
      EXPECT_EQ(plan.first_element(0, all, rank) / own, grid.place(rank, Axis::tensor));
      begins.insert(plan.first_element(0, all, rank));
    }
    EXPECT_EQ(static_cast<int>(begins.size()), grid.ranks());
  });
}

// ---- plans

struct Exchanged {
  std::int64_t forward = 0, recompute = 0, backward = 0;  ///< bytes that a rank sends

  bool operator==(const Exchanged& other) const {
    return forward == other.forward && recompute == other.recompute && backward == other.backward;
  }
};
std::ostream& operator<<(std::ostream& out, const Exchanged& bytes) {
  return out << bytes.forward << " forward, " << bytes.recompute << " recomputed, "
             << bytes.backward << " backward";
}

/// What a rank sends to the others of its tensor group for each micro-batch, by hand.
Exchanged expected_exchanges(const TensorDecoder& decoder, const Policy& policy, Purpose purpose) {
  if (purpose == Purpose::export_parameters) return {};
  const model::DecoderSettings& settings = decoder.settings;
  const model::LeafShape& leaf = decoder.leaf;
  const bool trains = purpose == Purpose::train;
  const std::int64_t width = settings.width, element = decoder.is_half ? 2 : 4, compute = 4;
  const std::int64_t rows = leaf.batch * leaf.tokens / leaf.context_ranks;
  const std::int64_t pieces = std::max(leaf.tensor_grain, leaf.tensor_ranks);
  // These are as long as a row: weights and biases of norms; biases of two projections.
  const bool is_rms = settings.norm == math::NormKind::rmsnorm;
  const std::int64_t of_norm = settings.bias && !is_rms ? 2 : 1;
  const std::int64_t of_block = 2 * of_norm + (settings.bias ? 2 : 0);
  const std::int64_t gather = rows * width * element, sum = rows * width * compute;

  const std::int64_t forward = of_block * width * element + 2 * gather + 2 * sum;
  const std::int64_t saved = decoder.recompute.mlp ? gather + sum : 2 * gather + sum;
  const std::int64_t backward = 2 * (2 * gather) + 2 * sum + 2 * of_norm * width * compute;
  // A maximum, a sum and a logit of each row and piece of words.
  const std::int64_t losses = of_norm * width * element + gather + 3 * pieces * rows * compute;

  Exchanged bytes;
  bytes.forward = sum + settings.layers * forward + (trains ? 0 : losses);
  if (trains) {
    bytes.backward = settings.layers * backward + losses + sum + of_norm * width * compute;
    if (!decoder.freezes_embedding) bytes.backward += gather;
    const int every = policy.activation_checkpointing.every;
    std::int64_t first = 0;
    for (int unit = 0; first < settings.layers; ++unit, first += settings.blocks_per_unit) {
      const std::int64_t blocks = std::min(settings.blocks_per_unit, settings.layers - first);
      // The last block of each unit only saves.
      if (every > 0 && unit % every == 0)
        bytes.recompute += (blocks - 1) * forward + of_block * width * element + saved;
    }
  }
  const std::int64_t ranks = leaf.tensor_ranks;
  for (std::int64_t* one : {&bytes.forward, &bytes.recompute, &bytes.backward}) {
    EXPECT_EQ(*one % ranks, 0);
    *one = *one / ranks * (ranks - 1);
  }
  return bytes;
}

Exchanged find_exchanges(const std::vector<StepPlan>& stages) {
  Exchanged bytes;
  for (const StepPlan& plan : stages) {
    const std::vector<Kind> work = works(plan);
    for (std::size_t a = 0; a < plan.actions.size(); ++a) {
      const Action& action = plan.actions[a];
      if (action.kind != Kind::exchange || !is_over_tensor(action)) continue;
      (work[a] == Kind::forward     ? bytes.forward
       : work[a] == Kind::recompute ? bytes.recompute
                                    : bytes.backward) += plan.bytes_sent(action);
    }
  }
  return bytes;
}

struct RandomTensorPlan {
  TensorDecoder decoder{1};
  TensorRanks ranks;
  Policy policy;
  Purpose purpose = Purpose::train;
  std::int64_t micro_batches = 1;
  int stages = 1;

  std::vector<StepPlan> build() const {
    const ModelDescription model = decoder.description();
    return build_stage_plans(model, divide_units(model, stages), ranks.all(), policy, purpose);
  }
  /// Returns the plan on one tensor rank: shard groups and replicas are as large as they are.
  RandomTensorPlan whole() const {
    RandomTensorPlan other = *this;
    other.decoder = decoder.whole();
    other.ranks.tensor = 1;
    other.ranks.set(other.policy, micro_batches);
    other.policy.ranks_per_node = 0;
    other.policy.in_flight_gathers = {};
    return other;
  }
  std::string described() const {
    return text("tensor ", ranks.tensor, ", shard ", ranks.shard, ", ", ranks.replicas,
                " replicas, ", decoder.leaf.context_ranks, " parts, grain ",
                decoder.leaf.tensor_grain, ", ", stages, " stages, ", name(policy.sharding),
                ", offload ", name(policy.offload), ", checkpointing ",
                policy.activation_checkpointing.every, ", nodes of ", policy.ranks_per_node, ", ",
                name(policy.rank_order), ", ", name(purpose));
  }
};

RandomTensorPlan random_tensor_plan(Random& random) {
  const auto below = [&](std::uint64_t count) { return static_cast<int>(random() % count); };
  const auto power = [&](std::uint64_t most) { return 1 << below(most + 1); };
  RandomTensorPlan made;
  made.ranks = {power(2), power(2), power(1)};
  TensorDecoder& decoder = made.decoder =
      TensorDecoder(made.ranks.tensor, std::max(made.ranks.tensor, power(2)));
  if (below(2) == 0) decoder.with_biases();
  model::DecoderSettings& settings = decoder.settings;
  settings.layers = 1 + below(3);
  settings.blocks_per_unit = 1 + below(2);
  made.stages = below(5) == 0 ? 2 : 1;
  settings.tie_embeddings = made.stages == 1 && below(2) == 0;
  if (below(2) == 0) settings.norm = math::NormKind::rmsnorm;
  if (made.ranks.shard > 1 && below(3) == 0) {
    decoder.in_parts(2);
    if (below(2) == 0) decoder.leaf.grain = 2;
  } else {
    decoder.leaf.by_sequence = below(2) == 0;
  }
  decoder.recompute = {below(2) == 0, below(2) == 0, below(2) == 0};
  decoder.is_half = below(2) == 0;
  decoder.freezes_embedding = below(4) == 0;

  const ModelDescription model = decoder.description();
  Policy& policy = made.policy;
  made.micro_batches = 1 + below(3);
  policy = random_policy(random, model, made.ranks.all(), 1);
  vary(random, model, policy);
  // Each stage counts its own.
  policy.activation_checkpointing.every = below(made.stages == 1 ? 3 : 2);
  policy.in_flight_gathers.bytes /= made.ranks.tensor;
  policy.context_ranks = static_cast<int>(decoder.leaf.context_ranks);
  if (policy.context_ranks > 1) policy.accumulation = Accumulation::automatic;
  made.ranks.set(policy, made.micro_batches);
  policy.rank_order = static_cast<RankOrder>(below(3));
  if (below(3) == 0) add_grain(random, made.ranks.all(), policy);
  if (below(2) == 0) place_on_nodes(random, made.ranks.all(), policy);
  const int drawn = below(8);
  if (drawn < 2) made.purpose = drawn == 0 ? Purpose::evaluate : Purpose::export_parameters;
  return made;
}

/// Each tensor rank has an equal part, which its groups of ranks divide, padded behind.
void expect_divided(const StepPlan& plan) {
  const std::int64_t ranks = plan.grid.tensor(), block = 64 * plan.grid.ranks_of_stage() / ranks;
  for (const FlatParameter& flat : plan.flats) {
    EXPECT_EQ(flat.elements % ranks, 0);
    EXPECT_EQ(flat.padded % (ranks * block), 0);
    const std::int64_t behind = flat.padded / ranks - flat.elements / ranks;
    EXPECT_TRUE(0 <= behind && behind < block) << behind;
  }
}

std::vector<const Buffer*> kept_buffers(const StepPlan& plan) {
  std::vector<const Buffer*> kept;
  for (const Buffer& buffer : plan.buffers)
    if (buffer.persistent) kept.push_back(&buffer);
  return kept;
}

/// What stays from step to step is 1 / ranks of what one tensor rank has, but for padding. Returns
/// whether there was none.
bool expect_a_part_of(const StepPlan& whole, const StepPlan& part) {
  const std::int64_t ranks = part.grid.tensor(), block = 64 * whole.grid.ranks_of_stage();
  const std::vector<const Buffer*> all = kept_buffers(whole), own = kept_buffers(part);
  EXPECT_EQ(all.size(), own.size());
  bool is_exact = true;
  for (std::size_t b = 0; b < std::min(all.size(), own.size()); ++b) {
    EXPECT_EQ(all[b]->name, own[b]->name);
    EXPECT_EQ(all[b]->space, own[b]->space);
    const FlatRange flats = all[b]->flats;
    const std::int64_t more = ranks * own[b]->bytes - all[b]->bytes;
    if (all[b]->name == "sums") {
      EXPECT_EQ(own[b]->bytes, all[b]->bytes);
    }
    // It is the last, and has a part of everything.
    if (all[b]->name == "checkpoint" && is_exact) {
      EXPECT_EQ(more, 0);
    }
    if (flats.empty()) continue;
    const double bytes_of_padding = static_cast<double>(flats.size() * ranks * block) *
                                    static_cast<double>(all[b]->bytes) /
                                    static_cast<double>(whole.padded(flats));
    EXPECT_GE(more, 0) << own[b]->name;
    EXPECT_LT(static_cast<double>(more), bytes_of_padding) << own[b]->name;
    is_exact = is_exact && more == 0;
  }
  return is_exact;
}

TEST(TensorPlans, HoldForDecodersOfAllKinds) {
  Random random(51);
  std::map<std::string, int> seen;
  for (int trial = 0; trial < tests::trials(2500); ++trial) {
    const RandomTensorPlan made = random_tensor_plan(random);
    const std::string which = text("trial ", trial, ": ", made.described());
    SCOPED_TRACE(which);
    std::vector<StepPlan> stages, whole;
    ASSERT_NO_THROW(stages = made.build());
    ASSERT_NO_THROW(whole = made.whole().build());
    ASSERT_NO_THROW(prove_stages(stages));
    bool is_exact = true;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      for (Space space : {Space::device, Space::host})
        ASSERT_NO_THROW(prove_memory(stages[s], plan_memory(stages[s], space)));
      ASSERT_EQ(stages[s].grid.tensor(), made.ranks.tensor);
      expect_divided(stages[s]);
      is_exact = expect_a_part_of(whole[s], stages[s]) && is_exact;
      for (const Action& action : stages[s].actions) {
        if (!is_over_tensor(action)) continue;
        EXPECT_EQ(action.span, (Span{Axis::tensor, made.ranks.tensor}));
        EXPECT_EQ(action.kind,
                  made.purpose == Purpose::export_parameters ? Kind::gather : Kind::exchange);
      }
    }
    Exchanged expected = expected_exchanges(made.decoder, made.policy, made.purpose);
    for (std::int64_t* bytes : {&expected.forward, &expected.recompute, &expected.backward})
      *bytes *= made.micro_batches;
    const Exchanged found = find_exchanges(stages);
    EXPECT_EQ(found, expected);
    if (HasFailure()) break;
    ++seen[text("tensor ", made.ranks.tensor)];
    ++seen[text("purpose ", name(made.purpose))];
    ++seen[text("stages ", made.stages)];
    ++seen[text("parts ", made.decoder.leaf.context_ranks)];
    ++seen[text("offload ", name(made.policy.offload))];
    ++seen[text("sharding ", name(made.policy.sharding))];
    if (made.ranks.tensor == 1) continue;
    seen["recomputed"] += found.recompute > 0 ? 1 : 0;
    seen["without padding"] += is_exact ? 1 : 0;
    seen["in levels"] += stages[0].grid.has_levels() ? 1 : 0;
    seen["limit of bytes"] += made.policy.in_flight_gathers.bytes > 0 ? 1 : 0;
    seen["offloaded activations"] += made.policy.offload_activations ? 1 : 0;
    seen["shard first"] += stages[0].grid.shard_first ? 1 : 0;
    seen["kept in part"] +=
        std::any_of(stages[0].actions.begin(), stages[0].actions.end(), of_kind(Kind::keep)) ? 1
                                                                                             : 0;
  }
  for (const char* what : {"tensor 1",
                           "tensor 2",
                           "tensor 4",
                           "purpose train",
                           "purpose evaluate",
                           "purpose export_parameters",
                           "stages 2",
                           "parts 2",
                           "offload none",
                           "offload optimizer",
                           "offload parameters",
                           "offload all",
                           "sharding none",
                           "sharding full",
                           "recomputed",
                           "without padding",
                           "in levels",
                           "limit of bytes",
                           "offloaded activations",
                           "shard first",
                           "kept in part"})
    EXPECT_GE(seen[what], tests::trials(20)) << what;
}

/// Experts that tensor ranks share, alone or with neighbours along shard.
TEST(TensorPlans, HoldForMixtures) {
  for (const int tensor : {1, 2, 4})
    for (const int neighbours : {1, 2, 4})
      for (const Sharding sharding : {Sharding::none, Sharding::optimizer, Sharding::full})
        for (const Purpose purpose :
             {Purpose::train, Purpose::evaluate, Purpose::export_parameters}) {
          SCOPED_TRACE(text("tensor ", tensor, ", experts over ", neighbours, " neighbours, ",
                            name(sharding), ", ", name(purpose)));
          TensorDecoder decoder = TensorDecoder(tensor).with_experts(tensor * neighbours);
          decoder.recompute = {false, neighbours == 2, tensor == 2};
          const TensorRanks ranks{tensor, 4, 2};
          Policy policy;
          policy.sharding = sharding;
          policy.expert_ranks = neighbours;
          policy.activation_checkpointing.every = neighbours == 4 ? 1 : 0;
          ranks.set(policy, 2);
          const StepPlan plan =
              build_step_plan(decoder.description(), ranks.all(), policy, purpose);
          ASSERT_NO_THROW(prove_stages({&plan}));
          ASSERT_NO_THROW(prove_memory(plan, plan_memory(plan)));
          expect_divided(plan);
          const Span expected = tensor == 1       ? Span{Axis::shard, neighbours}
                                : neighbours == 1 ? Span{Axis::tensor, tensor}
                                                  : Span{Axis::tensor_shard, tensor * neighbours};
          int sent = 0;
          for (const Action& action : plan.actions) {
            if (action.kind != Kind::exchange || action.exchange != ExchangeKind::all_to_all)
              continue;
            EXPECT_EQ(action.span, expected);
            ++sent;
          }
          const bool is_alone = tensor * neighbours == 1;
          EXPECT_EQ(sent > 0, purpose != Purpose::export_parameters && !is_alone);
          // Each of them has 1 / (tensor neighbours) of the experts, what is left of a group shards
          // these.
          const PlannedUnit& experts = plan.units[2];
          ASSERT_EQ(experts.name, "block.0.experts");
          const Spans divided = unit_spans(plan.grid, neighbours);
          EXPECT_EQ(experts.layouts.gathered.divided, divided);
          EXPECT_EQ(matrix_spans(plan.grid, experts.layouts), divided);
        }
}

// A limit that allows what a rank gathers of the largest unit, and not a byte less.
TEST(TensorPlans, GatherWhatARankComputesWith) {
  for (int ranks : {1, 2, 4}) {
    TensorDecoder decoder(ranks);
    decoder.settings.tie_embeddings = false;
    const ModelDescription model = decoder.description();
    const TensorRanks all{ranks, 2, 1};
    Policy policy;
    all.set(policy, 1);
    std::int64_t largest = 0;
    for (const UnitDescription& unit : model.units)
      largest = std::max(largest, (unit.parameter_elements / ranks + 127) / 128 * 128 * 4);
    policy.in_flight_gathers.bytes = largest;
    EXPECT_EQ(refused_plan(model, all.all(), policy), "");
    policy.in_flight_gathers.bytes = largest - 1;
    expect_has(refused_plan(model, all.all(), policy), "expected as much or more");
  }
}

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
        const std::string which =
            text("tensor ", ranks.tensor, ", ", name(order), ", nodes of ", node);
        SCOPED_TRACE(which);
        const TensorDecoder decoder(ranks.tensor);
        Policy policy;
        ranks.set(policy, 2);
        policy.rank_order = order;
        policy.activation_checkpointing.every = 1;
        const StepPlan plan =
            build_step_plan(decoder.description(), ranks.all(), policy, Purpose::train);
        const Report report =
            make_report(plan, plan_memory(plan), plan_memory(plan, Space::host), node);
        const Exchanged bytes = expected_exchanges(decoder, policy, Purpose::train);
        EXPECT_EQ(report.tensor.ranks, ranks.tensor);
        EXPECT_EQ(report.tensor.bytes_sent, 2 * (bytes.forward + bytes.recompute + bytes.backward));
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
  Policy policy;
  ranks.set(policy, 1);
  ModelDescription model = make_model(1, false, 3);
  model.tensor_ranks = 2;
  const StepPlan plan = build_step_plan(model, ranks.all(), policy, Purpose::train);
  for (int node : {1, 2, 4}) {
    const Report report =
        make_report(plan, plan_memory(plan), plan_memory(plan, Space::host), node);
    EXPECT_EQ(report.tensor.collectives, 0);
    EXPECT_EQ(report.tensor.spans_nodes, node == 1);
    EXPECT_EQ(report.shard.spans_nodes, node < 4);
  }
}

// ---- what is refused

TEST(TensorPlans, RefuseRanksThatDivideNothing) {
  const auto refusal = [](int ranks, int pieces, int group, std::int64_t leaves) {
    Policy policy = make_policy(leaves);
    policy.tensor_ranks = pieces;
    policy.shard_group = group;
    ModelDescription model = make_model(2, false, 3);
    model.tensor_ranks = pieces;
    return refused_plan(model, ranks, policy);
  };
  EXPECT_EQ(refusal(8, 2, 4, 8), "");
  EXPECT_EQ(refusal(8, 2, 4, 4), "");
  EXPECT_EQ(refusal(8, 8, 0, 1), "");
  EXPECT_EQ(refusal(8, 4, 2, 8),
            "parallel.tensor = 4 does not divide the 2 ranks of a shard group");
  EXPECT_EQ(refusal(8, 3, 4, 8),
            "parallel.tensor = 3 does not divide the 4 ranks of a shard group");
  EXPECT_EQ(refusal(6, 4, 0, 6),
            "parallel.tensor = 4 does not divide the 6 ranks of a shard group");
  EXPECT_EQ(refusal(4, 0, 0, 4),
            "parallel.tensor = 0 does not divide the 4 ranks of a shard group");
  EXPECT_EQ(refusal(4, -2, 0, 4),
            "parallel.tensor = -2 does not divide the 4 ranks of a shard group");
  EXPECT_EQ(refusal(8, 2, 4, 6),
            "a global batch of 6 leaves can't be shared evenly by 4 tensor "
            "groups");
  EXPECT_EQ(refusal(8, 2, 4, 2),
            "a global batch of 2 leaves can't be shared evenly by 4 tensor "
            "groups");
  EXPECT_EQ(refusal(4, 1, 0, 6), "a global batch of 6 leaves can't be shared evenly by 4 ranks");
  EXPECT_EQ(refusal(6, 4, 4, 6), "shard groups of 4 don't divide the 6 ranks");
  EXPECT_EQ(refusal(4, 8, 8, 1), "shard groups of 8 don't divide the 4 ranks");
}

TEST(TensorPlans, RefuseModelsThatAreNotInSoManyPieces) {
  Policy policy;
  const TensorRanks ranks{2, 2, 1};
  ranks.set(policy, 1);
  EXPECT_EQ(refused_plan(TensorDecoder(4).description(), ranks.all(), policy),
            "the model is divided over 4 tensor ranks; expected 2");
  EXPECT_EQ(refused_plan(make_model(1, false, 3), ranks.all(), policy),
            "the model is divided over 1 tensor ranks; expected 2");
  ModelDescription of_four = TensorDecoder(4).description();
  of_four.tensor_ranks = 2;
  EXPECT_EQ(refused_plan(of_four, ranks.all(), policy),
            "unit embedding: the exchange after phase 0 of forward is over 4 ranks, which do not "
            "divide the 2 along tensor");
  ModelDescription of_two = TensorDecoder(2).description();
  of_two.tensor_ranks = 4;
  const TensorRanks four{4, 1, 1};
  four.set(policy, 1);
  EXPECT_EQ(refused_plan(of_two, four.all(), policy),
            "unit embedding: the exchange after phase 0 of forward is over 2 tensor ranks of 4; "
            "expected all");
  ranks.set(policy, 1);
  ModelDescription model = make_model(1, false, 3);
  model.tensor_ranks = 2;
  model.units[1].parameter_elements = 1001;
  expect_has(refused_by([&] { build_step_plan(model, 4, policy, Purpose::train); }),
             "block.0: its parameters don't divide over ");
}

// ---- sums

TEST(TensorSums, HaveTheBitsOfOneRankInAsManyPieces) {
  const auto plan_of = [](
                           TensorDecoder decoder, const TensorRanks& ranks,
                           const std::function<void(Policy&)>& change = [](Policy&) {}) {
    Policy policy;
    ranks.set(policy, 2);
    policy.context_ranks = static_cast<int>(decoder.leaf.context_ranks);
    change(policy);
    return build_step_plan(decoder.description(), ranks.all(), policy, Purpose::train);
  };
  const auto expect = [](const StepPlan& plan, bool are_bits, const std::string& words) {
    EXPECT_EQ(plan.has_the_bits_of_one_rank(), are_bits) << words;
    EXPECT_EQ(describe_sums(plan), words);
  };
  for (int pieces : {1, 2, 4})
    for (int ranks : {1, 2, 4})
      for (int shards : {1, 2}) {
        if (pieces > 1 && pieces < ranks) continue;  // a decoder has no such pieces
        const StepPlan plan = plan_of(TensorDecoder(ranks, pieces), {ranks, shards, 2});
        EXPECT_EQ(plan.layouts.tensor_grain, pieces);
        if (ranks <= pieces)
          expect(plan, true, "bitwise equal to 1 rank");
        else
          expect(plan, false, text("bitwise equal to 1 rank with model.tensor_grain = ", ranks));
      }
  // Ranks that share sequences.
  const TensorRanks ranks{2, 2, 1};
  expect(plan_of(TensorDecoder(2).in_parts(2), ranks), false,
         "bitwise equal to 2 ranks, which share each sequence");
  expect(plan_of(TensorDecoder(2, 1).in_parts(2), ranks), false,
         "bitwise equal to 2 ranks, which share each sequence, with model.tensor_grain = 2");
  TensorDecoder cut = TensorDecoder(2).in_parts(2);
  cut.leaf.grain = 2;
  expect(plan_of(cut, ranks), true, "bitwise equal to 1 rank");
  cut.leaf.tensor_grain = 1;
  expect(plan_of(cut, ranks), false, "bitwise equal to 1 rank with model.tensor_grain = 2");
  // What else changes sums does so with tensor ranks, too: gradients that are sent rounded, and
  // three ranks that are summed before two.
  expect(plan_of(TensorDecoder(2), ranks, [](Policy& policy) { policy.reduce = DType::bf16; }),
         false, "equal to 1 rank up to rounding");
  expect(plan_of(TensorDecoder(2), {2, 3, 2}), false, "equal to 1 rank up to rounding");
  // Chunks of rows are other products: in 16 bits a library's.
  expect(plan_of(TensorDecoder(2).in_chunks(2), ranks), true, "bitwise equal to 1 rank");
  TensorDecoder half = TensorDecoder(2).in_chunks(2);
  half.is_half = true;
  expect(plan_of(half, ranks), true, "bitwise equal to 1 rank");
  EXPECT_EQ(
      describe_cut_products(plan_of(half, ranks)),
      "16-bit products of fewer rows (parallel.tensor_chunks, or parallel.context with tensor "
      "pieces) may have other bits");
  EXPECT_EQ(describe_cut_products(plan_of(half.in_chunks(1), ranks)), "");
  TensorDecoder half_cut = TensorDecoder(2).in_parts(2);
  half_cut.is_half = true;
  EXPECT_NE(describe_cut_products(plan_of(half_cut, ranks)), "");
  half_cut.is_half = false;
  EXPECT_EQ(describe_cut_products(plan_of(half_cut, ranks)), "");
  // With three sequences at once, each rank has only a part of the tree.
  TensorDecoder three(2);
  three.leaf.batch = 3;
  three.leaf.by_sequence = true;
  expect(plan_of(three, {2, 1, 1}), false, "equal to 1 rank up to rounding");
  three.leaf.batch = 4;
  expect(plan_of(three, {2, 1, 1}), true, "bitwise equal to 1 rank");
  EXPECT_EQ(describe_cut_products(plan_of(TensorDecoder(2).in_chunks(2), ranks)), "");
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
    Policy policy;
    const TensorRanks ranks{2, 2, 1};
    ranks.set(policy, 1);
    policy.context_ranks = static_cast<int>(decoder.leaf.context_ranks);
    return build_step_plan(decoder.description(), ranks.all(), policy, Purpose::train);
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
  Policy policy;
  const TensorRanks ranks{2, 2, 1};
  ranks.set(policy, 2);
  policy.activation_checkpointing.every = 1;
  return build_step_plan(model, ranks.all(), policy, Purpose::train);
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
    EXPECT_NO_THROW(prove_memory(plan, plan_memory(plan)));
    EXPECT_NO_THROW(prove_stages({&plan}));
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
      Policy policy;
      const TensorRanks ranks{2, 2, 1};
      ranks.set(policy, 1);
      policy.activation_checkpointing.every = 1;
      const StepPlan plan =
          build_step_plan(decoder.description(), ranks.all(), policy, Purpose::train);
      std::map<int, int> last;  // phase of each unit
      for (const Action& action : plan.actions)
        if (action.kind == Kind::recompute) last[action.unit] = action.phase;
      // Without the output, and without an MLP that backward computes.
      EXPECT_EQ(last.size(), blocks == 1 ? 2u : 1u);
      const plan::UnitDescription unit = decoder.description().units[1];
      const auto phases = static_cast<int>(unit.forward.size());
      for (const auto& [index, phase] : last) EXPECT_EQ(phase, phases - (again ? 3 : 2)) << index;
    }
  }
}

}  // namespace
