// SPDX-License-Identifier: Apache-2.0

// UnitDescription::can_add_gradients: backward adds the gradients of a micro-batch to the sum to
// which they come next, where that waits for them in device memory.

#include <tuple>

#include "plan/mutants.hpp"
#include "plan/random_plans.hpp"

namespace ostrakon::tests {
namespace {

ModelDescription with_adding_units(ModelDescription model) {
  for (UnitDescription& unit : model.units) unit.can_add_gradients = true;
  return model;
}

int opened(const StepPlan& plan) {
  return static_cast<int>(actions_of(plan, [](const Action& action) {
                            return action.adds_to == AddsTo::partial_sum;
                          }).size());
}

/// Peak of live bytes.
std::int64_t peak(const StepPlan& plan) { return peak_live_bytes(plan); }

StepPlan plan_of(bool adds, std::int64_t micro_batches, Policy policy, int ranks = 1) {
  const ModelDescription model = make_model(2, false, 21);
  policy.leaves = ranks * micro_batches;
  return train_plan(adds ? with_adding_units(model) : model, ranks, policy);
}

TEST(AddedGradients, TakeThePlaceOfAdditions) {
  constexpr int units = 4;
  struct Case {
    int micro_batches, added, left;  // of a unit: added by backward, and by actions of their own
    std::int64_t grain;
  };
  for (const auto& [micro_batches, added, left, grain] :
       {Case{1, 0, 0, 0}, Case{2, 1, 0, 0}, Case{3, 2, 0, 0}, Case{4, 2, 1, 0}, Case{8, 4, 3, 0},
        Case{8, 7, 0, 1}, Case{8, 4, 3, 2}}) {
    SCOPED_TRACE(text(micro_batches, " micro-batches, grain ", grain));
    Policy policy;
    policy.sum_grain = grain;
    const StepPlan plan = plan_of(true, micro_batches, policy),
                   apart = plan_of(false, micro_batches, policy);
    expect_proven(plan);
    EXPECT_EQ(opened(plan), units * added);
    EXPECT_EQ(count_of(plan, Kind::accumulate), units * left);
    EXPECT_EQ(opened(apart), 0);
    EXPECT_EQ(count_of(apart, Kind::accumulate), units * (micro_batches - 1));
    EXPECT_LE(peak(plan), peak(apart));
  }
}

TEST(AddedGradients, LeaveOutTheirOwnBuffer) {
  const StepPlan plan = plan_of(true, 2, {}), apart = plan_of(false, 2, {});
  const auto gradients = [](const StepPlan& of) {
    std::int64_t bytes = 0;
    for (const Buffer& buffer : of.buffers)
      if (buffer.category == Category::gradients) bytes += buffer.bytes;
    return bytes;
  };
  EXPECT_EQ(gradients(apart), 2 * gradients(plan));
}

TEST(AddedGradients, AreNotWhereASumIsOfParts) {
  for (const auto& [sharding, accumulation, adds] :
       {std::tuple{Sharding::none, Accumulation::automatic, true},
        std::tuple{Sharding::optimizer, Accumulation::automatic, true},
        std::tuple{Sharding::gradients, Accumulation::automatic, false},
        std::tuple{Sharding::full, Accumulation::automatic, false},
        std::tuple{Sharding::full, Accumulation::reduce_last, true},
        std::tuple{Sharding::none, Accumulation::reduce_each, false}}) {
    Policy policy;
    policy.sharding = sharding;
    policy.accumulation = accumulation;
    EXPECT_EQ(opened(plan_of(true, 4, policy, 2)) > 0, adds)
        << name(sharding) << ", " << name(accumulation);
  }
  Policy policy;
  policy.offload = Offload::optimizer;
  EXPECT_EQ(opened(plan_of(true, 4, policy)), 0) << "sums wait on the host";
  policy = {};
  policy.leaves = 4;
  const ModelDescription model = with_adding_units(make_model(2, true, 21));
  const StepPlan tied = train_plan(model, 1, policy);
  for (const std::size_t a : actions_of(tied, of_kind(Kind::backward, 0)))
    EXPECT_NE(tied.actions[a].buffer(Role::parameter_gradients), -1);
  EXPECT_EQ(count_of(tied, Kind::accumulate), 2 * 1 + 2 * 3)
      << "the table's gradients of both uses are added first";
  const auto audit = [&](const ModelDescription& of) {
    return opened(build_step_plan(of, 1, policy, Purpose::audit));
  };
  EXPECT_EQ(audit(model), audit(make_model(2, true, 21))) << "digests are of each leaf";
}

TEST(AddedGradients, AreProvenInRandomPlans) {
  Random random(7);
  int adding = 0;
  for (int i = 0; i < 300; ++i) {
    RandomPlan made = random_plan(random, 3, 4, 5);
    if (made.purpose != Purpose::train) continue;
    SCOPED_TRACE(made.described);
    const StepPlan plan = train_plan(with_adding_units(made.model), made.ranks, made.policy);
    expect_proven(plan);
    EXPECT_LE(peak(plan), peak(made.plan));
    const int fewer = count_of(made.plan, Kind::accumulate) - count_of(plan, Kind::accumulate);
    EXPECT_EQ(opened(plan) - opened(made.plan), fewer);
    adding += fewer > 0 ? 1 : 0;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(adding, 20);
}

TEST(AddedGradients, ToOtherSumsAreRefused) {
  const StepPlan plan = plan_of(true, 4, {});
  const auto expect_refused = [&](const char* why, const auto& change) {
    StepPlan mutant = plan;
    change(mutant);
    EXPECT_HAS(refused(mutant), why);
  };
  const char* const another = "which has neither the tied gradients of this leaf nor the sum";
  const auto adding = actions_of(plan, [](const Action& a) { return a.adds_gradients(); });
  for (const std::size_t a : adding) {
    expect_refused("overwrites '",
                   [&](StepPlan& mutant) { mutant.actions[a].adds_to = AddsTo::nothing; });
    expect_refused(another, [&](StepPlan& mutant) {
      mutant.units[static_cast<std::size_t>(mutant.actions[a].unit)].can_add_gradients = false;
    });
    expect_refused(another, [&](StepPlan& mutant) {
      mutant.actions[a].micro_batch = mutant.actions[a].micro_batch == 1 ? 3 : 1;
    });
    expect_refused(another,
                   [&](StepPlan& mutant) { mutant.actions[a].adds_to = AddsTo::tied_gradients; });
    expect_refused("which it begins", [&](StepPlan& mutant) {
      use_in(mutant.actions[a], Role::parameter_gradients).access = Access::write;
    });
  }
  const int other = plan.actions[adding.front()].buffer(Role::parameter_gradients);
  expect_refused(another, [&](StepPlan& mutant) {
    use_in(mutant.actions[adding[1]], Role::parameter_gradients).buffer = other;
  });
}

TEST(AddedGradients, TiedOnesAreNoPartialSum) {
  Policy policy;
  policy.leaves = 2;
  const StepPlan plan = train_plan(with_adding_units(make_model(2, true, 21)), 1, policy);
  const auto tied =
      actions_of(plan, [](const Action& a) { return a.adds_to == AddsTo::tied_gradients; });
  EXPECT_EQ(tied.size(), 2u);
  for (const std::size_t a : tied) {
    StepPlan mutant = plan;
    mutant.actions[a].adds_to = AddsTo::partial_sum;
    EXPECT_HAS(refused(mutant), "which has neither the tied gradients of this leaf nor the sum");
  }
}

}  // namespace
}  // namespace ostrakon::tests
