// SPDX-License-Identifier: Apache-2.0

// Plans over tensor ranks that were broken on purpose: the proof refuses each, and says why.

#include <map>
#include <utility>

#include "plan/mutants.hpp"
#include "plan/tensor_plans.hpp"

namespace ostrakon::tests {
namespace {

StepPlan training_plan(const TensorDecoder& decoder, const TensorRanks& ranks,
                       RankOrder order = RankOrder::tensor_first) {
  Policy policy = ranks.policy(2);
  policy.rank_order = order;
  policy.context_ranks = static_cast<int>(decoder.leaf.context_ranks);
  policy.expert_ranks = decoder.parts_of_experts();
  policy.activation_checkpointing.every = 1;
  policy.reshard_after_forward.kind = Reshard::always;
  return train_plan(decoder.description(), ranks.all(), policy);
}

/// Makes plans of two micro-batches on each rank, with as many ranks along shard as along tensor.
std::vector<StepPlan> training_plans() {
  TensorDecoder all_again = TensorDecoder(2).in_parts(2).in_chunks(2);
  all_again.recompute = {true, true, true};
  return {training_plan(TensorDecoder(2), {2, 2, 2}),
          training_plan(TensorDecoder(2).with_biases(), {2, 2, 1}, RankOrder::shard_first),
          training_plan(TensorDecoder(4).with_biases(), {4, 4, 1}),
          training_plan(TensorDecoder(2).in_parts(2), {2, 2, 1}),
          training_plan(TensorDecoder(2).with_biases().in_chunks(2), {2, 2, 1}),
          training_plan(all_again, {2, 2, 1})};
}

std::vector<std::size_t> tensor_exchanges(const StepPlan& plan) {
  return actions_of(plan, [](const Action& action) {
    return action.kind == Kind::exchange && action.span.axis == Axis::tensor;
  });
}

/// Gives an exchange buffers of the bytes that it sends and receives.
void fit_buffers(StepPlan& plan, const Action& action) {
  const Exchange exchange{action.exchange, action.span, action.elements, action.element_bytes};
  buffer_of(plan, action, Role::send_buffer).bytes = exchange.bytes_in();
  buffer_of(plan, action, Role::recv_buffer).bytes = exchange.bytes_out();
}

// ---- exchanges

/// Changes an exchange for all ranks, where there is something to be changed so.
using Change = std::function<void(StepPlan&, std::size_t)>;

struct NamedChange {
  const char* name;
  Change change;
  std::vector<std::string> reasons;
};

/// Changes ranks, elements or the kind, with buffers that fit.
Change with_buffers(const std::function<void(Action&)>& change) {
  return [=](StepPlan& plan, std::size_t a) {
    change(plan.actions[a]);
    fit_buffers(plan, plan.actions[a]);
  };
}

/// The action that reads what an exchange has brought.
std::size_t reader(const StepPlan& plan, std::size_t a) {
  const int exchanged = plan.actions[a].buffer(Role::recv_buffer);
  std::size_t found = a + 1;
  while (plan.actions[found].buffer(Role::recv_buffer) != exchanged) ++found;
  return found;
}

/// Calls with(the next exchange of the same unit for the same micro-batch, or that of the same
/// phase for another one), if there is one.
template <class With>
Change with_next(bool same_micro_batch, const With& with) {
  return [=](StepPlan& plan, std::size_t a) {
    const Action& action = plan.actions[a];
    for (std::size_t b = a + 1; b < plan.actions.size(); ++b) {
      const Action& next = plan.actions[b];
      if (next.kind != Kind::exchange || next.unit != action.unit ||
          (next.micro_batch == action.micro_batch) != same_micro_batch ||
          (!same_micro_batch && next.phase != action.phase))
        continue;
      with(plan, a, b);
      return;
    }
  };
}

void read_instead(StepPlan& plan, std::size_t a) {
  use_in(plan.actions[reader(plan, a)], Role::recv_buffer).buffer =
      plan.actions[a].buffer(Role::send_buffer);
  remove_action(plan, a);
}
void do_not_read(StepPlan& plan, std::size_t a) {
  Action& next = plan.actions[reader(plan, a)];
  next.uses.erase(&use_in(next, Role::recv_buffer));
}
void swap_uses(StepPlan& plan, std::size_t a, std::size_t b) {
  std::swap(plan.actions[a].uses, plan.actions[b].uses);
}
void read_for_other(StepPlan& plan, std::size_t a, std::size_t b) {
  use_in(plan.actions[reader(plan, b)], Role::recv_buffer).buffer =
      plan.actions[a].buffer(Role::recv_buffer);
}
void turn_round(Action& action) {
  const bool gathers = action.exchange == ExchangeKind::gather;
  action.exchange = gathers ? ExchangeKind::reduce_scatter : ExchangeKind::gather;
}
Change over(const Span& span) {
  return with_buffers([=](Action& action) {
    if (action.span.ranks > 2) action.span = span;
  });
}

const std::vector<NamedChange>& exchange_changes() {
  const std::string asks = "its unit asks for ", left = "its phase has not left this";
  const std::string came = "what it reads did not come of the exchange of phase";
  const std::string bytes = "not as many as its buffers have";
  static const std::vector<NamedChange> changes = {
      {"dropped", remove_action, {came}},
      {"dropped, and its phase's part read instead", read_instead, {came}},
      {"not read by the next phase", do_not_read, {"does not read the exchange of phase"}},
      {"in the place of the unit's next", with_next(true, swap_places), {left}},
      {"of what the unit's next is", with_next(true, swap_uses), {left, bytes}},
      {"read for the other micro-batch", with_next(false, read_for_other), {came}},
      {"along shard", with_buffers([](Action& its) { its.span.axis = Axis::shard; }), {asks}},
      {"over two of the ranks", over({Axis::tensor, 2}), {asks}},
      {"over two of the ranks, one apart", over({Axis::tensor, 2, 2}), {asks}},
      {"the other way round", with_buffers(turn_round), {asks}},
      {"all to all",
       with_buffers([](Action& its) { its.exchange = ExchangeKind::all_to_all; }),
       {asks}},
      {"for the other micro-batch",
       [](StepPlan& plan, std::size_t a) { plan.actions[a].micro_batch ^= 1; },
       {left}},
      {"after the phase before",
       [](StepPlan& plan, std::size_t a) { --plan.actions[a].phase; },
       {left}},
      {"of another unit",
       [](StepPlan& plan, std::size_t a) {
         int& unit = plan.actions[a].unit;
         unit = unit == 1 ? 2 : 1;
       },
       {left}},
      {"that may be empty",
       [](StepPlan& plan, std::size_t a) { plan.actions[a].may_be_empty = true; },
       {"its unit says that it is never empty"}},
      {"empty where routing is even",
       [](StepPlan& plan, std::size_t a) { plan.actions[a].empty_if_even = true; },
       {"its unit says otherwise of even routing"}},
      {"of half as many elements",
       [](StepPlan& plan, std::size_t a) { plan.actions[a].elements /= 2; },
       {bytes}},
      {"of half as many elements as its unit asks for",
       with_buffers([](Action& its) { its.elements /= 2; }),
       {asks}},
      {"of one piece more", with_buffers([](Action& its) { its.elements *= 2; }), {asks}},
      {"of elements of twice the size",
       with_buffers([](Action& its) { its.element_bytes *= 2; }),
       {asks}},
      {"of elements of half the size",
       with_buffers([](Action& its) {
         its.elements *= 2;
         its.element_bytes /= 2;
       }),
       {asks}}};
  return changes;
}

TEST(TensorProof, RefusesExchangesThatAllRanksGetWrong) {
  std::map<std::string, int> counts;
  for (const StepPlan& plan : training_plans()) {
    ASSERT_EQ(refused(plan), "");
    for (std::size_t a : tensor_exchanges(plan))
      for (const NamedChange& change : exchange_changes()) {
        StepPlan mutant = plan;
        change.change(mutant, a);
        if (mutant.hash() == plan.hash()) continue;
        const std::string reason = refused(mutant);
        ASSERT_TRUE(has_one_of(reason, change.reasons))
            << plan.describe(plan.actions[a]) << " " << change.name << ": '" << reason << "'";
        ++counts[change.name];
      }
  }
  for (const NamedChange& change : exchange_changes())
    EXPECT_GE(counts[change.name], 50) << change.name;
}

/// Those of experts, which tensor ranks share with neighbours along shard.
TEST(TensorProof, RefusesOtherRanksForExperts) {
  const StepPlan plan = training_plan(TensorDecoder(2).with_experts(4), {2, 2, 2});
  ASSERT_EQ(refused(plan), "");
  int others = 0;
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    if (plan.actions[a].span.axis != Axis::tensor_shard) continue;
    ASSERT_EQ(plan.actions[a].span, (Span{Axis::tensor_shard, 4}));
    for (const Span other : {Span{Axis::tensor, 2}, Span{Axis::shard, 2}, Span{Axis::replicate, 2},
                             Span{Axis::tensor_shard, 2}, Span{Axis::tensor_shard, 2, 2}}) {
      StepPlan mutant = plan;
      mutant.actions[a].span = other;
      fit_buffers(mutant, mutant.actions[a]);
      EXPECT_HAS(refused(mutant), "over 4 ranks along tensor_shard");
      ++others;
    }
  }
  EXPECT_GE(others, 5 * 2 * 2 * 2 * 3);  // blocks, micro-batches, passes, exchanges

  const auto refusal_of = [](Span span) {
    ModelDescription model = TensorDecoder(2).with_experts(4).description();
    model.units[2].forward[0].then->span = span;
    Policy policy = TensorRanks{2, 2, 1}.policy(2);
    policy.expert_ranks = 2;
    return refusal([&] { train_plan(model, 4, policy); });
  };
  EXPECT_EQ(refusal_of({Axis::tensor_shard, 4}), "");
  EXPECT_HAS(refusal_of({Axis::tensor_shard, 2, 2}),
             "is over 2 ranks, tensor ranks among them; expected a multiple of the 2 tensor ranks");
  EXPECT_HAS(refusal_of({Axis::tensor_shard, 3}), "which do not divide the 4 along tensor_shard");
}

TEST(TensorProof, SaysWhatAUnitAsksFor) {
  StepPlan plan = training_plan(TensorDecoder(2), {2, 2, 1});
  const std::vector<Kind> work = works(plan);
  for (std::size_t a : tensor_exchanges(plan)) {
    if (plan.actions[a].unit != 1 || work[a] != Kind::backward) continue;
    plan.actions[a].span.axis = Axis::shard;
    break;
  }
  // The 32 columns of the model, for 16 rows.
  EXPECT_EQ(refused(plan),
            "the plans of ranks do not fit together: rank 0's exchange(block.0, micro-batch 0, "
            "phase 0), over 2 ranks along shard, of 512 elements: its unit asks for gather over 2 "
            "ranks along tensor, of 512 elements of 4 bytes");
}

// ---- parameters and gradients

/// Has the first forward of a unit read what a gather over tensor ranks has made of its parameters.
StepPlan with_a_gather_of_all(const StepPlan& plan, int unit) {
  StepPlan mutant = plan;
  const auto forward = actions_of(mutant, of_kind(Kind::forward, unit));
  const std::size_t at = forward.front();
  const int part = mutant.actions[at].buffer(Role::parameters);
  Buffer whole = mutant.buffers[part];
  whole.persistent = false;
  whole.divided = {};
  whole.bytes = mutant.padded(whole.flats) * mutant.layouts.gathered.element_bytes;
  const int made = static_cast<int>(mutant.buffers.size());
  mutant.buffers.push_back(whole);
  Action gather;
  gather.kind = Kind::gather;
  gather.stream = Stream::gather;
  gather.unit = unit;
  gather.span = mutant.grid.span(Axis::tensor);
  gather.flats = whole.flats;
  gather.elements = mutant.padded(whole.flats);
  gather.element_bytes = mutant.layouts.gathered.element_bytes;
  gather.uses = {{Role::shard, part, Access::read}, {Role::parameters, made, Access::write}};
  for (std::size_t a : forward) use_in(mutant.actions[a], Role::parameters).buffer = made;
  insert_action(mutant, at, gather);
  return mutant;
}

TEST(TensorProof, RefusesGathersOfParametersOverTensorRanks) {
  int changed = 0;
  for (const StepPlan& plan : training_plans()) {
    const std::string pieces = text("parts over ", plan.grid.tensor(), " ranks along tensor");
    for (int unit = 0; unit + 1 < static_cast<int>(plan.units.size()); ++unit)
      EXPECT_HAS(refused(with_a_gather_of_all(plan, unit)), ", needs space for " + pieces);
    // Along tensor instead of shard: of the same parts, to what is left then, from step to step.
    for (int unit = 0; unit < static_cast<int>(plan.units.size()); ++unit) {
      StepPlan mutant = plan;
      const auto gathers = actions_of(plan, of_kind(Kind::gather, unit));
      ASSERT_FALSE(gathers.empty());
      for (std::size_t a : gathers) mutant.actions[a].span = plan.grid.span(Axis::tensor);
      EXPECT_HAS(refused(mutant), "its buffers are not parts over these ranks");
      const Spans shards{plan.grid.span(Axis::shard)};
      for (std::size_t a : gathers)
        buffer_of(mutant, mutant.actions[a], Role::parameters).divided = shards;
      EXPECT_HAS(refused(mutant), "its buffers are not parts over these ranks");
      Spans& masters = mutant.buffers[plan.units[unit].masters].divided;
      masters = shards;
      masters.push(plan.grid.span(Axis::tensor));
      EXPECT_HAS(refused(mutant), ", its layout for " + pieces + ", then ");
      ++changed;
    }
    // Every rank has the whole from step to step.
    StepPlan mutant = plan;
    mutant.buffers[plan.units[1].masters].divided = {plan.grid.span(Axis::shard)};
    EXPECT_HAS(refused(mutant), "not parts over these ranks");
  }
  EXPECT_EQ(changed, 24);
}

// Nothing sums them: it is for backward to say that they are no parts.
TEST(TensorProof, RefusesGradientsOfAllPiecesOnARank) {
  const StepPlan plan = training_plan(TensorDecoder(2), {2, 1, 1});
  for (int unit = 0; unit < static_cast<int>(plan.units.size()); ++unit) {
    StepPlan mutant = plan;
    for (Buffer& buffer : mutant.buffers)
      if (buffer.category == Category::gradients && buffer.flats == plan.trained(unit)) {
        buffer.divided = {};
        buffer.bytes *= 2;
      }
    const std::string reason = refused(mutant);
    EXPECT_HAS(reason, "'s backward(");
    EXPECT_HAS(reason, ", needs space for parts over 2 ranks along tensor in '" +
                           plan.units[unit].name + " gradients', which is for the whole");
  }
}

TEST(TensorProof, RefusesSumsOfGradientsOverTensorRanks) {
  const std::string parts = "its buffers are not parts over these ranks";
  int to_parts = 0, in_order = 0;
  for (const StepPlan& plan : training_plans())
    for (std::size_t a : actions_of(plan, of_kind(Kind::reduce_scatter))) {
      StepPlan mutant = plan;
      Action& sum = mutant.actions[a];
      sum.span = plan.grid.span(Axis::tensor);
      EXPECT_HAS(refused(mutant), parts);
      Spans& divided = buffer_of(mutant, sum, Role::gradient_shard).divided;
      divided = buffer_of(mutant, sum, Role::parameter_gradients).divided;
      divided.push(sum.span);
      // Where another sum takes the part, it has not what it needs.
      const std::string reason = refused(mutant);
      const bool is_taken = reason.find(parts) != std::string::npos;
      if (!is_taken) {
        EXPECT_HAS(reason, "the order of sums has no such span");
      }
      ++(is_taken ? to_parts : in_order);
    }
  EXPECT_GT(to_parts, 5);
  EXPECT_GT(in_order, 15);
}

// ---- ranks that differ

TEST(TensorProof, RefusesOrdersOfExchangesThatDifferInATensorGroup) {
  Random random(52);
  int swapped = 0;
  for (const StepPlan& plan : training_plans()) {
    const auto exchanges = tensor_exchanges(plan);
    for (std::size_t i = 0; i + 1 < exchanges.size(); ++i) {
      const auto rank = static_cast<std::size_t>(random()) % plan.grid.ranks();
      RankPlans ranks = all_ranks({plan});
      swap_places(ranks.own_plan(rank), exchanges[i], exchanges[i + 1]);
      const std::string reason = refused(ranks);
      EXPECT_HAS(reason, "of a group's collectives on stream exchange, number ");
      EXPECT_HAS(reason, text("rank ", rank));
      EXPECT_HAS(reason, "they are not the same");
      // MPI cannot tell some apart: the run would end normally with wrong rows.
      const Action &one = plan.actions[exchanges[i]], &other = plan.actions[exchanges[i + 1]];
      const bool are_alike = one.exchange == other.exchange && one.elements == other.elements;
      if (i % 8 == 0 && !are_alike) {
        EXPECT_NE(RankOracle(ranks, Sending::rendezvous, random).run(), "") << reason;
      }
      ++swapped;
      // All ranks of the group do so: what they exchange then is not there yet.
      RankPlans alike = all_ranks({plan});
      swap_places(alike.own_plan(rank), exchanges[i], exchanges[i + 1]);
      const Span span = plan.grid.span(Axis::tensor);
      const int step = plan.grid.stride(span);
      const int first =
          static_cast<int>(rank) - plan.grid.coordinate(static_cast<int>(rank), span) * step;
      for (int place = 0; place < span.ranks; ++place)
        alike.plan_of_rank[static_cast<std::size_t>(first + place * step)] = 1;
      const std::string group = refused(alike);
      EXPECT_HAS(group, text("rank ", first, "'s exchange("));
      EXPECT_HAS(group, "its phase has not left this");
    }
  }
  EXPECT_GT(swapped, 200);
}

/// Neighbours along shard gather while those along tensor exchange. Where each of the four ranks
/// does both, two of them in another order, each waits for the next.
TEST(TensorProof, FindsCirclesOfExchangesAndGathers) {
  const StepPlan plan = training_plan(TensorDecoder(2), {2, 2, 1});
  const auto gather = actions_of(plan, of_kind(Kind::gather, 2));
  const auto exchange = actions_of(plan, of_kind(Kind::exchange, 1));
  ASSERT_LT(gather.front(), exchange.front());
  Random random(54);
  const auto outcome = [&](const std::vector<std::size_t>& gathers_first,
                           const std::vector<std::size_t>& exchanges_first) {
    RankPlans ranks = all_ranks({plan});
    for (std::size_t rank : gathers_first)
      ranks.own_plan(rank).actions[exchange.front()].waits.push_back(
          static_cast<int>(gather.front()));
    for (std::size_t rank : exchanges_first)
      ranks.own_plan(rank).actions[gather.front()].waits.push_back(
          static_cast<int>(exchange.front()));
    const std::string reason = refused(ranks);
    EXPECT_EQ(RankOracle(ranks, Sending::rendezvous, random).run(), reason.empty() ? "" : "stuck");
    return reason;
  };
  EXPECT_EQ(outcome({}, {}), "");
  EXPECT_EQ(outcome({0, 1, 2, 3}, {}), "");
  EXPECT_EQ(outcome({}, {0, 1, 2, 3}), "");
  EXPECT_EQ(outcome({0, 1}, {2, 3}), "");
  EXPECT_EQ(outcome({1, 2}, {0}), "");
  EXPECT_EQ(outcome({1}, {0, 3}), "");
  for (const std::string& reason : {outcome({1, 2}, {0, 3}), outcome({0, 3}, {1, 2})}) {
    EXPECT_HAS(reason, "they stop each other: ");
    EXPECT_HAS(reason, "exchange(block.0, micro-batch 0, phase 0)");
    EXPECT_HAS(reason, "gather(block.1)");
  }
}

/// The last phases hand nothing over, and are missed all the same.
TEST(TensorProof, FindsPhasesThatAreMissingOrComputedTwice) {
  const StepPlan plan = training_plan(TensorDecoder(2), {2, 2, 1});
  int changed = 0;
  for (const Kind kind : {Kind::forward, Kind::recompute, Kind::backward})
    for (int unit = 0; unit < static_cast<int>(plan.units.size()); ++unit) {
      const auto phases = actions_of(plan, [&](const Action& action) {
        return action.kind == kind && action.unit == unit && action.micro_batch == 1;
      });
      if (phases.empty()) continue;
      StepPlan shorter = plan;
      remove_action(shorter, phases.back());
      EXPECT_HAS(refused(shorter), " phases of ");
      StepPlan longer = plan;
      insert_action(longer, phases.back() + 1, plan.actions[phases.back()]);
      EXPECT_NE(refused(longer), "") << name(kind) << unit;
      ++changed;
    }
  EXPECT_EQ(changed, 3 + 2 + 4);
}

TEST(TensorProof, FindsRanksWithOtherNeighbours) {
  const StepPlan plan = training_plan(TensorDecoder(2), {2, 2, 1});
  const StepPlan other = training_plan(TensorDecoder(2), {2, 2, 1}, RankOrder::shard_first);
  EXPECT_THROW(prove_ranks({&plan, &plan, &other, &plan}), std::logic_error);
}

}  // namespace
}  // namespace ostrakon::tests
