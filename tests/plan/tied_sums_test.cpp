// SPDX-License-Identifier: Apache-2.0

// UnitDescription::sums_tied_apart: gradients of the two uses of tied parameters are summed over
// all leaves apart from each other, and added last.

#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/passes/gradients.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <tuple>

#include "plan/random_plans.hpp"
#include "plan/rank_mutants.hpp"
#include "support/trials.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

ModelDescription make_small_tied_model(bool apart) {
  ModelDescription model = make_model(1, true, 21);
  model.units.back().sums_tied_apart = apart;
  return model;
}

StepPlan build_training(const ModelDescription& model, int ranks, const Policy& policy) {
  return build_step_plan(model, ranks, policy, Purpose::train);
}

/// What is done with gradients. An accumulation with its stream.
std::vector<std::string> actions_on_gradients(const StepPlan& plan) {
  std::vector<std::string> lines;
  for (const Action& action : plan.actions) switch (action.kind) {
      case Kind::accumulate:
        lines.push_back(plan.describe(action) + " on " + name(action.stream));
        break;
      case Kind::backward:
        EXPECT_FALSE(action.gradients_opened);
        [[fallthrough]];
      case Kind::reduce_scatter:
      case Kind::norm:
      case Kind::clip:
      case Kind::optimize:
        lines.push_back(plan.describe(action));
        break;
      default:
        break;
    }
  return lines;
}

Policy two_micro_batches(Sharding sharding) {
  Policy policy;
  policy.sharding = sharding;
  policy.leaves = 4;
  return policy;
}

// The head's gradient of the table is reduced while the block computes, and the embedding's like
// that of any other unit. Each use is summed over micro-batches, then the two are added.
TEST(TiedSums, AreReducedForEachUseAndJoinedLast) {
  const std::vector<std::string> expected = {"backward(head, micro-batch 0)",
                                             "reduce_scatter(head)",
                                             "reduce_scatter(embedding)",
                                             "backward(block.0, micro-batch 0)",
                                             "reduce_scatter(block.0)",
                                             "backward(embedding, micro-batch 0)",
                                             "reduce_scatter(embedding)",
                                             "backward(head, micro-batch 1)",
                                             "reduce_scatter(head)",
                                             "accumulate(head) on reduce",
                                             "reduce_scatter(embedding)",
                                             "accumulate(embedding) on reduce",
                                             "backward(block.0, micro-batch 1)",
                                             "norm(head)",
                                             "reduce_scatter(block.0)",
                                             "accumulate(block.0) on reduce",
                                             "backward(embedding, micro-batch 1)",
                                             "norm(block.0)",
                                             "reduce_scatter(embedding)",
                                             "accumulate(embedding) on reduce",
                                             "accumulate(embedding) on reduce",
                                             "norm(embedding)",
                                             "clip",
                                             "optimize(embedding)",
                                             "optimize(block.0)",
                                             "optimize(head)"};
  EXPECT_EQ(actions_on_gradients(
                build_training(make_small_tied_model(true), 2, two_micro_batches(Sharding::full))),
            expected);
}

// The rank's own sums are made on compute, as backward leaves them, and reduced once for each use.
TEST(TiedSums, AreSummedOnTheRankFirstWhereNothingIsSharded) {
  const std::vector<std::string> expected = {"backward(head, micro-batch 0)",
                                             "backward(block.0, micro-batch 0)",
                                             "backward(embedding, micro-batch 0)",
                                             "backward(head, micro-batch 1)",
                                             "accumulate(head) on compute",
                                             "reduce_scatter(head)",
                                             "accumulate(embedding) on compute",
                                             "reduce_scatter(embedding)",
                                             "backward(block.0, micro-batch 1)",
                                             "accumulate(block.0) on compute",
                                             "norm(head)",
                                             "reduce_scatter(block.0)",
                                             "backward(embedding, micro-batch 1)",
                                             "accumulate(embedding) on compute",
                                             "norm(block.0)",
                                             "reduce_scatter(embedding)",
                                             "accumulate(embedding) on reduce",
                                             "norm(embedding)",
                                             "clip",
                                             "optimize(embedding)",
                                             "optimize(block.0)",
                                             "optimize(head)"};
  EXPECT_EQ(actions_on_gradients(
                build_training(make_small_tied_model(true), 2, two_micro_batches(Sharding::none))),
            expected);
}

// The head's buffer of the table's gradient ends before the embedding's begins; the last addition
// is to the head's sum, where the update finds it.
TEST(TiedSums, WaitAsAnyOtherUnits) {
  const StepPlan plan =
      build_training(make_small_tied_model(true), 2, two_micro_batches(Sharding::full));
  int by_head = -1, joined = -1;
  for (const Action& action : plan.actions) {
    if (action.kind == Kind::backward && action.unit == 2)
      by_head = action.buffer(Role::tied_gradients);
    if (action.kind == Kind::backward && action.unit == 0) {
      const int own = action.buffer(Role::parameter_gradients);
      EXPECT_NE(own, by_head);
      EXPECT_LT(plan.buffers[by_head].last, plan.buffers[own].first);
    }
    if (action.kind == Kind::accumulate && action.unit == 0)
      joined = action.buffer(Role::parameter_gradients);
  }
  EXPECT_EQ(joined, plan.units[0].gradients);
  // Until then it is a partial sum, also where it is over all micro-batches.
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    const Action& action = plan.actions[a];
    if (action.kind != Kind::backward || action.unit != 0 || action.micro_batch != 1) continue;
    const std::int64_t shard = plan.buffers[joined].bytes;
    EXPECT_EQ(gradients_alive(plan, Space::device, static_cast<int>(a)).partial_sums, 2 * shard);
  }
}

TEST(TiedSums, ChangeNothingWithoutTwoGradients) {
  const auto hash = [](ModelDescription model, bool apart) {
    model.units.back().sums_tied_apart = apart;
    return build_training(model, 2, make_policy(4)).hash();
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

/// Calls with(plan) for a model whose head, or a unit in the middle, is tied, with all that decides
/// where gradients are summed: elsewhere than in a full run a fifth, in which all pairs of choices
/// are, as none has five.
template <class With>
void for_all_policies(const With& with) {
  int count = 0;
  ModelDescription in_the_middle = make_small_tied_model(true);
  in_the_middle.units.insert(in_the_middle.units.begin() + 2, in_the_middle.units[1]);
  in_the_middle.units[2].name = "block.1";
  in_the_middle.units[2].tied_to = 1;
  in_the_middle.units[2].sums_tied_apart = true;
  in_the_middle.units[1].frozen_elements = 64;
  for (const ModelDescription& model : {make_small_tied_model(true), in_the_middle})
    for (const auto& [ranks, group, node] :
         {std::tuple(1, 0, 0), std::tuple(4, 2, 0), std::tuple(8, 4, 2)})
      for (Sharding sharding : {Sharding::none, Sharding::optimizer, Sharding::full})
        for (Accumulation accumulation :
             {Accumulation::reduce_each, Accumulation::shard_each, Accumulation::reduce_last})
          for (Offload offload : {Offload::none, Offload::optimizer, Offload::all})
            for (int micro_batches : {1, 2, 3})
              for (std::int64_t grain : {0, 1, 2})
                for (int in_flight : {0, 1, 2}) {
                  if (count++ % every_nth(5) != 0) continue;
                  Policy policy;
                  policy.sharding = sharding;
                  policy.shard_group = group;
                  policy.ranks_per_node = node;
                  policy.hierarchical = {Hierarchical::by_size, 1};
                  policy.accumulation = accumulation;
                  policy.offload = offload;
                  policy.early_updates = in_flight == 2;
                  policy.leaves = std::int64_t{ranks} * micro_batches;
                  policy.sum_grain = grain;
                  policy.in_flight_reductions = in_flight;
                  SCOPED_TRACE(text(ranks, " ranks, ", name(sharding), ", ", name(accumulation),
                                    ", offload ", name(offload), ", ", micro_batches,
                                    " micro-batches, grain ", grain, ", ", in_flight,
                                    " in flight"));
                  with(build_training(model, ranks, policy));
                  if (::testing::Test::HasFailure()) return;
                }
}

TEST(TiedSums, AreProvenWithEveryPolicy) {
  for_all_policies([](const StepPlan& plan) {
    for (Space space : {Space::device, Space::host})
      ASSERT_NO_THROW(prove_memory(plan, plan_memory(plan, space)));
    ASSERT_NO_THROW(prove_stages({&plan}));
    int norms = 0;
    for (const Action& action : plan.actions) norms += action.kind == Kind::norm ? 1 : 0;
    EXPECT_EQ(norms, static_cast<int>(plan.units.size()));
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
    EXPECT_NO_THROW(prove_stages(stages));
    for (const StepPlan& stage : stages) EXPECT_NO_THROW(prove_memory(stage, plan_memory(stage)));
  }
}

/// The action that adds the sums of the table's two uses.
std::size_t joining(const StepPlan& plan) {
  return actions_of(plan,
                    [](const Action& action) {
                      return action.kind == Kind::accumulate && action.unit == 0;
                    })
      .back();
}

TEST(TiedSums, ADroppedOrDoubledUseIsRefused) {
  int whole_uses = 0;
  for_all_policies([&](const StepPlan& plan) {
    const std::size_t join = joining(plan);
    const int head = plan.actions[join].buffer(Role::parameter_gradients);
    const int embedding = plan.actions[join].buffer(Role::source);
    const auto expect_refused = [&](const char* why, const auto& change) {
      StepPlan mutant = plan;
      change(mutant);
      expect_has(refused_by([&] { prove_stages({&mutant}); }), why);
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
                     [&](StepPlan& mutant) { mutant.actions[a].gradients_opened = true; });
    // A reduction of either use, or an addition over micro-batches.
    for (std::size_t a : actions_of(plan, [](const Action& action) {
           return action.unit == 0 &&
                  (action.kind == Kind::reduce_scatter || action.kind == Kind::accumulate);
         })) {
      StepPlan mutant = plan;
      remove_action(mutant, a);
      EXPECT_NE(refused_by([&] { prove_stages({&mutant}); }), "") << plan.describe(plan.actions[a]);
      ++whole_uses;
    }
  });
  EXPECT_GT(whole_uses, 1000 / every_nth(5));
}

// The uses are like units of their own: the traffic of the table's gradient is twice that of one.
TEST(TiedSums, AreSentForEachUse) {
  for (Accumulation accumulation :
       {Accumulation::reduce_each, Accumulation::shard_each, Accumulation::reduce_last}) {
    Policy policy = two_micro_batches(Sharding::full);
    policy.accumulation = accumulation;
    const auto sent = [&](bool apart) {
      std::int64_t bytes = 0;
      const StepPlan plan = build_training(make_small_tied_model(apart), 2, policy);
      for (const Action& action : plan.actions)
        if (action.kind == Kind::reduce_scatter && action.unit == 0)
          bytes += plan.bytes_sent(action);
      return bytes;
    };
    EXPECT_GT(sent(false), 0);
    EXPECT_EQ(sent(true), 2 * sent(false));
  }
}

}  // namespace
