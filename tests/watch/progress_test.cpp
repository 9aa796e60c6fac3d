// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/watch/progress.hpp>
#include <string>
#include <thread>

namespace ostrakon::watch {
namespace {

using plan::Action;
using plan::Kind;
using plan::Stream;

Action action_of(Kind kind, std::vector<int> waits = {}) {
  Action action;
  action.kind = kind;
  action.stream = plan::traits(kind).stream;
  action.micro_batch = 0;
  for (const int one : waits) action.waits.push_back(one);
  return action;
}

plan::StepPlan plan_of(std::vector<Action> actions) {
  plan::StepPlan plan;
  plan.grid.sizes.fill(1);
  plan.actions = std::move(actions);
  return plan;
}

TEST(Progress, NamesTheFirstActionThatHasNotEnded) {
  const plan::StepPlan plan =
      plan_of({action_of(Kind::load), action_of(Kind::gather), action_of(Kind::forward, {0, 1})});
  Progress progress(0);
  progress.set_step(7);
  progress.begin_run(plan, false);
  const double now = seconds_now();
  progress.await(Stream::gather, 1, now);
  progress.begin(Stream::gather, 1);
  EXPECT_STREQ(progress.record(now + 1.0).what, "gather(micro-batch 0)");
  progress.await(Stream::host, 0, now);
  progress.begin(Stream::host, 0);
  Record record = progress.record(now + 31.0);
  EXPECT_STREQ(record.what, "load(micro-batch 0)");
  EXPECT_TRUE(record.reads_data && record.in_run && record.seconds > record.limit);
  EXPECT_EQ(record.step, 7);
  EXPECT_EQ(record.begun[static_cast<std::size_t>(Stream::gather)], 1);
  EXPECT_EQ(record.wait, Wait::nobody);
  progress.end(Stream::host, 0, now + 2.0);
  progress.end(Stream::gather, 1, now + 2.0);
  progress.end_run();
  EXPECT_FALSE(progress.record(now + 3.0).in_run);

  ASSERT_EQ(progress.actions(Stream::host).size(), 1U);
  const Progress::Past past = progress.actions(Stream::host)[0];
  EXPECT_EQ(past.action, "load(micro-batch 0)");
  EXPECT_EQ(past.step, 7);
  EXPECT_EQ(past.end - past.begin, 2.0);
}

TEST(Progress, LimitsFollowFromRecentTimes) {
  const plan::StepPlan plan = plan_of({action_of(Kind::forward)});
  Progress progress(0);
  const auto limit_after = [&](double seconds) {
    progress.begin_run(plan, false);
    const double now = seconds_now();
    progress.await(Stream::compute, 0, now);
    progress.begin(Stream::compute, 0);
    const float limit = progress.record(now).limit;
    progress.end(Stream::compute, 0, now + seconds);
    progress.end_run();
    return limit;
  };
  EXPECT_EQ(limit_after(2.0), 60.0F);  // nothing is known before the first run
  EXPECT_NEAR(limit_after(0.1), 20.0F, 1e-3F);
  EXPECT_NEAR(limit_after(0.1), 19.0F, 1e-3F);
  for (int run = 0; run < 60; ++run) limit_after(0.1);
  EXPECT_EQ(limit_after(1e4), 5.0F);
  EXPECT_EQ(limit_after(0.1), 600.0F);
  Progress fixed(0, Limits(3.0));
  const OccupationScope saving(Occupation::saving);
  EXPECT_EQ(fixed.record(0.0).limit, 3.0F);
}

TEST(Progress, SkipsOrSwapsACollectiveInTheStepOfAFault) {
  const plan::Span two{plan::Axis::shard, 2, 1};
  plan::StepPlan plan = plan_of({action_of(Kind::gather), action_of(Kind::forward, {0}),
                                 action_of(Kind::reduce_scatter, {1}), action_of(Kind::gather),
                                 action_of(Kind::reduce_scatter, {0})});
  for (const std::size_t a : {0, 2, 3, 4}) plan.actions[a].span = two;
  plan.grid.sizes[static_cast<std::size_t>(plan::Axis::shard)] = 2;
  std::vector<int> order = {0, 1, 2, 3, 4};

  Progress skips(0);
  skips.arm(parse_fault("rank 0, step 2, gather: skip"), plan);
  skips.begin_run(plan, false);
  for (const std::int64_t step : {1, 2}) {
    skips.set_step(step);
    skips.await(Stream::gather, 0, 0.0);
    EXPECT_EQ(skips.begin(Stream::gather, 0), step == 1);
    EXPECT_TRUE(skips.begin(Stream::compute, 1));
  }
  skips.reorder(plan, order);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));

  Progress swaps(0);
  swaps.arm(parse_fault("rank 0, step 2, reduce_scatter: swap"), plan);
  swaps.reorder(plan, order);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  swaps.set_step(2);
  swaps.reorder(plan, order);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 3, 2, 4}));
  // The only later collective of another stream needs the first gather.
  plan.actions[2].stream = Stream::gather;
  EXPECT_THROW(Progress(0).arm(parse_fault("rank 0, step 2, gather: swap"), plan), Error);
}

TEST(Progress, OnADeviceWaitsForIt) {
  const plan::StepPlan plan = plan_of({action_of(Kind::forward), action_of(Kind::clip, {0})});
  Progress progress(0);
  progress.begin_run(plan, true);
  const double now = seconds_now();
  progress.await(Stream::compute, 0, now);
  progress.begin(Stream::compute, 0);
  progress.end(Stream::compute, 0, now);
  Record record = progress.record(now);
  EXPECT_EQ(record.wait, Wait::device);  // at the end of the plan, as far as it is known here
  EXPECT_EQ(record.limit, 600.0F);
  progress.await(Stream::host, 1, now);
  record = progress.record(now);
  EXPECT_EQ(record.wait, Wait::device);
  EXPECT_STREQ(record.what, "clip(micro-batch 0)");
  EXPECT_EQ(record.limit, 600.0F);
  progress.begin(Stream::host, 1);
  EXPECT_EQ(progress.record(now).wait, Wait::all);
}

TEST(Progress, DoesNotCountTheTimeInWhichTheProcessWasStopped) {
  const plan::StepPlan plan = plan_of({action_of(Kind::forward)});
  Progress progress(0);
  progress.begin_run(plan, false);
  const double now = seconds_now();
  progress.await(Stream::compute, 0, now);
  progress.begin(Stream::compute, 0);
  EXPECT_GT(progress.record(now + 100.0).seconds, 60.0F);
  progress.forgive(now + 99.0);
  EXPECT_FLOAT_EQ(progress.record(now + 100.0).seconds, 1.0F);
}

TEST(Progress, TellsForWhomItWaits) {
  Action receive = action_of(Kind::receive);
  receive.peer = 2;
  Action gather = action_of(Kind::gather);
  gather.span = {plan::Axis::shard, 4, 1};
  plan::StepPlan plan = plan_of({receive, action_of(Kind::forward, {0}), gather});
  plan.grid.sizes[static_cast<std::size_t>(plan::Axis::shard)] = 4;
  plan.grid.sizes[static_cast<std::size_t>(plan::Axis::pipeline)] = 3;
  Progress progress(6);  // stage 1, place 2 in the shard group
  progress.begin_run(plan, false);
  const double now = seconds_now();
  // The handler of the receive has returned, and the forward waits for its message.
  progress.await(Stream::receive, 0, now);
  progress.begin(Stream::receive, 0);
  progress.end(Stream::receive, 0, now);
  progress.await(Stream::compute, 1, now);
  Record record = progress.record(now);
  EXPECT_EQ(record.wait, Wait::peer);
  EXPECT_EQ(record.peer, 2 * 4 + 2);
  progress.begin(Stream::compute, 1);
  EXPECT_EQ(progress.record(now).wait, Wait::nobody);
  progress.end(Stream::compute, 1, now);
  progress.await(Stream::gather, 2, now);
  progress.begin(Stream::gather, 2);
  record = progress.record(now);
  EXPECT_EQ(record.wait, Wait::span);
  EXPECT_EQ(record.first, 4);
  EXPECT_EQ(record.members, 4);
  EXPECT_EQ(record.stride, 1);
}

TEST(Progress, NoticesAnOccupationOnceItKnowsHowLongThatTakes) {
  const plan::StepPlan plan = plan_of({action_of(Kind::forward)});
  Progress progress(0);
  const OccupationScope between_steps(Occupation::between_steps);
  EXPECT_EQ(progress.record(seconds_now()).notice, 30.0F);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  progress.begin_run(plan, false);
  progress.end_run();
  const float notice = progress.record(seconds_now()).notice;
  EXPECT_GE(notice, 5.0F);
  EXPECT_NE(notice, 30.0F);
}

TEST(Progress, OutsideOfPlansTellsTheOccupationAndTheCall) {
  EXPECT_EQ(watch::progress(), nullptr);
  const OccupationScope unwatched(Occupation::saving);  // has nothing to tell
  Progress progress(0);
  {
    const OccupationScope saving(Occupation::saving);
    EXPECT_EQ(progress.record(seconds_now()).occupation, Occupation::saving);
    {
      const OccupationScope writing(Occupation::writing_checkpoint, 1000.0);
      EXPECT_EQ(progress.record(seconds_now()).limit, 1120.0F);
      const MpiCallScope mark("MPI_Barrier");
      const MpiCallScope inner("MPI_Bcast");
      const Record record = progress.record(seconds_now());
      EXPECT_STREQ(record.call, "MPI_Barrier");
      EXPECT_EQ(record.wait, Wait::anyone);
    }
    const Record record = progress.record(seconds_now());
    EXPECT_EQ(record.occupation, Occupation::saving);
    EXPECT_EQ(record.wait, Wait::nobody);
  }
  EXPECT_EQ(progress.record(seconds_now()).occupation, Occupation::none);
}

}  // namespace
}  // namespace ostrakon::watch
