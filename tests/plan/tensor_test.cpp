// SPDX-License-Identifier: Apache-2.0

// Plans over tensor ranks: that they hold for decoders of all kinds, and what they send, keep and
// refuse, against closed forms.

#include <array>
#include <map>
#include <ostrakon/plan/ir/layout.hpp>
#include <ostream>
#include <set>

#include "plan/random_plans.hpp"
#include "plan/tensor_plans.hpp"
#include "support/covering.hpp"
#include "support/trials.hpp"

namespace ostrakon::tests {
namespace {

// ---- ranks

/// Plans of nothing on grids of all forms, with each order of ranks and of sums.
template <class Body>
void for_each_grid(const Body& body) {
  for (const TensorRanks& ranks : {TensorRanks{2, 1, 1}, {2, 2, 1}, {2, 4, 3}, {4, 2, 2}})
    for (RankOrder order : {RankOrder::tensor_first, RankOrder::shard_first})
      for (Accumulation accumulation :
           {Accumulation::reduce_each, Accumulation::shard_each, Accumulation::reduce_last}) {
        Policy policy = ranks.policy(3);
        policy.rank_order = order;
        policy.accumulation = accumulation;
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
    plan.flats = {{0, true, padded, padded, {}}};
    const Spans all{grid.span(Axis::tensor), grid.span(Axis::shard), grid.span(Axis::replicate)};
    std::set<std::int64_t> begins;
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      const std::int64_t own = padded / grid.tensor();
      EXPECT_EQ(plan.first_element(0, {grid.span(Axis::tensor)}, rank),
                grid.coordinate(rank, Axis::tensor) * own);
      EXPECT_EQ(plan.first_element(0, all, rank) / own, grid.coordinate(rank, Axis::tensor));
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
  for (int trial = 0; trial < trials(2500) && !HasFailure(); ++trial) {
    const RandomTensorPlan made = random_tensor_plan(random);
    const Policy& policy = made.policy;
    SCOPED_TRACE(text("trial ", trial, ": ", made.described()));
    const std::vector<StepPlan> stages = made.build(), whole = made.whole().build();
    expect_proven(stages);
    bool is_exact = true;
    for (std::size_t s = 0; s < stages.size(); ++s) {
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
    Exchanged expected = expected_exchanges(made.decoder, policy, made.purpose);
    for (std::int64_t* bytes : {&expected.forward, &expected.recompute, &expected.backward})
      *bytes *= made.micro_batches;
    const Exchanged found = find_exchanges(stages);
    EXPECT_EQ(found, expected);
    const bool divides = made.ranks.tensor > 1;
    for (const auto& [what, is_so] : std::map<std::string, bool>{
             {text("tensor ", made.ranks.tensor), true},
             {text("purpose ", name(made.purpose)), true},
             {"stages 2", made.stages == 2},
             {"parts 2", made.decoder.leaf.context_ranks == 2},
             {text("offload ", name(policy.offload)), true},
             {text("sharding ", name(policy.sharding)), true},
             {"recomputed", divides && found.recompute > 0},
             {"without padding", divides && is_exact},
             {"in levels", divides && stages[0].grid.has_levels()},
             {"limit of bytes", divides && policy.in_flight_gathers.bytes > 0},
             {"offloaded activations", divides && policy.offload_activations},
             {"shard first", divides && stages[0].grid.shard_first},
             {"kept in part", divides && count_of(stages[0], Kind::keep) > 0}})
      seen[what] += is_so ? 1 : 0;
  }
  EXPECT_EQ(seen.size(), 3u + 3 + 2 + 4 + 4 + 7);
  for (const auto& [what, count] : seen) EXPECT_GE(count, trials(20)) << what;
}

/// An export gathers whole units over tensor ranks, and shows nothing else.
TEST(TensorPlans, ExportTheWhole) {
  for (const Choices& row : covering_rows({3, 3, 4}, [](const Choices&) { return true; })) {
    const TensorRanks all_ranks[] = {{2, 1, 1}, {2, 2, 2}, {4, 2, 1}, {4, 1, 2}};
    const TensorRanks& ranks = all_ranks[row[2]];
    Policy policy = ranks.policy(1);
    policy.sharding = std::array{Sharding::none, Sharding::optimizer, Sharding::full}[row[0]];
    policy.offload = std::array{Offload::none, Offload::optimizer, Offload::all}[row[1]];
    const StepPlan plan = build_step_plan(TensorDecoder(ranks.tensor).description(), ranks.all(),
                                          policy, Purpose::export_parameters);
    std::map<int, std::int64_t> gathered;  // over tensor ranks, of each unit
    int shown = 0;
    for (const Action& action : plan.actions) {
      if (is_over_tensor(action)) gathered[action.unit] += action.elements;
      if (action.kind != Kind::export_parameters) continue;
      const Buffer& buffer = buffer_of(plan, action, Role::parameters);
      const std::int64_t whole = plan.padded(plan.units[action.unit].flats);
      EXPECT_TRUE(buffer.divided.empty());
      EXPECT_EQ(buffer.bytes, 4 * whole);
      EXPECT_EQ(gathered[action.unit], whole);
      ++shown;
    }
    EXPECT_EQ(shown, 4);
    expect_proven(plan);
  }
}

/// Experts that tensor ranks share, alone or with neighbours along shard.
TEST(TensorPlans, HoldForMixtures) {
  for (const Choices& row : covering_rows({3, 3, 3, 3}, [](const Choices&) { return true; })) {
    const int tensor = 1 << row[0], neighbours = 1 << row[1];
    TensorDecoder decoder = TensorDecoder(tensor).with_experts(tensor * neighbours);
    decoder.recompute = {false, neighbours == 2, tensor == 2};
    const TensorRanks ranks{tensor, 4, 2};
    Policy policy = ranks.policy(2);
    policy.sharding = std::array{Sharding::none, Sharding::optimizer, Sharding::full}[row[2]];
    policy.expert_ranks = neighbours;
    policy.activation_checkpointing.every = neighbours == 4 ? 1 : 0;
    const Purpose purpose = purposes[row[3]];
    SCOPED_TRACE(text("tensor ", tensor, ", experts over ", neighbours, " neighbours, ",
                      name(policy.sharding), ", ", name(purpose)));
    const StepPlan plan = build_step_plan(decoder.description(), ranks.all(), policy, purpose);
    expect_proven(plan);
    expect_divided(plan);
    const Span expected = tensor == 1       ? Span{Axis::shard, neighbours}
                          : neighbours == 1 ? Span{Axis::tensor, tensor}
                                            : Span{Axis::tensor_shard, tensor * neighbours};
    const auto sent = actions_of(plan, [](const Action& action) {
      return action.kind == Kind::exchange && action.exchange == ExchangeKind::all_to_all;
    });
    for (std::size_t a : sent) EXPECT_EQ(plan.actions[a].span, expected);
    EXPECT_EQ(!sent.empty(), purpose != Purpose::export_parameters && tensor * neighbours > 1);
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
  for (int tensor : {1, 2, 4}) {
    TensorDecoder decoder(tensor);
    decoder.settings.tie_embeddings = false;
    const ModelDescription model = decoder.description();
    const TensorRanks ranks{tensor, 2, 1};
    Policy policy = ranks.policy(1);
    std::int64_t& limit = policy.in_flight_gathers.bytes;
    for (const UnitDescription& unit : model.units)
      limit = std::max(limit, (unit.parameter_elements / tensor + 127) / 128 * 128 * 4);
    EXPECT_EQ(refusal([&] { train_plan(model, ranks.all(), policy); }), "");
    --limit;
    EXPECT_HAS(refusal([&] { train_plan(model, ranks.all(), policy); }),
               "expected as much or more");
  }
}

// ---- what is refused

TEST(TensorPlans, RefuseRanksThatDivideNothing) {
  const auto of_group = [](int tensor, int ranks) {
    return text("parallel.tensor = ", tensor, " does not divide the ", ranks,
                " ranks of a shard group");
  };
  const auto of_batch = [](int leaves) {
    return text("a global batch of ", leaves, " leaves can't be shared evenly by 4 ");
  };
  struct Refused {
    int ranks, tensor, group, leaves;
    std::string words;
  };
  for (const Refused& one : {Refused{8, 2, 4, 8, ""},
                             {8, 2, 4, 4, ""},
                             {8, 8, 0, 1, ""},
                             {8, 4, 2, 8, of_group(4, 2)},
                             {8, 3, 4, 8, of_group(3, 4)},
                             {6, 4, 0, 6, of_group(4, 6)},
                             {4, 0, 0, 4, of_group(0, 4)},
                             {4, -2, 0, 4, of_group(-2, 4)},
                             {8, 2, 4, 6, of_batch(6) + "tensor groups"},
                             {8, 2, 4, 2, of_batch(2) + "tensor groups"},
                             {4, 1, 0, 6, of_batch(6) + "ranks"},
                             {6, 4, 4, 6, "shard groups of 4 don't divide the 6 ranks"},
                             {4, 8, 8, 1, "shard groups of 8 don't divide the 4 ranks"}}) {
    Policy policy = make_policy(one.leaves);
    policy.tensor_ranks = one.tensor;
    policy.shard_group = one.group;
    ModelDescription model = make_model(2, false, 3);
    model.tensor_ranks = one.tensor;
    EXPECT_EQ(refusal([&] { train_plan(model, one.ranks, policy); }), one.words);
  }
}

TEST(TensorPlans, RefuseModelsThatAreNotInSoManyPieces) {
  const auto refused_model = [](ModelDescription model, int tensor, int says) {
    model.tensor_ranks = says;
    const TensorRanks ranks{tensor, 4 / tensor, 1};
    return refusal([&] { train_plan(model, ranks.all(), ranks.policy(1)); });
  };
  const ModelDescription two = TensorDecoder(2).description(),
                         four = TensorDecoder(4).description(), small = make_model(1, false, 3);
  EXPECT_HAS(refused_model(four, 2, 4), "divided over 4 tensor ranks; expected 2");
  EXPECT_HAS(refused_model(small, 2, 1), "divided over 1 tensor ranks; expected 2");
  const std::string exchange = "unit embedding: the exchange after phase 0 of forward is over ";
  EXPECT_HAS(refused_model(four, 2, 2),
             exchange + "4 ranks, which do not divide the 2 along tensor");
  EXPECT_HAS(refused_model(two, 4, 4), exchange + "2 tensor ranks of 4; expected all");
  ModelDescription odd = small;
  odd.tensor_ranks = 2;
  odd.units[1].parameter_elements = 1001;
  EXPECT_HAS(refused_by([&] {
               train_plan(odd, 4, TensorRanks{2, 2, 1}.policy(1));
             }),
             "block.0: its parameters don't divide over ");
}

}  // namespace
}  // namespace ostrakon::tests
