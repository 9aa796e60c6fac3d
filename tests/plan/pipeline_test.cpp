// SPDX-License-Identifier: Apache-2.0

// Plans of the stages of a pipeline: which units they have, in what order they compute, what
// crosses their borders and what they keep meanwhile.

#include <map>
#include <ostrakon/plan/ir/pipeline_schedule.hpp>
#include <ostrakon/plan/proof/happens_before.hpp>
#include <ostrakon/plan/timing/timing.hpp>
#include <set>

#include "plan/random_plans.hpp"
#include "support/trials.hpp"

namespace ostrakon::tests {
namespace {

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

TEST(PipelineSchedule, IsAsWrittenByHand) {
  const auto plain = one_forward_one_backward;
  EXPECT_EQ(words(plain(0, 3, 5)), " F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  EXPECT_EQ(words(plain(1, 3, 5)), " F0 F1 B0 F2 B1 F3 B2 F4 B3 B4");
  EXPECT_EQ(words(plain(2, 3, 5)), " F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
  EXPECT_EQ(words(plain(0, 1, 2)), " F0 B0 F1 B1");
  // Fewer micro-batches than it takes to fill the pipeline.
  EXPECT_EQ(words(plain(0, 4, 2)), " F0 F1 B0 B1");
  EXPECT_EQ(words(interleaved(1, 2, 2, 4)),
            " F0 F1 F0a B0a F1a B1a F2 B0 F3 B1 F2a B2a F3a B3a B2 B3");
  EXPECT_EQ(words(interleaved(0, 2, 2, 4)),
            " F0 F1 F0a F1a F2 B0a F3 B1a F2a B0 F3a B1 B2a B3a B2 B3");
  EXPECT_EQ(words(zero_bubble(0, 3, 4)), " F0 F1 F2 B0 G0 F3 B1 G1 B2 G2 B3 G3");
  EXPECT_EQ(words(zero_bubble(2, 3, 4)), " F0 B0 F1 B1 F2 B2 G0 F3 B3 G1 G2 G3");
  // With one chunk, interleaved is one forward, one backward.
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_EQ(interleaved(stage, 4, 1, 6), one_forward_one_backward(stage, 4, 6));
}

/// Each micro-batch once, in order, backward after forward. Without deferral as many are in flight
/// as there are stages behind; with it no more than the first of these stages keeps.
TEST(PipelineSchedule, HasAsManyMicroBatchesInFlightAsItMay) {
  for (int stages = 1; stages <= 8; ++stages)
    for (int stage = 0; stage < stages; ++stage)
      for (int micro_batches = 1; micro_batches <= 16; ++micro_batches)
        for (const bool defers : {false, true}) {
          const PipelineSchedule plain = one_forward_one_backward(stage, stages, micro_batches);
          const Pass last = defers ? Pass::gradients : Pass::backward;
          std::map<Pass, int> done;
          PipelineSchedule without;
          int most = 0;
          for (Turn turn : defers ? zero_bubble(stage, stages, micro_batches) : plain) {
            EXPECT_EQ(turn.micro_batch, done[turn.pass]++);
            if (turn.pass != Pass::gradients) without.push_back(turn);
            ASSERT_GE(done[Pass::forward], done[Pass::backward]);
            ASSERT_GE(done[Pass::backward], done[Pass::gradients]);
            most = std::max(most, done[Pass::forward] - done[last]);
          }
          EXPECT_EQ(done[Pass::forward], micro_batches);
          EXPECT_EQ(done[last], micro_batches);
          EXPECT_EQ(without, plain);
          EXPECT_EQ(most, std::min(defers ? stages : stages - stage, micro_batches));
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
      flops += model.units[u].forward.front().flops + model.units[u].backward.front().flops;
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
  Random random(11);
  for (int trial = 0; trial < trials(300); ++trial) {
    const RandomPlan made = random_plan(random, 4, 4, 3);
    if (made.purpose == Purpose::decode) continue;
    const UnitRange all = {0, static_cast<int>(made.model.units.size())};
    const StepPlan stage =
        build_stage_plans(made.model, {all}, made.ranks, made.policy, made.purpose)[0];
    ASSERT_EQ(stage.hash(), made.plan.hash()) << made.described;
  }
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
  return estimate_times(pointers(plans), 0, {1.0, 1e30, 1e30, 1e30, 1e30});
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
    int count = 0;
    for (const StepPlan& plan : made.plans(schedule, 4, 2)) count += count_of(plan, Kind::gather);
    return count;
  };
  EXPECT_GT(gathers(ScheduleKind::zero_bubble), 0);
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

TEST(Stages, MessagesOverlapWithCompute) {
  const std::vector<StepPlan> plans = FourStages().build();
  for (const StepPlan& plan : plans) {
    const HappensBefore order(plan);
    const auto overlaps_compute = [&](int message) {
      for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
        const Kind kind = plan.actions[a].kind;
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
      for (std::size_t message : actions_of(plan, of_kind(kind)))
        waits += overlaps_compute(static_cast<int>(message)) ? 0 : 1;
    EXPECT_LE(waits, 2) << plan.stage;
  }
}

TEST(Stages, WhereNothingIsTrainedBeforeNoGradientGoesBack) {
  FourStages four;
  for (std::size_t u = 0; u < 3; ++u)
    four.model.units[u].frozen_elements = four.model.units[u].parameter_elements;
  const std::vector<StepPlan> plans = four.build();
  EXPECT_EQ(count_of(plans[0], Kind::backward), 0);
  EXPECT_EQ(count_of(plans[0], Kind::receive), 0);
  EXPECT_EQ(count_of(plans[1], Kind::backward), 6);  // of one of two units
  for (const Action& action : plans[1].actions)
    EXPECT_TRUE(action.kind != Kind::send || action.peer == 2);
  EXPECT_EQ(count_of(plans[2], Kind::backward), 12);
}

TEST(Stages, RulesForUnitsAreForTheStagesThatHaveThem) {
  const auto refused_rule = [](const char* pattern, const char* prefetched) {
    FourStages four;
    UnitRule rule;
    rule.pattern = pattern;
    rule.forward_prefetch = Prefetch{1, {prefetched, "block.0"}};
    four.policy.units = {rule};
    return refusal([&] { four.build(); });
  };
  EXPECT_EQ(refused_rule("block.0", "block.3"), "");
  EXPECT_HAS(refused_rule("blok.0", "block.3"), "blok.0 matches none of the model's units");
  EXPECT_HAS(refused_rule("block.0", "block.33"), "prefetch block.33: the model has no such unit");
}

TEST(Stages, RefuseWhatNoPipelineCanBe) {
  FourStages four;
  const auto refused_for = [&](Purpose purpose = Purpose::train) {
    return refusal([&] { four.build(purpose); });
  };
  EXPECT_EQ(refused_for(), "");
  EXPECT_HAS(refused_for(Purpose::decode), "expected one stage, not 4");
  four.ranges[1].first = 3;
  EXPECT_HAS(refused_for(), "chunk 1 has the units [3, 4), expected some from 2 on");
  four.ranges = {{0, 2}, {2, 4}};
  EXPECT_HAS(refused_for(), "the chunks have 4 units of 8");
  four = FourStages();
  four.model.units[3].output_bytes = 0;
  EXPECT_HAS(refused_for(), "block.2 is the last of chunk 1 and leaves nothing");
}

}  // namespace
}  // namespace ostrakon::tests
