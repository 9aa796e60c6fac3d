// SPDX-License-Identifier: Apache-2.0
// A unit's forward that is computed again reads all that forward reads: its own parameters, also
// where backward does without them, and those of a unit that it is tied to.
#include "plan/mutants.hpp"
#include "support/covering.hpp"

namespace ostrakon::tests {
namespace {

constexpr int tied_block = 3, tied_to_block = 1;  // units

/// A block in the middle is tied to one before it; both are computed again.
ModelDescription make_tied_model(bool backward_reads) {
  ModelDescription model = make_model(4, false, 40);
  for (UnitDescription& unit : model.units) unit.recomputes = unit.saved_bytes > 0;
  model.units[tied_block].tied_to = tied_to_block;
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

// Values of another dtype are not what is computed with, although no rank has a part only.
TEST(Recompute, ReadsAllParametersThatForwardReads) {
  const Reshard reshards[] = {{Reshard::automatic, 0},
                              {Reshard::always, 0},
                              {Reshard::never, 0},
                              {Reshard::partly, 2},
                              {Reshard::end_of_step, 0}};
  const Sharding shardings[] = {Sharding::full, Sharding::optimizer, Sharding::none};
  for (const Choices& row :
       covering_rows({5, 2, 3, 2, 2, 2, 2, 3}, [](const Choices&) { return true; })) {
    Policy policy = make_recomputing(reshards[row[0]]);
    policy.forward_prefetch.depth = policy.backward_prefetch.depth = row[2] == 2 ? 3 : row[2];
    policy.in_flight_gathers.units = 2 * row[3];
    policy.offload = row[4] == 0 ? Offload::none : Offload::all;
    policy.sharding = shardings[row[7]];
    ModelDescription model = make_tied_model(row[1] == 0);
    if (row[6] == 1) model.element_bytes = 2;
    const StepPlan plan = train_plan(model, row[5] == 0 ? 1 : 4, policy);
    const auto recomputed = actions_of(plan, of_kind(Kind::recompute));
    EXPECT_EQ(static_cast<std::int64_t>(recomputed.size()), 4 * plan.grid.micro_batches());
    for (std::size_t a : recomputed) {
      const Action& action = plan.actions[a];
      std::vector<FlatRange> expected = {plan.units[action.unit].flats};
      if (action.unit == tied_block) expected.push_back(plan.units[tied_to_block].flats);
      EXPECT_EQ(read_by(plan, action), expected) << plan.units[action.unit].name;
    }
    expect_proven(plan);
  }
}

TEST(Recompute, OfOtherParametersIsRefused) {
  const auto refused_with = [](const ModelDescription& model, Sharding sharding, auto change) {
    Policy policy = make_recomputing({Reshard::always, 0});
    policy.sharding = sharding;
    StepPlan plan = train_plan(model, 4, policy);
    for (Action& action : plan.actions)
      if (action.kind == Kind::recompute && action.unit == tied_block) change(plan, action);
    return refused(plan);
  };
  const ModelDescription model = make_tied_model(false);
  EXPECT_EQ(refused_with(model, Sharding::full, [](const StepPlan&, const Action&) {}), "");
  const auto without_tied = [](const StepPlan&, Action& action) {
    action.uses.erase(action.uses.begin() +
                      (&use_in(action, Role::tied_parameters) - &*action.uses.begin()));
  };
  EXPECT_HAS(refused_with(model, Sharding::full, without_tied),
             "reads other parameters than forward");
  const auto read_instead = [](Role role, int unit) {
    return [=](const StepPlan& plan, Action& action) {
      use_in(action, role).buffer = plan.units[unit].masters;
    };
  };
  const auto own = read_instead(Role::parameters, tied_block);
  EXPECT_HAS(refused_with(model, Sharding::full, own), "needs space for the whole");
  EXPECT_HAS(
      refused_with(model, Sharding::full, read_instead(Role::tied_parameters, tied_to_block)),
      "needs space for the whole");
  EXPECT_HAS(refused_with(model, Sharding::none, read_instead(Role::tied_parameters, 2)),
             "reads other parameters than forward");
  ModelDescription of_bf16 = model;
  of_bf16.element_bytes = 2;
  EXPECT_HAS(refused_with(of_bf16, Sharding::none, own), "needs elements of 2 bytes");
}

}  // namespace
}  // namespace ostrakon::tests
