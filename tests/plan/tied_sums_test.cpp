// SPDX-License-Identifier: Apache-2.0

// UnitDescription::sums_tied_apart: gradients of the two uses of tied parameters are summed over
// all leaves apart from each other, and added last.

#include <ostrakon/plan/passes/gradients.hpp>

#include "plan/mutants.hpp"
#include "support/covering.hpp"

namespace ostrakon::tests {
namespace {

ModelDescription make_small_tied_model(bool apart) {
  ModelDescription model = make_model(1, true, 21);
  model.units.back().sums_tied_apart = apart;
  return model;
}

Policy two_micro_batches(Sharding sharding) {
  Policy policy;
  policy.sharding = sharding;
  policy.leaves = 4;
  return policy;
}

TEST(TiedSums, ChangeNothingWithoutTwoGradients) {
  const auto hash = [](ModelDescription model, bool apart) {
    model.units.back().sums_tied_apart = apart;
    return train_plan(model, 2, make_policy(4)).hash();
  };
  EXPECT_NE(hash(make_small_tied_model(false), false), hash(make_small_tied_model(false), true));
  const ModelDescription untied = make_model(1, false, 21);
  EXPECT_EQ(hash(untied, false), hash(untied, true));
  ModelDescription frozen = make_small_tied_model(false);
  frozen.units[0].frozen_elements = frozen.units[0].parameter_elements;
  EXPECT_EQ(hash(frozen, false), hash(frozen, true));
  frozen.units.back().tied_gradients = false;
  EXPECT_EQ(hash(frozen, false), hash(frozen, true));
}

/// Calls with(plan) for a model whose head, or a unit in the middle, is tied, with all pairs of
/// what decides where gradients are summed.
template <class With>
void for_all_policies(const With& with) {
  ModelDescription in_the_middle = make_small_tied_model(true);
  in_the_middle.units.insert(in_the_middle.units.begin() + 2, in_the_middle.units[1]);
  in_the_middle.units[2].name = "block.1";
  in_the_middle.units[2].tied_to = 1;
  in_the_middle.units[2].sums_tied_apart = true;
  in_the_middle.units[1].frozen_elements = 64;
  struct Ranks {
    int ranks, group, node;
  };
  const Ranks all[] = {{1, 0, 0}, {4, 2, 0}, {8, 4, 2}};
  const Sharding shardings[] = {Sharding::none, Sharding::optimizer, Sharding::full};
  const Offload offloads[] = {Offload::none, Offload::optimizer, Offload::all};
  for (int model : {0, 1})
    for (const Choices& row :
         covering_rows({3, 3, 3, 3, 3, 3, 3}, [](const Choices&) { return true; })) {
      const auto& [ranks, group, node] = all[row[0]];
      Policy policy;
      policy.sharding = shardings[row[1]];
      policy.shard_group = group;
      policy.ranks_per_node = node;
      policy.hierarchical = {Hierarchical::by_size, 1};
      policy.accumulation = std::array{Accumulation::reduce_each, Accumulation::shard_each,
                                       Accumulation::reduce_last}[row[2]];
      policy.offload = offloads[row[3]];
      policy.leaves = std::int64_t{ranks} * (1 + row[4]);
      policy.sum_grain = row[5];
      policy.in_flight_reductions = row[6];
      policy.early_updates = row[6] == 2;
      SCOPED_TRACE(text(model, ": ", ranks, " ranks, ", name(policy.sharding), ", ",
                        name(policy.accumulation), ", offload ", name(policy.offload), ", ",
                        1 + row[4], " micro-batches, grain ", row[5], ", ", row[6], " in flight"));
      with(train_plan(model == 0 ? make_small_tied_model(true) : in_the_middle, ranks, policy));
      if (::testing::Test::HasFailure()) return;
    }
}

TEST(TiedSums, AreProvenWithEveryPolicy) {
  for_all_policies([](const StepPlan& plan) {
    expect_proven(plan);
    EXPECT_EQ(count_of(plan, Kind::norm), static_cast<int>(plan.units.size()));
  });
}

TEST(TiedSums, AreProvenInAStageOfAPipeline) {
  ModelDescription model = make_model(4, false, 21);
  model.units[2].tied_to = 1;
  model.units[2].sums_tied_apart = true;
  for (const Sharding sharding : {Sharding::none, Sharding::full}) {
    Policy policy;
    policy.sharding = sharding;
    policy.leaves = 10;
    const std::vector<StepPlan> stages =
        build_stage_plans(model, {{0, 3}, {3, 6}}, 2, policy, Purpose::train);
    expect_proven(stages);
  }
}

TEST(TiedSums, ADroppedOrDoubledUseIsRefused) {
  int whole_uses = 0;
  for_all_policies([&](const StepPlan& plan) {
    const std::size_t join = actions_of(plan, of_kind(Kind::accumulate, 0)).back();
    const int head = plan.actions[join].buffer(Role::parameter_gradients);
    const int embedding = plan.actions[join].buffer(Role::source);
    const auto expect_refused = [&](const char* why, const auto& change) {
      StepPlan mutant = plan;
      change(mutant);
      EXPECT_HAS(refused(mutant), why);
    };
    const auto change_join = [&](int target, int source) {
      return [=](StepPlan& mutant) {
        for (Use& use : mutant.actions[join].uses)
          use.buffer = use.role == Role::source ? source : target;
      };
    };
    expect_refused("in which a use of the parameters is missing",
                   [&](StepPlan& mutant) { remove_action(mutant, join); });
    expect_refused("gradients of a use of the parameters are in both", change_join(head, head));
    // Their sum is where no update finds it.
    expect_refused("in which a use of the parameters is missing", change_join(embedding, head));
    expect_refused("gradients of a use of the parameters are in both", [&](StepPlan& mutant) {
      const Action again = mutant.actions[join];
      mutant.actions.push_back(again);
    });
    const int block = plan.units.back().gradients;
    if (plan.buffers[block].divided == plan.buffers[head].divided)
      expect_refused("they are not both gradients of this unit", change_join(head, block));
    for (std::size_t a : actions_of(plan, of_kind(Kind::backward)))
      expect_refused("which it begins",
                     [&](StepPlan& mutant) { mutant.actions[a].adds_to = AddsTo::tied_gradients; });
    // A reduction of either use, or an addition over micro-batches.
    for (std::size_t a : actions_of(plan, [](const Action& action) {
           return action.unit == 0 &&
                  (action.kind == Kind::reduce_scatter || action.kind == Kind::accumulate);
         })) {
      StepPlan mutant = plan;
      remove_action(mutant, a);
      EXPECT_NE(refused(mutant), "") << plan.describe(plan.actions[a]);
      ++whole_uses;
    }
  });
  EXPECT_GT(whole_uses, 100);
}

// The uses are like units of their own: the traffic of the table's gradient is twice that of one.
TEST(TiedSums, AreSentForEachUse) {
  for (Accumulation accumulation :
       {Accumulation::reduce_each, Accumulation::shard_each, Accumulation::reduce_last}) {
    Policy policy = two_micro_batches(Sharding::full);
    policy.accumulation = accumulation;
    const auto sent = [&](bool apart) {
      std::int64_t bytes = 0;
      const StepPlan plan = train_plan(make_small_tied_model(apart), 2, policy);
      for (std::size_t a : actions_of(plan, of_kind(Kind::reduce_scatter, 0)))
        bytes += plan.bytes_sent(plan.actions[a]);
      return bytes;
    };
    EXPECT_GT(sent(false), 0);
    EXPECT_EQ(sent(true), 2 * sent(false));
  }
}

}  // namespace
}  // namespace ostrakon::tests
