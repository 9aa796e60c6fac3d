// SPDX-License-Identifier: Apache-2.0
// What stages of a pipeline do with memory: which units they have, and which stay gathered.
#include <map>
#include <ostrakon/plan/pipeline/deferral.hpp>
#include <ostrakon/plan/report/report.hpp>
#include <ostrakon/plan/timing/timing.hpp>

#include "plan/random_plans.hpp"

namespace ostrakon::tests {
namespace {

/// Blocks that are alike, an embedding that computes nothing, and a head of as much work as
/// `head_blocks` blocks.
ModelDescription even_model(int blocks, double head_blocks) {
  ModelDescription model = make_model(blocks, false, 11);
  const UnitDescription block = model.units[1];
  for (UnitDescription& unit : model.units) {
    const bool is_block = unit.name != "embedding" && unit.name != "head";
    const std::string name = unit.name;
    if (is_block) unit = block;
    unit.name = name;
    unit.output_bytes = model.gradient_bytes;
    unit.saved_bytes = is_block ? std::int64_t{1} << 20 : 0;
    unit.parameter_elements = is_block ? 100000 : 1000;
    unit.frozen_elements = unit.frozen_count = 0;
    unit.whole_matrices.clear();
    const double work = is_block ? 1.0 : name == "head" ? head_blocks : 0.0;
    unit.forward = {Phase{name == "head" ? 0.0 : work}};
    unit.backward = {Phase{name == "head" ? 3.0 * work : 2.0 * work}};
  }
  return model;
}

Policy policy_of(int stages, int micro_batches, int ranks) {
  Policy policy = make_policy(std::int64_t{ranks} * micro_batches);
  policy.stages = stages;
  return policy;
}

std::int64_t largest_arena(const std::vector<StepPlan>& plans) {
  std::int64_t largest = 0;
  for (const StepPlan& plan : plans) largest = std::max(largest, plan_memory(plan).arena_bytes);
  return largest;
}

double computing_time(const std::vector<StepPlan>& plans) {
  return estimate_times(pointers(plans), 0, {1.0, 1e30, 1e30, 1e30, 1e30}).front().seconds;
}

std::map<std::string, int> gathers_of(const StepPlan& plan) {
  std::map<std::string, int> gathers;
  for (const Action& action : plan.actions)
    if (action.kind == Kind::gather) ++gathers[plan.units[action.unit].name];
  return gathers;
}

TEST(StagePlans, UnitsStayGatheredWhereAnotherStageNeedsTheMemory) {
  const ModelDescription model = even_model(15, 1.0);
  for (const ScheduleKind schedule :
       {ScheduleKind::one_forward_one_backward, ScheduleKind::interleaved}) {
    Policy policy = policy_of(4, 8, 2);
    policy.schedule = schedule;
    policy.chunks = schedule == ScheduleKind::interleaved ? 2 : 1;
    const std::vector<UnitRange> chunks = divide_units(model, 4 * policy.chunks);
    const auto build = [&](Reshard::Kind kind, Purpose purpose = Purpose::train) {
      Policy own = policy;
      own.reshard_after_forward.kind = kind;
      return build_stage_plans(model, chunks, 2, own, purpose);
    };
    const std::vector<StepPlan> plans = build(Reshard::automatic);
    EXPECT_EQ(refused(plans), "");
    EXPECT_LE(largest_arena(plans), largest_arena(build(Reshard::always)));
    int stay = 0;
    for (const StepPlan& plan : plans) {
      const std::map<std::string, int> gathers = gathers_of(plan);
      for (const PlannedUnit& unit : plan.units) {
        if (!unit.stays_gathered) continue;
        ++stay;
        EXPECT_EQ(gathers.at(unit.name), 1) << unit.name;
      }
    }
    EXPECT_GT(stay, 2) << name(schedule);
    // With all that later stages have room for, the first one, which has least, has none.
    EXPECT_FALSE(plans.front().units.back().stays_gathered);
    // What the deck says, and evaluations, are as before.
    for (const StepPlan& plan : build(Reshard::always))
      for (const PlannedUnit& unit : plan.units) EXPECT_FALSE(unit.stays_gathered);
    for (const StepPlan& plan : build(Reshard::automatic, Purpose::evaluate))
      for (const PlannedUnit& unit : plan.units) EXPECT_FALSE(unit.stays_gathered);
    const std::vector<StepPlan> all = build(Reshard::end_of_step);
    EXPECT_EQ(refused(all), "");
    EXPECT_GT(largest_arena(all), largest_arena(plans));
    for (const StepPlan& plan : all)
      for (const auto& [unit, count] : gathers_of(plan)) EXPECT_EQ(count, 1) << unit;
  }
}

TEST(StagePlans, DeferAndThenKeepInTheMemoryOfOneForwardOneBackward) {
  ModelDescription model = even_model(14, 1.0);
  for (UnitDescription& unit : model.units) {
    if (unit.name == "embedding" || unit.name == "head") continue;
    unit.deferral.backward_at_once = {Phase{2.0}};
    unit.backward = {Phase{1.0}, Phase{1.0}};
    unit.deferral.phases = 1;
    unit.deferral.bytes = unit.saved_bytes / 4;
  }
  Policy policy = policy_of(4, 8, 2);
  const std::vector<UnitRange> chunks = divide_units(model, 4);
  const std::vector<StepPlan> plain = build_stage_plans(model, chunks, 2, policy, Purpose::train);
  policy.schedule = ScheduleKind::zero_bubble;
  const std::vector<StepPlan> plans = build_stage_plans(model, chunks, 2, policy, Purpose::train);
  EXPECT_EQ(refused(plans), "");
  EXPECT_LE(largest_arena(plans), largest_arena(plain));
  EXPECT_LT(computing_time(plans), computing_time(plain));
  std::int64_t deferred = 0;
  int stay = 0;
  for (const StepPlan& plan : plans) {
    const StageSummary summary = summarize_stage(plan, 0, 0);
    EXPECT_EQ(summary.backwards, 8 * static_cast<std::int64_t>(plan.units.size()));
    deferred += summary.deferred;
    stay += summary.stay_gathered;
  }
  EXPECT_GT(deferred, 8);
  EXPECT_GT(stay, 0);
}

/// Stage s of 4 has s micro-batches of 100 bytes fewer than the first one, and has to keep these
/// and what is deferred.
TEST(Deferral, FitsInPartBesideOneForwardOneBackward) {
  ModelDescription stage;
  stage.units.resize(1);
  stage.units[0].saved_bytes = 100;
  std::vector<ModelDescription> stages(4, stage);
  EXPECT_EQ(part_deferred(stages, 8), 1.0);
  for (ModelDescription& one : stages) one.units[0].deferral.bytes = 50;
  EXPECT_NEAR(part_deferred(stages, 8), (100.0 / 200 + 200.0 / 350 + 300.0 / 500) / 3, 1e-9);
  // With two micro-batches all stages but the last one have both.
  EXPECT_NEAR(part_deferred(stages, 2), (0.0 + 0.0 + 100.0 / 200) / 3, 1e-9);
  // The first stage needs more for itself.
  stages[0].units[0].saved_bytes = 200;
  EXPECT_EQ(part_deferred(stages, 8), 1.0);
}

/// A unit that has no room is no reason that the others have none.
TEST(StagePlans, SmallUnitsStayGatheredBesideALargeOne) {
  ModelDescription model = even_model(15, 1.0);
  model.units[4].parameter_elements = 20000000;  // the last block of the first stage ...
  const std::vector<UnitRange> chunks = {{0, 5}, {5, 9}, {9, 13}, {13, 17}};
  model.units[5].parameter_elements = 10000000;  // and the first of the second
  const std::vector<StepPlan> plans =
      build_stage_plans(model, chunks, 2, policy_of(4, 8, 2), Purpose::train);
  const std::vector<PlannedUnit>& second = plans[1].units;
  EXPECT_TRUE(second[1].stays_gathered || second[2].stays_gathered || second[3].stays_gathered);
  EXPECT_EQ(refused(plans), "");
}

/// The units of a stage are those that it has, also where it borrows the one before them.
TEST(StagePlans, SummariesNameTheUnitsBehindABorrowedOne) {
  const ModelDescription model = make_model(3, true, 3);
  Policy policy = policy_of(2, 4, 1);
  const std::vector<StepPlan> plans =
      build_stage_plans(model, {{0, 1}, {1, 5}}, 1, policy, Purpose::train);
  const StageSummary second = summarize_stage(plans[1], 0, 0);
  EXPECT_EQ(second.units, "block.0 to head");
  EXPECT_GT(second.parameters, 0);
}

/// With a head as heavy as two and a half blocks, several divisions have the same busiest stage;
/// the first stage, which keeps most activations, gets few blocks.
TEST(FindChunks, GiveFewUnitsToStagesThatKeepMuch) {
  const ModelDescription model = even_model(31, 2.5);
  const Policy policy = policy_of(4, 16, 2);
  const std::vector<UnitRange> by_work = make_chunks(model, policy);
  const std::vector<UnitRange> found = find_chunks(model, 2, policy);
  const auto plans = [&](const std::vector<UnitRange>& chunks) {
    return build_stage_plans(model, chunks, 2, policy, Purpose::train);
  };
  const auto first = plans(by_work), balanced = plans(found);
  EXPECT_LE(computing_time(balanced), 1.001 * computing_time(first));
  EXPECT_LT(static_cast<double>(largest_arena(balanced)),
            0.95 * static_cast<double>(largest_arena(first)));
  EXPECT_EQ(found.front().first, 0);
  EXPECT_EQ(found.back().end, 33);
  EXPECT_EQ(refused(balanced), "");
}

TEST(FindChunks, AreWhatThePolicySays) {
  const ModelDescription model = even_model(31, 2.5);
  Policy policy = policy_of(2, 4, 2);
  policy.chunk_units = {20, 13};
  const std::vector<UnitRange> found = find_chunks(model, 2, policy);
  EXPECT_EQ(found[0].end, 20);
  policy.chunk_units.clear();
  policy.units = {{"nobody", Reshard{Reshard::never, 0}, {}, {}}};
  EXPECT_NE(refusal([&] { find_chunks(model, 2, policy); }), "");
}

}  // namespace
}  // namespace ostrakon::tests
