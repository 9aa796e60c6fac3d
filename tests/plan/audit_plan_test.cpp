// SPDX-License-Identifier: Apache-2.0

// Plans of audited steps: proven, with the state of other plans, and with one leaf more.

#include <map>
#include <tuple>

#include "plan/random_plans.hpp"
#include "support/trials.hpp"

namespace ostrakon::tests {
namespace {

int count_of(const StepPlan& plan, Kind kind) {
  return static_cast<int>(std::count_if(plan.actions.begin(), plan.actions.end(),
                                        [&](const Action& action) { return action.kind == kind; }));
}

/// Each gradient and each gathered parameter has a digest, in the plan of each micro-batch.
void expect_digests(const StepPlan& plan) {
  const int leaves = static_cast<int>(plan.grid.micro_batches()) + 1;
  std::map<std::pair<int, bool>, int> gradients;  // by unit, and whether computed again
  for (const Digest& digest : plan.digests)
    if (digest.what == Digest::What::gradient) ++gradients[{digest.unit, digest.again}];
  for (const auto& [what, count] : gradients)
    EXPECT_EQ(gradients.at({what.first, !what.second}), count);
  std::map<std::tuple<int, bool>, int> computed;
  for (const Action& action : plan.actions)
    if (action.kind == Kind::digest) {
      ASSERT_GE(action.digest, 0);
      ASSERT_LT(action.digest, static_cast<int>(plan.digests.size()));
      const Digest& digest = plan.digests[static_cast<std::size_t>(action.digest)];
      EXPECT_EQ(digest.unit, action.unit);
      EXPECT_EQ(digest.again, plan.is_again(action));
      ++computed[{action.digest, digest.again}];
    }
  for (const auto& [which, count] : computed) {
    const auto& digest = plan.digests[static_cast<std::size_t>(std::get<0>(which))];
    const bool is_of_leaf =
        digest.what == Digest::What::read || digest.what == Digest::What::gradient;
    EXPECT_EQ(count, is_of_leaf && !digest.again ? leaves - 1 : 1);
  }
}

TEST(AuditedSteps, AreProvenAndComputeOneLeafMore) {
  Random random(5);
  int planned = 0;
  for (int trial = 0; trial < trials(1500); ++trial) {
    const RandomPlan made = random_plan(random, 4, 8, 4);
    SCOPED_TRACE(made.described);
    StepPlan plan, train;
    const std::string why = refusal([&] {
      train = build_step_plan(made.model, made.ranks, made.policy, Purpose::train);
      plan = build_step_plan(made.model, made.ranks, made.policy, Purpose::audit);
    });
    if (!why.empty()) {
      EXPECT_HAS(why, made.purpose == Purpose::decode ? "" : "runtime.audit: memory.");
      continue;
    }
    ++planned;
    expect_proven(plan);
    expect_digests(plan);
    EXPECT_EQ(count_of(plan, Kind::audit), 1);
    for (const Action& action : plan.actions)
      if (action.kind == Kind::audit) {
        EXPECT_EQ(
            plan.bytes_sent(action),
            8 * (static_cast<std::int64_t>(plan.digests.size()) + 1) * (plan.grid.ranks() - 1));
      }
    EXPECT_EQ(count_of(plan, Kind::clip), 1);
    EXPECT_EQ(count_of(plan, Kind::reduce_scatter), count_of(train, Kind::reduce_scatter));
    const auto micro_batches = static_cast<int>(plan.grid.micro_batches());
    EXPECT_EQ(count_of(plan, Kind::backward) * micro_batches,
              count_of(train, Kind::backward) * (micro_batches + 1));
    for (Space space : both_spaces) {
      const MemoryPlan its = plan_memory(plan, space), other = plan_memory(train, space);
      for (std::size_t b = 0; b < plan.buffers.size() && plan.buffers[b].persistent; ++b)
        ASSERT_EQ(its.offsets[b], other.offsets[b]);
    }
  }
  EXPECT_GT(planned, trials(1500) / 3);
}

/// Gradients that are computed again are no part of a step's sums: the proof refuses a plan that
/// reduces them.
TEST(AuditedSteps, MustNotSumWhatIsComputedAgain) {
  StepPlan plan = build_step_plan(make_model(2, false, 1), 2, make_policy(4), Purpose::audit);
  const auto again = std::find_if(plan.actions.begin(), plan.actions.end(), [&](const Action& a) {
    return a.kind == Kind::digest && plan.is_again(a) && a.buffer(Role::parameter_gradients) >= 0;
  });
  ASSERT_NE(again, plan.actions.end());
  const int buffer = again->buffer(Role::parameter_gradients);
  for (Action& action : plan.actions)
    if (action.kind == Kind::reduce_scatter && action.unit == again->unit)
      for (Use& use : action.uses)
        if (use.role == Role::parameter_gradients) use.buffer = buffer;
  EXPECT_NE(refused(plan), "");
}

TEST(AuditedSteps, AreRefusedWhereNoRankHasAllUnits) {
  Policy policy = make_policy(4);
  policy.stages = 2;
  EXPECT_HAS(
      refusal([&] {
        build_stage_plans(make_model(2, false, 1), {{0, 2}, {2, 4}}, 1, policy, Purpose::audit);
      }),
      "runtime.audit: parallel.pipeline = 2: expected 1");
}

TEST(AuditedSteps, AreRefusedWhereOwnersRoundWhatTheySend) {
  ModelDescription model = make_model(2, false, 1);
  model.element_bytes = 2;
  model.units[1].quantized = {{true, 0, 64}};
  EXPECT_HAS(refusal([&] { build_step_plan(model, 2, make_policy(4), Purpose::audit); }),
             "runtime.audit: precision.gather = fp8: expected fp32");
}

}  // namespace
}  // namespace ostrakon::tests
