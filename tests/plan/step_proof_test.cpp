// SPDX-License-Identifier: Apache-2.0

// The proof finds what all ranks of a stage do alike, and wrongly: gathers of other parts than
// there are, sums in another order.

#include <gtest/gtest.h>

#include <map>

#include "plan/random_pipelines.hpp"
#include "plan/rank_mutants.hpp"
#include "support/trials.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

/// Another of the spans that ranks of the stage can be divided into.
bool draw_span(const Grid& grid, Span& span, Random& random) {
  std::vector<Span> others;
  for (Axis axis : {Axis::shard, Axis::replicate}) {
    const int size = static_cast<int>(grid.size(axis));
    for (int ranks = 1; ranks <= size; ++ranks)
      for (int stride = 1; ranks * stride <= size; ++stride) {
        const Span other{axis, ranks, stride};
        if (size % (ranks * stride) == 0 && other != span && (ranks > 1 || stride == 1))
          others.push_back(other);
      }
  }
  if (others.empty()) return false;
  span = draw(others, random);
  return true;
}

bool is_in_place(const Action& action) {
  return action.kind == Kind::gather && action.span.ranks > 1 && action.buffer(Role::shard) < 0;
}

/// An action, drawn from those that `which` says, is over another span.
Mutation change_span_for_all(const std::function<bool(const Action&)>& which) {
  return [=](RankPlans& ranks, Random& random) {
    StepPlan& plan = draw(ranks.plans, random);
    const auto found = actions_of(plan, which);
    return !found.empty() &&
           draw_span(plan.grid, plan.actions[found[random() % found.size()]].span, random);
  };
}

/// An array is divided over one span more, or fewer.
bool change_divided(RankPlans& ranks, Random& random) {
  StepPlan& plan = draw(ranks.plans, random);
  std::vector<Buffer*> arrays;
  for (Buffer& buffer : plan.buffers)
    if (!buffer.flats.empty()) arrays.push_back(&buffer);
  if (arrays.empty()) return false;
  Spans& divided = draw(arrays, random)->divided;
  Span more{Axis::micro_batch, 1};
  if (!divided.empty())
    divided = divided.outer();
  else if (draw_span(plan.grid, more, random) && more.ranks > 1)
    divided.push(more);
  else
    return false;
  return true;
}

bool change_tree(RankPlans& ranks, Random& random) {
  StepPlan& plan = draw(ranks.plans, random);
  const auto sums = actions_of(plan, of_kind(Kind::reduce_scatter));
  if (sums.empty()) return false;
  Action& sum = plan.actions[sums[random() % sums.size()]];
  sum.tree = sum.tree == 0 ? 1 : random() % 2 == 0 ? 0 : 2 * sum.tree;
  return true;
}

/// A reduce-scatter that adds to the sum so far begins another, or the other way round.
Mutation change_sum(Access from, Access to) {
  return [=](RankPlans& ranks, Random& random) {
    StepPlan& plan = draw(ranks.plans, random);
    const auto sums = actions_of(plan, [&](const Action& action) {
      return action.kind == Kind::reduce_scatter &&
             action.continues_sum() == (from == Access::read_write);
    });
    if (sums.empty()) return false;
    for (Use& use : plan.actions[sums[random() % sums.size()]].uses)
      if (use.role == Role::gradient_shard) use.access = to;
    return true;
  };
}

/// A gather, and with it its parameters, is missing.
Mutation drop(const std::function<bool(const Action&)>& which) {
  return [=](RankPlans& ranks, Random& random) {
    StepPlan& plan = draw(ranks.plans, random);
    const auto found = actions_of(plan, which);
    if (found.empty()) return false;
    remove_action(plan, found[random() % found.size()]);
    return true;
  };
}

bool add_to_itself(RankPlans& ranks, Random& random) {
  StepPlan& plan = draw(ranks.plans, random);
  const auto found = actions_of(plan, of_kind(Kind::accumulate));
  if (found.empty()) return false;
  Action& action = plan.actions[found[random() % found.size()]];
  use_in(action, Role::source).buffer = action.buffer(Role::parameter_gradients);
  return true;
}

bool swap_sources(RankPlans& ranks, Random& random) {
  return with_neighbours(
      draw(ranks.plans, random), random, of_kind(Kind::accumulate), [](Action& a, Action& b) {
        std::swap(use_in(a, Role::source).buffer, use_in(b, Role::source).buffer);
        return true;
      });
}

TEST(StepProof, RefusesWhatAllRanksOfAStageDoWrong) {
  struct Named {
    const char* name;
    Mutation mutate;
    std::vector<std::string> reasons;
  };
  const std::vector<std::string> contents = {"which has ",     "which is for ",
                                             "its layout ",    "are not parts over these ranks",
                                             "not as many as", "they are no equal parts"};
  const std::vector<std::string> sums = {"is not summed over",
                                         "a use of the parameters is missing",
                                         "not summed over the same",
                                         "no siblings in the tree",
                                         "adds to another sum",
                                         "not both gradients of this unit",
                                         "which has nothing yet",
                                         "of another form",
                                         "is for "};
  const std::vector<Named> mutations = {
      {"span of a gather in place", change_span_for_all(is_in_place), contents},
      {"span of a gather of updates", change_span_for_all(of_kind(Kind::gather_updates)), contents},
      {"span of a sum",
       change_span_for_all(of_kind(Kind::reduce_scatter)),
       {"are not parts over these ranks", "they are no equal parts"}},
      {"dropped gather in place", drop(is_in_place), contents},
      {"dropped gather of updates",
       drop(of_kind(Kind::gather_updates)),
       {"is left with ", "which has "}},
      {"what a buffer is divided over",
       change_divided,
       {"which has ", "which is for ", "its layout ", "are not parts over these ranks",
        "not as many as", "of another form", "are not summed", "whose "}},
      {"tree of a sum", change_tree, {"sums by "}},
      {"sum that begins again",
       change_sum(Access::read_write, Access::write),
       {"drops the sum over the micro-batches before"}},
      {"sum that adds to nothing",
       change_sum(Access::write, Access::read_write),
       {"adds to a sum that has not begun", "which has nothing yet"}},
      {"dropped sum", drop(of_kind(Kind::reduce_scatter)), sums},
      {"dropped accumulation", drop(of_kind(Kind::accumulate)), sums},
      {"accumulation of one sum twice", add_to_itself, {"no siblings in the tree", "are in both"}},
      {"accumulation of other sums", swap_sources, sums}};
  Random random(27);
  std::map<std::string, int> counts;
  for (int base = 0; base < tests::trials(1500); ++base) {
    const RankPlans whole = all_ranks(random_pipeline(random, {3, 16, 4, 2}).stages);
    for (const Named& mutation : mutations)
      for (int i = 0; i < 3; ++i) {
        RankPlans mutant = whole;
        if (!mutation.mutate(mutant, random)) continue;
        const std::string reason = refused(mutant);
        ASSERT_TRUE(std::any_of(
            mutation.reasons.begin(), mutation.reasons.end(),
            [&](const std::string& part) { return reason.find(part) != std::string::npos; }))
            << mutation.name << " of base " << base << ": '" << reason << "'";
        ++counts[mutation.name];
      }
  }
  for (const Named& mutation : mutations) {
    std::printf("%-34s %4d refused\n", mutation.name, counts[mutation.name]);
    EXPECT_GT(counts[mutation.name], tests::trials(15)) << mutation.name;
  }
}

TEST(StepProof, SeesEverySpanThatTheSecondLevelOfAGatherCanNotBeOver) {
  Policy policy = make_policy(64);
  policy.shard_group = 8;
  policy.ranks_per_node = 4;
  policy.hierarchical = {Hierarchical::always, 1};
  const StepPlan plan = build_step_plan(make_model(2, false, 3), 64, policy, Purpose::train);
  ASSERT_NO_THROW(prove_stages({&plan}));
  const auto found = actions_of(plan, is_in_place);
  ASSERT_FALSE(found.empty());
  for (const Span& span : {Span{Axis::shard, 2}, Span{Axis::shard, 8}, Span{Axis::replicate, 4},
                           Span{Axis::shard, 2, 4}, Span{Axis::shard, 1}}) {
    StepPlan mutant = plan;
    mutant.actions[found.front()].span = span;
    expect_has(refused(all_ranks({mutant})), ", which has parts over 4 ranks along shard");
  }
}

TEST(StepProof, RanksOfAGroupSumByTheSameTrees) {
  const auto build = [&](std::int64_t grain) {
    Policy policy = make_policy(16);
    policy.sum_grain = grain;
    policy.accumulation = Accumulation::shard_each;
    return build_step_plan(make_model(2, false, 3), 4, policy, Purpose::train);
  };
  RankPlans ranks = all_ranks({build(4)});
  EXPECT_EQ(refused(ranks), "");
  ranks.plans.push_back(build(2));
  ranks.plan_of_rank[2] = 1;
  expect_has(refused(ranks), "they sum by other trees");
  ranks.plans.back() = ranks.plans.front();
  for (Action& action : ranks.plans.back().actions)
    if (action.kind == Kind::reduce_scatter)
      for (Use& use : action.uses)
        if (use.role == Role::gradient_shard) use.access = Access::read_write;
  expect_has(refused(ranks), "one adds to the sum so far, one begins it");
}

}  // namespace
