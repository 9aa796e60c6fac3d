// SPDX-License-Identifier: Apache-2.0

// The proof over the plans of all ranks: it holds for every pipeline that is planned, and finds
// what is wrong with plans of stages that were written, or broken, by hand.

#include <map>

#include "plan/mutants.hpp"
#include "plan/random_pipelines.hpp"
#include "support/trials.hpp"

namespace ostrakon::tests {
namespace {

// ---- plans that are written

/// Whether units defer phases of backward.
bool defers_something(const StepPlan& plan) {
  return std::any_of(plan.units.begin(), plan.units.end(),
                     [](const PlannedUnit& unit) { return unit.first_gradient_phase > 0; });
}

TEST(StageProof, HoldsForEveryPipelineThatIsPlanned) {
  Random random(21);
  std::map<std::size_t, int> seen;
  int defer = 0;
  const int count = trials(takes_every_case() ? 10000 : 3000);
  for (int trial = 0; trial < count; ++trial) {
    const RandomPipeline made = trial % 4 == 1 ? random_pipeline(random, {8, 4, 16, 5, 1, true})
                                               : random_pipeline(random, {8, 4, 16, 5});
    ++seen[made.stages.size()];
    defer += std::any_of(made.stages.begin(), made.stages.end(), defers_something);
    ASSERT_NO_THROW(prove_stages(made.stages)) << "trial " << trial << ": " << made.described;
    if (trial % 4 != 0) continue;  // planning memory takes longest
    for (const StepPlan& plan : made.stages)
      ASSERT_EQ(memory_refused(plan), "") << "trial " << trial << ": " << made.described;
  }
  for (std::size_t stages = 1; stages <= 8; ++stages)
    EXPECT_GT(seen[stages], count / 100) << stages;
  EXPECT_GT(defer, count * 3 / 100);
}

TEST(StageProof, AgreesWithTheOracleOnPipelinesThatArePlanned) {
  Random random(23);
  for (int trial = 0; trial < 100; ++trial) {
    const RandomPipeline made = random_pipeline(random, {5, 4, 6, 2});
    const RankPlans ranks = all_ranks(made.stages);
    ASSERT_EQ(refused(ranks), "") << made.described;
    for (int i = 0; i < 3; ++i)
      ASSERT_EQ(RankOracle(ranks, Sending::rendezvous, random).run(), "") << made.described;
  }
}

// ---- plans written by hand

/// Actions of a stage on one stream, with a buffer for each message.
class HandMade {
 public:
  explicit HandMade(int stage, int stages = 2) {
    plan_.grid = Grid(1, 1, 1, stages);
    plan_.stage = stage;
  }
  HandMade& send(int peer, bool gradient) { return add(Kind::send, peer, gradient); }
  HandMade& receive(int peer, bool gradient) { return add(Kind::receive, peer, gradient); }
  StepPlan plan() const { return plan_; }

 private:
  HandMade& add(Kind kind, int peer, bool gradient) {
    Buffer buffer;
    buffer.bytes = 64;
    plan_.buffers.push_back(buffer);
    Action action;
    action.kind = kind;
    action.stream = Stream::send;
    action.micro_batch = 0;
    action.peer = peer;
    action.elements = 16;
    action.element_bytes = 4;
    action.uses = {{gradient ? Role::gradient : Role::input,
                    static_cast<int>(plan_.buffers.size()) - 1,
                    kind == Kind::send ? Access::read : Access::write}};
    plan_.actions.push_back(action);
    return *this;
  }

  StepPlan plan_;
};

TEST(StageProof, AssumesNoBuffering) {
  // Both send before they receive: it works where sends are buffered, as small ones often are.
  const RankPlans crossed = all_ranks({HandMade(0).send(1, false).receive(1, true).plan(),
                                       HandMade(1).send(0, true).receive(0, false).plan()});
  Random random(24);
  EXPECT_EQ(RankOracle(crossed, Sending::buffered, random).run(), "");
  EXPECT_EQ(RankOracle(crossed, Sending::rendezvous, random).run(), "stuck");
  EXPECT_HAS(
      refused(crossed),
      "they stop each other: stage 0's send(micro-batch 0, to stage 1) matches stage 1's "
      "receive(micro-batch 0, from stage 0), which comes after stage 1's send(micro-batch 0, "
      "to stage 0), which matches stage 0's receive(micro-batch 0, from stage 1), which comes "
      "after stage 0's send(micro-batch 0, to stage 1)");
  const RankPlans corrected = all_ranks({HandMade(0).send(1, false).receive(1, true).plan(),
                                         HandMade(1).receive(0, false).send(0, true).plan()});
  EXPECT_EQ(refused(corrected), "");
  EXPECT_EQ(RankOracle(corrected, Sending::rendezvous, random).run(), "");
}

TEST(StageProof, FindsCirclesOfManyStages) {
  // Each sends to the next, the last to the first, and receives afterwards.
  std::vector<StepPlan> stages;
  for (int s = 0; s < 5; ++s)
    stages.push_back(HandMade(s, 5).send((s + 1) % 5, false).receive((s + 4) % 5, false).plan());
  EXPECT_HAS(refused(all_ranks(stages)), "they stop each other");
  stages[2] = HandMade(2, 5).receive(1, false).send(3, false).plan();
  EXPECT_EQ(refused(all_ranks(stages)), "");
}

// ---- plans that are changed

TEST(StageProof, NamesTheRankWhereThoseOfAStageDiffer) {
  Policy policy = make_policy(4 * 2);
  policy.shard_group = 2;
  RankPlans ranks = all_ranks(
      build_stage_plans(make_model(2, false, 3), {{0, 2}, {2, 4}}, 4, policy, Purpose::train));
  StepPlan& own = ranks.own_plan(5);
  const auto gathers = actions_of(own, of_kind(Kind::gather));
  remove_action(own, gathers.back());
  const std::string reason = refused(ranks);
  EXPECT_HAS(reason, "stage 1 (rank 4)'s ");
  EXPECT_HAS(reason, "where stage 1 (rank 5) submits no more");
}

TEST(StageProof, RefusesPlansThatAreNotOfOneStep) {
  const ModelDescription model = make_model(2, false, 3);
  const auto build = [&](std::int64_t leaves) {
    return build_stage_plans(model, {{0, 2}, {2, 4}}, 2, make_policy(leaves), Purpose::train);
  };
  const std::vector<StepPlan> plans = build(4), longer = build(8);
  const auto reason = [&](const std::vector<const StepPlan*>& ranks) {
    return refused_by([&] { prove_ranks(ranks); });
  };
  EXPECT_EQ(reason({&plans[0], &plans[0], &plans[1], &plans[1]}), "");
  EXPECT_HAS(reason({&plans[0], &plans[0], &plans[1]}), "plans of 3 ranks of 4");
  EXPECT_HAS(reason({&plans[0], &plans[0], &longer[1], &longer[1]}), "for other axes");
  EXPECT_HAS(reason({&plans[0], &plans[1], &plans[0], &plans[1]}),
             "rank 1 is of stage 0, its plan is that of stage 1");
}

// ---- phases that are deferred

/// A change of one deferred phase, action `a`. False where it has none to make.
struct DeferredMutation {
  const char* name;
  bool (*mutate)(StepPlan& plan, std::size_t a);
};

constexpr DeferredMutation deferred_mutations[] = {
    {"never computed",
     [](StepPlan& plan, std::size_t a) {
       remove_action(plan, a);
       return true;
     }},
    {"computed twice",
     [](StepPlan& plan, std::size_t a) {
       insert_action(plan, a + 1, Action(plan.actions[a]));
       return true;
     }},
    {"of another micro-batch",
     [](StepPlan& plan, std::size_t a) {
       if (plan.grid.micro_batches() == 1) return false;
       Action& action = plan.actions[a];
       action.micro_batch = static_cast<int>((action.micro_batch + 1) % plan.grid.micro_batches());
       return true;
     }},
    {"another phase",
     [](StepPlan& plan, std::size_t a) {
       --plan.actions[a].phase;
       return true;
     }},
    {"of what another micro-batch has left",
     [](StepPlan& plan, std::size_t a) {
       constexpr Role roles[] = {Role::input, Role::saved, Role::deferred};
       Action& action = plan.actions[a];
       for (Action& other : plan.actions) {
         if (other.kind != Kind::backward || other.unit != action.unit ||
             other.phase != action.phase || other.micro_batch == action.micro_batch)
           continue;
         if (std::all_of(std::begin(roles), std::end(roles),
                         [&](Role role) { return other.buffer(role) == action.buffer(role); }))
           continue;
         std::swap(action.uses, other.uses);
         return true;
       }
       return false;
     }},
    {"gradients of a phase before",
     [](StepPlan& plan, std::size_t a) {
       Action& later = plan.actions[a];
       if (later.phase != plan.units[later.unit].first_gradient_phase) return false;
       const int gradients = later.buffer(Role::parameter_gradients);
       for (std::size_t b = a; gradients >= 0 && b-- > 0;) {
         Action& earlier = plan.actions[b];
         if (earlier.kind != Kind::backward || earlier.unit != later.unit ||
             earlier.micro_batch != later.micro_batch)
           continue;
         earlier.uses.push_back({Role::parameter_gradients, gradients, Access::write});
         return true;
       }
       return false;
     }},
};

TEST(StageProof, FindsWhatIsWrongWithDeferredPhases) {
  Random random(29);
  std::map<std::string, int> counts;
  for (int trial = 0; trial < 1000; ++trial) {
    const RandomPipeline made = random_pipeline(random, {4, 3, 5, 3, 1, true});
    for (const DeferredMutation& mutation : deferred_mutations) {
      std::vector<StepPlan> mutants = made.stages;
      StepPlan& mutant = draw(mutants, random);
      const auto deferred = actions_of(mutant, [&](const Action& action) {
        const int first = action.unit < 0 ? 0 : mutant.units[action.unit].first_gradient_phase;
        return action.kind == Kind::backward && first > 0 && action.phase >= first;
      });
      if (deferred.empty() || !mutation.mutate(mutant, draw(deferred, random))) continue;
      EXPECT_NE(refused(mutants), "") << mutation.name << " of " << made.described;
      ++counts[mutation.name];
    }
  }
  for (const DeferredMutation& mutation : deferred_mutations)
    EXPECT_GT(counts[mutation.name], 50) << mutation.name;
}

/// The verdict is in no buffer: what says so is a proof of its own.
TEST(StageProof, RefusesAnUpdateThatDoesNotWaitForTheSums) {
  StepPlan plan = train_plan(make_model(2, false, 3), 2, make_policy(4));
  EXPECT_EQ(refused(plan), "");
  int waits = 0;
  for (Action& action : plan.actions)
    for (int wait : action.waits)
      if (plan.actions[wait].kind == Kind::clip) {
        action.waits.clear();
        ++waits;
        break;
      }
  EXPECT_EQ(waits, 1);
  EXPECT_HAS(refused(plan), "does not wait for the step's sums");
}

TEST(StageProof, SeesEverySpanThatTheSecondLevelOfAGatherCanNotBeOver) {
  Policy policy = make_policy(64);
  policy.shard_group = 8;
  policy.ranks_per_node = 4;
  policy.hierarchical = {Hierarchical::always, 1};
  const StepPlan plan = train_plan(make_model(2, false, 3), 64, policy);
  ASSERT_EQ(refused(plan), "");
  const auto found = actions_of(plan, is_in_place);
  ASSERT_FALSE(found.empty());
  for (const Span& span : {Span{Axis::shard, 2}, Span{Axis::shard, 8}, Span{Axis::replicate, 4},
                           Span{Axis::shard, 2, 4}, Span{Axis::shard, 1}}) {
    StepPlan mutant = plan;
    mutant.actions[found.front()].span = span;
    EXPECT_HAS(refused(mutant), ", which has parts over 4 ranks along shard");
  }
}

TEST(StageProof, RanksOfAGroupSumByTheSameTrees) {
  const auto build = [&](std::int64_t grain) {
    Policy policy = make_policy(16);
    policy.sum_grain = grain;
    policy.accumulation = Accumulation::shard_each;
    return train_plan(make_model(2, false, 3), 4, policy);
  };
  RankPlans ranks = all_ranks({build(4)});
  EXPECT_EQ(refused(ranks), "");
  ranks.plans.push_back(build(2));
  ranks.plan_of_rank[2] = 1;
  EXPECT_HAS(refused(ranks), "they sum by other trees");
  ranks.plans.back() = ranks.plans.front();
  for (Action& action : ranks.plans.back().actions)
    if (action.kind == Kind::reduce_scatter)
      for (Use& use : action.uses)
        if (use.role == Role::gradient_shard) use.access = Access::read_write;
  EXPECT_HAS(refused(ranks), "one adds to the sum so far, one begins it");
}

}  // namespace
}  // namespace ostrakon::tests
