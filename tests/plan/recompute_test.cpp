// SPDX-License-Identifier: Apache-2.0
// A unit's forward that is computed again reads all that forward reads: its own parameters, also
// where backward does without them, and those of a unit that it is tied to.
#include <gtest/gtest.h>

#include <ostrakon/plan/memory/memory_plan.hpp>

#include "plan/random_plans.hpp"
#include "plan/rank_mutants.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

constexpr int tied_block = 3, of_block = 1;  // units

/// A block in the middle is tied to one before it; both are computed again.
ModelDescription make_tied_model(bool backward_reads) {
  ModelDescription model = make_model(4, false, 40);
  for (UnitDescription& unit : model.units) unit.recomputes = unit.saved_bytes > 0;
  model.units[tied_block].tied_to = of_block;
  model.units[tied_block].backward_reads_parameters = backward_reads;
  return model;
}

Policy make_recomputing(Reshard reshard) {
  Policy policy = make_policy(16);
  policy.reshard_after_forward = reshard;
  policy.activation_checkpointing.every = 1;
  return policy;
}

/// Returns the parameters that an action reads, whole: its own, then those of the unit that it is
/// tied to.
std::vector<FlatRange> read_by(const StepPlan& plan, const Action& action) {
  std::vector<FlatRange> read;
  for (Role role : {Role::parameters, Role::tied_parameters}) {
    const int buffer = action.buffer(role);
    if (buffer < 0) continue;
    read.push_back(plan.buffers[buffer].flats);
    EXPECT_EQ(plan.buffers[buffer].bytes,
              plan.padded(read.back()) * plan.layouts.gathered.element_bytes);
  }
  return read;
}

void expect_reads_what_forward_does(const StepPlan& plan) {
  int recomputed = 0;
  for (const Action& action : plan.actions) {
    if (action.kind != Kind::recompute) continue;
    ++recomputed;
    std::vector<FlatRange> expected = {plan.units[action.unit].flats};
    if (action.unit == tied_block) expected.push_back(plan.units[of_block].flats);
    EXPECT_EQ(read_by(plan, action), expected) << plan.units[action.unit].name;
  }
  EXPECT_EQ(recomputed, 4 * plan.grid.micro_batches());
  EXPECT_NO_THROW(prove_memory(plan, plan_memory(plan)));
  EXPECT_NO_THROW(prove_stages({&plan}));
}

TEST(Recompute, ReadsAllParametersThatForwardReads) {
  const Reshard reshards[] = {{Reshard::automatic, 0},
                              {Reshard::always, 0},
                              {Reshard::never, 0},
                              {Reshard::partly, 2},
                              {Reshard::end_of_step, 0}};
  for (bool backward_reads : {true, false})
    for (const Reshard& reshard : reshards)
      for (int depth : {0, 1, 3})
        for (int limit : {0, 2})
          for (Offload offload : {Offload::none, Offload::all})
            for (int ranks : {1, 4}) {
              Policy policy = make_recomputing(reshard);
              policy.forward_prefetch.depth = policy.backward_prefetch.depth = depth;
              policy.in_flight_gathers.units = limit;
              policy.offload = offload;
              expect_reads_what_forward_does(
                  build_step_plan(make_tied_model(backward_reads), ranks, policy, Purpose::train));
            }
}

// Values of another dtype are not what is computed with, although no rank has a part only.
TEST(Recompute, ReadsCopiesToComputeWith) {
  ModelDescription model = make_tied_model(false);
  model.element_bytes = 2;
  for (Sharding sharding : {Sharding::none, Sharding::optimizer, Sharding::full}) {
    Policy policy = make_recomputing({Reshard::always, 0});
    policy.sharding = sharding;
    expect_reads_what_forward_does(build_step_plan(model, 4, policy, Purpose::train));
  }
}

TEST(Recompute, OfOtherParametersIsRefused) {
  const auto refusal = [](ModelDescription model, Sharding sharding, auto change) {
    Policy policy = make_recomputing({Reshard::always, 0});
    policy.sharding = sharding;
    StepPlan plan = build_step_plan(model, 4, policy, Purpose::train);
    for (Action& action : plan.actions)
      if (action.kind == Kind::recompute && action.unit == tied_block) change(plan, action);
    return refused(all_ranks({plan}));
  };
  const ModelDescription model = make_tied_model(false);
  EXPECT_EQ(refusal(model, Sharding::full, [](const StepPlan&, const Action&) {}), "");
  const auto without_tied = [](const StepPlan&, Action& action) {
    action.uses.erase(std::find_if(action.uses.begin(), action.uses.end(), [](const Use& use) {
      return use.role == Role::tied_parameters;
    }));
  };
  expect_has(refusal(model, Sharding::full, without_tied), "reads other parameters than forward");
  const auto read_instead = [](Role role, int unit) {
    return [=](const StepPlan& plan, Action& action) {
      for (Use& use : action.uses)
        if (use.role == role) use.buffer = plan.units[unit].masters;
    };
  };
  const auto own = read_instead(Role::parameters, tied_block);
  expect_has(refusal(model, Sharding::full, own), "needs space for the whole");
  expect_has(refusal(model, Sharding::full, read_instead(Role::tied_parameters, of_block)),
             "needs space for the whole");
  expect_has(refusal(model, Sharding::none, read_instead(Role::tied_parameters, 2)),
             "reads other parameters than forward");
  ModelDescription of_bf16 = model;
  of_bf16.element_bytes = 2;
  expect_has(refusal(of_bf16, Sharding::none, own), "needs elements of 2 bytes");
}

}  // namespace
