// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/base/clock.hpp>
#include <ostrakon/run/rank_times.hpp>
#include <ostrakon/watch/progress.hpp>
#include <vector>

namespace ostrakon::tests {
namespace {

using namespace train;

void spin(double seconds) {
  const Stopwatch since;
  while (since.seconds() < seconds) {
  }
}

TEST(RankTimer, AddsUpTheTimesOfActionsAndWhatFollowsThem) {
  runtime::Program program;
  std::vector<runtime::ActionTime> times;
  const auto add = [&](plan::Kind kind, double seconds) {
    plan::Action action;
    action.kind = kind;
    program.plan.actions.push_back(action);
    times.push_back({100.0, 100.0 + seconds});
  };
  using plan::Kind;
  for (const Kind kind : {Kind::forward, Kind::backward, Kind::optimize, Kind::norm})
    add(kind, 1.0);
  add(Kind::load, 0.5);
  add(Kind::copy_to_device, 0.25);
  for (const Kind kind : {Kind::gather, Kind::reduce_scatter, Kind::exchange, Kind::clip})
    add(kind, 2.0);
  for (const Kind kind : {Kind::send, Kind::release}) add(kind, 64.0);

  const Stopwatch since;
  RankTimer timer;
  timer.end_step(program, times);
  EXPECT_EQ(timer.steps(), 0);  // the first one warms up
  for (int step = 0; step < 2; ++step) {
    spin(0.01);
    {
      const watch::MpiCallScope outer("MPI_Barrier");
      const watch::MpiCallScope inner("MPI_Allreduce");
      spin(0.03);
    }
    timer.begin_step();
    timer.end_step(program, times);
  }
  const double passed = since.seconds();
  EXPECT_EQ(timer.steps(), 2);
  const RankTimes means = timer.take();
  EXPECT_EQ(timer.steps(), 0);
  EXPECT_EQ(means[Part::compute], 4.0);
  EXPECT_EQ(means[Part::data], 0.5);
  EXPECT_EQ(means[Part::copies], 0.25);
  EXPECT_LE(means.step, 0.5 * passed);
  EXPECT_GE(means[Part::between_steps], 0.01);
  EXPECT_GE(means[Part::communication] - 8.0, 0.03 - 1e-9);
  EXPECT_NEAR(means[Part::between_steps] + means[Part::communication] - 8.0, means.step,
              0.1 * means.step);
}

}  // namespace
}  // namespace ostrakon::tests
