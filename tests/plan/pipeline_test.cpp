// SPDX-License-Identifier: Apache-2.0

// Plans of the stages of a pipeline: which units they have, in what order they compute, what
// crosses their borders and what they keep meanwhile.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/ir/pipeline_schedule.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/proof/order.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/plan/timing/timing.hpp>
#include <set>

#include "plan/oracle.hpp"
#include "plan/random_pipelines.hpp"
#include "support/trials.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

std::string words(const PipelineSchedule& turns) {
  std::string words;
  for (Turn turn : turns)
    words += (turn.pass == Pass::forward    ? " F"
              : turn.pass == Pass::backward ? " B"
                                            : " G") +
             std::to_string(turn.micro_batch) +
             (turn.chunk > 0 ? std::string(1, static_cast<char>('a' + turn.chunk - 1)) : "");
  return words;
}

TEST(PipelineSchedule, IsOneForwardOneBackward) {
  EXPECT_EQ(words(one_forward_one_backward(0, 3, 5)), " F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  EXPECT_EQ(words(one_forward_one_backward(1, 3, 5)), " F0 F1 B0 F2 B1 F3 B2 F4 B3 B4");
  EXPECT_EQ(words(one_forward_one_backward(2, 3, 5)), " F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
  EXPECT_EQ(words(one_forward_one_backward(0, 1, 2)), " F0 B0 F1 B1");
  // Fewer micro-batches than it takes to fill the pipeline.
  EXPECT_EQ(words(one_forward_one_backward(0, 4, 2)), " F0 F1 B0 B1");
}

TEST(PipelineSchedule, HasNoMoreMicroBatchesInFlightThanStagesBehind) {
  for (int stages = 1; stages <= 8; ++stages)
    for (int stage = 0; stage < stages; ++stage)
      for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
        const PipelineSchedule turns = one_forward_one_backward(stage, stages, micro_batches);
        int forwards = 0, backwards = 0, most = 0;
        for (Turn turn : turns) {
          // Each once, in order, backward after forward.
          int& of_pass = turn.pass == Pass::forward ? forwards : backwards;
          EXPECT_EQ(turn.micro_batch, of_pass++);
          ASSERT_GE(forwards, backwards);
          most = std::max(most, forwards - backwards);
        }
        EXPECT_EQ(forwards, micro_batches);
        EXPECT_EQ(backwards, micro_batches);
        EXPECT_EQ(most, std::min(stages - stage, micro_batches));
      }
}

TEST(PipelineSchedule, InterleavesChunks) {
  EXPECT_EQ(words(interleaved(1, 2, 2, 4)),
            " F0 F1 F0a B0a F1a B1a F2 B0 F3 B1 F2a B2a F3a B3a B2 B3");
  EXPECT_EQ(words(interleaved(0, 2, 2, 4)),
            " F0 F1 F0a F1a F2 B0a F3 B1a F2a B0 F3a B1 B2a B3a B2 B3");
  // With one chunk it is one forward, one backward.
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_EQ(interleaved(stage, 4, 1, 6), one_forward_one_backward(stage, 4, 6));
}

TEST(PipelineSchedule, DefersGradientsToWhereAStageWouldWait) {
  EXPECT_EQ(words(zero_bubble(0, 3, 4)), " F0 F1 F2 B0 G0 F3 B1 G1 B2 G2 B3 G3");
  EXPECT_EQ(words(zero_bubble(2, 3, 4)), " F0 B0 F1 B1 F2 B2 G0 F3 B3 G1 G2 G3");
  for (int stages = 1; stages <= 8; ++stages)
    for (int stage = 0; stage < stages; ++stage)
      for (int micro_batches = 1; micro_batches <= 16; ++micro_batches) {
        std::map<Pass, int> done;
        PipelineSchedule without;
        int most = 0;
        for (Turn turn : zero_bubble(stage, stages, micro_batches)) {
          EXPECT_EQ(turn.micro_batch, done[turn.pass]++);
          if (turn.pass != Pass::gradients) without.push_back(turn);
          ASSERT_GE(done[Pass::forward], done[Pass::backward]);
          ASSERT_GE(done[Pass::backward], done[Pass::gradients]);
          most = std::max(most, done[Pass::forward] - done[Pass::gradients]);
        }
        EXPECT_EQ(done[Pass::gradients], micro_batches);
        EXPECT_EQ(without, one_forward_one_backward(stage, stages, micro_batches));
        // No more than the first stage of 1f1b keeps.
        EXPECT_EQ(most, std::min(stages, micro_batches));
      }
}

TEST(PipelineSchedule, RefusesMicroBatchesThatDoNotInterleave) {
  const auto make = [](ScheduleKind schedule, int chunks, int micro_batches) {
    make_pipeline(schedule, 4, chunks, 0, leaf_sequence(micro_batches, LeafOrder::ascending),
                  false);
  };
  EXPECT_NO_THROW(make(ScheduleKind::interleaved, 2, 8));
  EXPECT_NO_THROW(make(ScheduleKind::interleaved, 2, 3));
  EXPECT_NO_THROW(make(ScheduleKind::one_forward_one_backward, 1, 6));
  EXPECT_NO_THROW(make(ScheduleKind::zero_bubble, 1, 6));
  EXPECT_THROW(make(ScheduleKind::interleaved, 2, 6), Error);
  EXPECT_THROW(make(ScheduleKind::interleaved, 1, 8), Error);
  EXPECT_THROW(make(ScheduleKind::zero_bubble, 2, 8), Error);
}

double busiest(const ModelDescription& model, const std::vector<UnitRange>& stages) {
  double most = 0.0;
  for (UnitRange stage : stages) {
    double flops = 0.0;
    for (int u = stage.first; u < stage.end; ++u)
      flops += model.units[static_cast<std::size_t>(u)].forward.front().flops +
               model.units[static_cast<std::size_t>(u)].backward.front().flops;
    most = std::max(most, flops);
  }
  return most;
}

TEST(Stages, ShareUnitsOutSoThatTheBusiestHasLittle) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const ModelDescription model = make_model(5, false, seed);
    const int units = 7;
    // Three stages, all ways.
    double least = busiest(model, {{0, 1}, {1, 2}, {2, units}});
    for (int a = 1; a < units - 1; ++a)
      for (int b = a + 1; b < units; ++b)
        least = std::min(least, busiest(model, {{0, a}, {a, b}, {b, units}}));
    const std::vector<UnitRange> stages = divide_units(model, 3);
    EXPECT_EQ(busiest(model, stages), least) << seed;
    EXPECT_NO_THROW(build_stage_plans(model, stages, 1, make_policy(2), Purpose::train));
  }
  EXPECT_THROW(divide_units(make_model(0, false, 1), 3), Error);
}

TEST(Stages, OneStageIsThePlanOfTheModel) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < tests::trials(300); ++trial) {
    ModelDescription model = make_model(4, random() % 2 == 0, random());
    vary(random, model);
    Policy policy = random_policy(random, model, 4, 12);
    vary(random, model, policy);
    const auto build = [&](bool as_stage) -> std::uint64_t {
      try {
        return as_stage ? build_stage_plans(model, {{0, 6}}, 4, policy, Purpose::train)[0].hash()
                        : build_step_plan(model, 4, policy, Purpose::train).hash();
      } catch (const Error&) {
        return 0;
      }
    };
    ASSERT_EQ(build(true), build(false)) << trial;
  }
}

std::vector<int> actions_of(const StepPlan& plan, Kind kind) {
  std::vector<int> found;
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a)
    if (plan.actions[static_cast<std::size_t>(a)].kind == kind) found.push_back(a);
  return found;
}

/// Most buffers of that name that are live at one action.
int most_live(const StepPlan& plan, const std::string& name) {
  int most = 0;
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a)
    most = std::max(most, static_cast<int>(std::count_if(
                              plan.buffers.begin(), plan.buffers.end(), [&](const Buffer& buffer) {
                                return buffer.name == name && buffer.first <= a && a <= buffer.last;
                              })));
  return most;
}

/// The plans of all stages where all but compute takes no time.
std::vector<Timing> times_of_compute(const std::vector<StepPlan>& plans) {
  Rates rates;
  rates.flops = 1.0;
  rates.bytes_inside_nodes = rates.bytes_across_nodes = rates.bytes_copied = 1e30;
  rates.bytes_on_host = 1e30;
  std::vector<const StepPlan*> pointers;
  for (const StepPlan& plan : plans) pointers.push_back(&plan);
  return estimate_times(pointers, 0, rates);
}

/// Units whose forward takes a second and whose backward two, in `chunks` chunks for each of
/// `stages` stages.
std::vector<Timing> even_stages(int stages, int chunks, int micro_batches) {
  ModelDescription model = make_model(stages * chunks - 2, false, 3);
  for (UnitDescription& unit : model.units) {
    unit.forward = {Phase{1.0}};
    unit.backward = {Phase{2.0}};
  }
  model.units.back().backward.front().flops = 3.0;  // it computes the loss, too
  Policy policy = make_policy(micro_batches);
  policy.chunks = chunks;
  if (chunks > 1) policy.schedule = ScheduleKind::interleaved;
  return times_of_compute(
      build_stage_plans(model, divide_units(model, stages * chunks), 1, policy, Purpose::train));
}

TEST(Stages, WaitForEachOtherAsLongAsTheScheduleSays) {
  for (int stages : {2, 3, 4, 8})
    for (int chunks : {1, 2, 3})
      for (int micro_batches : {stages, 2 * stages, 4 * stages}) {
        const double computing = 3.0 * chunks * micro_batches;
        // What fills and empties the pipeline: of one chunk.
        const double bubble = 3.0 * (stages - 1);
        for (const Timing& timing : even_stages(stages, chunks, micro_batches)) {
          EXPECT_NEAR(timing.computing, computing, 1e-6);
          EXPECT_NEAR(timing.seconds, computing + bubble, 1e-6)
              << stages << " stages of " << chunks << ", " << micro_batches;
        }
      }
}

/// Stages of a block each; the embedding is free, and the loss is part of a last block.
struct DeferringStages {
  ModelDescription model;
  std::vector<UnitRange> ranges;

  explicit DeferringStages(int stages) : model(make_model(stages, false, 3)) {
    const std::int64_t saved = 4096;
    for (UnitDescription& unit : model.units) {
      const bool is_block = unit.name != "embedding" && unit.name != "head";
      unit.saved_bytes = is_block ? saved : 0;
      unit.output_bytes = model.gradient_bytes;
      unit.forward = {Phase{is_block ? 1.0 : 0.0}};
      unit.backward = {Phase{is_block ? 1.0 : 0.0}};
      if (!is_block) continue;
      unit.deferral.backward_at_once = {Phase{2.0}};
      unit.backward.push_back(Phase{1.0});
      unit.deferral.phases = 1;
    }
    for (int s = 0; s < stages; ++s)
      ranges.push_back({s == 0 ? 0 : s + 1, s == stages - 1 ? stages + 2 : s + 2});
  }
  std::vector<StepPlan> plans(ScheduleKind schedule, int micro_batches, int ranks = 1) const {
    Policy policy = make_policy(std::int64_t{ranks} * micro_batches);
    policy.schedule = schedule;
    policy.reshard_after_forward.kind = Reshard::always;
    return build_stage_plans(model, ranges, ranks, policy, Purpose::train);
  }
};

/// A third of what 1f1b waits, and no more of what forward saved on any stage than 1f1b has on the
/// first.
TEST(Stages, WaitAThirdWhereGradientsAreDeferred) {
  for (int stages : {2, 3, 4, 8})
    for (int micro_batches : {stages, 2 * stages, 4 * stages}) {
      const DeferringStages made(stages);
      const double computing = 3.0 * micro_batches;
      for (const auto& [schedule, bubble] :
           {std::pair{ScheduleKind::one_forward_one_backward, 3.0 * (stages - 1)},
            std::pair{ScheduleKind::zero_bubble, 1.0 * (stages - 1)}})
        for (const Timing& timing : times_of_compute(made.plans(schedule, micro_batches))) {
          EXPECT_NEAR(timing.computing, computing, 1e-6);
          EXPECT_NEAR(timing.seconds, computing + bubble, 1e-6)
              << name(schedule) << ", " << stages << " stages, " << micro_batches;
        }
      for (const StepPlan& plan : made.plans(ScheduleKind::zero_bubble, micro_batches))
        EXPECT_EQ(most_live(plan, text("block.", plan.stage, " saved")),
                  std::min(stages, micro_batches))
            << plan.stage;
    }
}

/// What is deferred reads no parameters: nothing is gathered for it.
TEST(Stages, GatherNothingForWhatIsDeferred) {
  const DeferringStages made(2);
  const auto gathers = [&](ScheduleKind schedule) {
    std::size_t count = 0;
    for (const StepPlan& plan : made.plans(schedule, 4, 2))
      count += actions_of(plan, Kind::gather).size();
    return count;
  };
  EXPECT_GT(gathers(ScheduleKind::zero_bubble), 0u);
  EXPECT_EQ(gathers(ScheduleKind::zero_bubble), gathers(ScheduleKind::one_forward_one_backward));
  for (const StepPlan& plan : made.plans(ScheduleKind::zero_bubble, 4, 2))
    for (const Action& action : plan.actions)
      if (action.kind == Kind::backward && action.phase == 1) {
        EXPECT_LT(action.buffer(Role::parameters), 0);
        EXPECT_GE(action.buffer(Role::parameter_gradients), 0);
      }
}

/// Four stages of two units; all but the embedding and the head save something.
struct FourStages {
  ModelDescription model = make_model(6, false, 5);
  Policy policy = make_policy(2 * 6);
  std::vector<UnitRange> ranges = {{0, 2}, {2, 4}, {4, 6}, {6, 8}};

  std::vector<StepPlan> build(Purpose purpose = Purpose::train) const {
    return build_stage_plans(model, ranges, 2, policy, purpose);
  }
};

TEST(Stages, KeepTheActivationsOfAsManyMicroBatchesAsAreInFlight) {
  FourStages four;
  for (int micro_batches : {1, 2, 3, 6, 12}) {
    four.policy.leaves = 2 * micro_batches;
    const std::vector<StepPlan> plans = four.build();
    for (const StepPlan& plan : plans) {
      const int in_flight = std::min(4 - plan.stage, micro_batches);
      const std::string unit = plan.units[plan.stage == 0 ? 1 : 0].name;
      EXPECT_EQ(most_live(plan, unit + " saved"), in_flight)
          << "stage " << plan.stage << ", " << micro_batches << " micro-batches";
      // What was received waits for backward; one more comes meanwhile.
      if (plan.stage == 0) continue;
      const int live = most_live(plan, unit + " input");
      EXPECT_GE(live, in_flight);
      EXPECT_LE(live, std::min(in_flight + 1, micro_batches));
    }
  }
}

/// Activations that wait on the host take no space on the device, whatever is in flight.
TEST(Stages, ActivationsInFlightMayWaitOnTheHost) {
  FourStages four;
  four.policy.offload_activations = true;
  const std::vector<StepPlan> plans = four.build();
  for (const StepPlan& plan : plans) {
    if (plan.stage == 3) continue;  // backward follows forward at once
    const std::string unit = plan.units[plan.stage == 0 ? 1 : 0].name;
    EXPECT_EQ(most_live(plan, unit + " saved on host"), 4 - plan.stage);
    EXPECT_LE(most_live(plan, unit + " saved"), 2) << plan.stage;
    if (plan.stage > 0) {
      EXPECT_EQ(most_live(plan, unit + " input on host"), 4 - plan.stage);
    }
  }
}

TEST(Stages, NeighboursSendAndReceiveEachMicroBatchOnceEachWay) {
  const std::vector<StepPlan> plans = FourStages().build();
  for (const StepPlan& plan : plans) {
    std::map<std::pair<int, bool>, std::set<int>> sent, received;  // by peer, whether a gradient
    for (const Action& action : plan.actions) {
      if (action.kind != Kind::send && action.kind != Kind::receive) continue;
      auto& micro_batches =
          (action.kind == Kind::send ? sent
                                     : received)[{action.peer, action.buffer(Role::gradient) >= 0}];
      EXPECT_TRUE(micro_batches.insert(action.micro_batch).second) << plan.describe(action);
    }
    const std::set<int> all = {0, 1, 2, 3, 4, 5};
    const int s = plan.stage;
    std::map<std::pair<int, bool>, std::set<int>> wanted_sent, wanted_received;
    if (s < 3) wanted_sent[{s + 1, false}] = wanted_received[{s + 1, true}] = all;
    if (s > 0) wanted_sent[{s - 1, true}] = wanted_received[{s - 1, false}] = all;
    EXPECT_EQ(sent, wanted_sent) << s;
    EXPECT_EQ(received, wanted_received) << s;
  }
}

TEST(Stages, MessagesOverlapWithCompute) {
  const std::vector<StepPlan> plans = FourStages().build();
  for (const StepPlan& plan : plans) {
    const Order order(plan);
    const auto overlaps_compute = [&](int message) {
      for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
        const Kind kind = plan.actions[static_cast<std::size_t>(a)].kind;
        if ((kind == Kind::forward || kind == Kind::backward) && !order.before(a, message) &&
            !order.before(message, a))
          return true;
      }
      return false;
    };
    // Nothing can overlap with what the first turn needs, nor with what the last one leaves; the
    // first stage has nothing else to do while its first gradient comes.
    int waits = 0;
    for (Kind kind : {Kind::send, Kind::receive})
      for (int message : actions_of(plan, kind)) waits += overlaps_compute(message) ? 0 : 1;
    EXPECT_LE(waits, 2) << plan.stage;
  }
}

TEST(Stages, WhereNothingIsTrainedBeforeNoGradientGoesBack) {
  FourStages four;
  for (std::size_t u = 0; u < 3; ++u)
    four.model.units[u].frozen_elements = four.model.units[u].parameter_elements;
  const std::vector<StepPlan> plans = four.build();
  EXPECT_TRUE(actions_of(plans[0], Kind::backward).empty());
  EXPECT_TRUE(actions_of(plans[0], Kind::receive).empty());
  EXPECT_EQ(actions_of(plans[1], Kind::backward).size(), 6u);  // of one of two units
  for (const Action& action : plans[1].actions)
    EXPECT_TRUE(action.kind != Kind::send || action.peer == 2);
  EXPECT_EQ(actions_of(plans[2], Kind::backward).size(), 12u);
}

TEST(Stages, OnlyThoseThatReadTheBatchLoadIt) {
  FourStages four;
  for (UnitDescription& unit : four.model.units)
    unit.reads_batch = unit.name == "embedding" || unit.name == "head";
  const std::vector<StepPlan> plans = four.build();
  for (const StepPlan& plan : plans) {
    const bool reads = plan.stage == 0 || plan.stage == 3;
    EXPECT_EQ(actions_of(plan, Kind::load).size(), reads ? 6u : 0u);
    EXPECT_EQ(most_live(plan, "batch"), !reads ? 0 : plan.stage == 0 ? 4 : 1) << plan.stage;
  }
}

TEST(Stages, LossesAreAddedUpByTheLastAndUpdatesMadeByAll) {
  const std::vector<StepPlan> plans = FourStages().build();
  for (const StepPlan& plan : plans) {
    EXPECT_EQ(actions_of(plan, Kind::loss).size(), plan.stage == 3 ? 6u : 0u);
    EXPECT_EQ(actions_of(plan, Kind::clip).size(), 1u);
    EXPECT_EQ(actions_of(plan, Kind::optimize).size(), 2u);
    EXPECT_EQ(plan.grid.ranks(), 8);
  }
}

/// What stays gathered from forward to backward does so while any micro-batch is between both.
TEST(Stages, GatherOnceWhereParametersStay) {
  FourStages four;
  four.policy.reshard_after_forward.kind = Reshard::never;
  for (const StepPlan& plan : four.build()) {
    std::map<std::string, int> gathers;
    for (int a : actions_of(plan, Kind::gather))
      ++gathers[plan.units[static_cast<std::size_t>(plan.actions[static_cast<std::size_t>(a)].unit)]
                    .name];
    gathers.erase("embedding");  // its backward reads none
    for (const auto& [unit, count] : gathers)
      EXPECT_EQ(count, plan.stage == 3 ? 6 : 1) << "stage " << plan.stage << ", " << unit;
  }
}

TEST(Stages, RulesForUnitsAreForTheStagesThatHaveThem) {
  FourStages four;
  UnitRule rule;
  rule.pattern = "block.0";
  rule.forward_prefetch = Prefetch{1, {"block.3", "block.0"}};
  four.policy.units = {rule};
  EXPECT_NO_THROW(four.build());
  const auto refusal = [&] {
    try {
      four.build();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  four.policy.units[0].pattern = "blok.0";
  EXPECT_NE(refusal().find("blok.0 matches none of the model's units"), std::string::npos);
  four.policy.units[0] = rule;
  four.policy.units[0].forward_prefetch->units[0] = "block.33";
  EXPECT_NE(refusal().find("prefetch block.33: the model has no such unit"), std::string::npos);
}

TEST(Stages, RefuseWhatNoPipelineCanBe) {
  FourStages four;
  const auto refusal = [&](Purpose purpose = Purpose::train) {
    try {
      four.build(purpose);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("built");
  };
  EXPECT_EQ(refusal(), "built");
  EXPECT_NE(refusal(Purpose::decode).find("expected one stage, not 4"), std::string::npos);
  four.ranges[1].first = 3;
  EXPECT_NE(refusal().find("chunk 1 has the units [3, 4), expected some from 2 on"),
            std::string::npos);
  four.ranges = {{0, 2}, {2, 4}};
  EXPECT_NE(refusal().find("the chunks have 4 units of 8"), std::string::npos);
  four = FourStages();
  four.model.units[3].output_bytes = 0;
  EXPECT_NE(refusal().find("block.2 is the last of chunk 1 and leaves nothing"), std::string::npos);
}

/// Each stage's plan means the same in every order that its streams and waits allow.
TEST(Stages, AgreeWithTheOracle) {
  std::mt19937_64 random(12);
  for (int trial = 0; trial < 40; ++trial) {
    const RandomPipeline made = random_pipeline(random, {4, 3, 5, 2});
    for (const StepPlan& plan : made.stages) {
      const PlacedPlan placed = place(plan);
      ASSERT_FALSE(is_broken(placed)) << made.described;
      const Outcome meant = meaning(placed);
      SymbolicMachine machine(placed);
      for (int i = 0; i < 10; ++i)
        ASSERT_EQ(machine.run(random_order(placed.plan, random)), meant) << made.described;
    }
  }
}

}  // namespace
