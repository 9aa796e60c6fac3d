// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/optim/schedule.hpp>

namespace ostrakon::optim {
namespace {

constexpr Tail tails[] = {Tail::cosine, Tail::linear, Tail::constant};
constexpr double peak = 3e-4;

double last_rate(Tail tail, double fraction) {
  return tail == Tail::constant ? peak : fraction * peak;
}

TEST(Schedule, WarmsUpLinearly) {
  for (const Tail tail : tails) {
    const ScheduleSettings settings = {tail, 7, 0.1};
    for (std::int64_t step = 1; step <= 7; ++step)
      EXPECT_DOUBLE_EQ(learning_rate(settings, peak, step, 100),
                       peak * static_cast<double>(step) / 7.0);
    EXPECT_EQ(learning_rate(settings, peak, 7, 100), peak);
    if (tail != Tail::constant) {
      EXPECT_LT(learning_rate(settings, peak, 8, 100), peak);
    }
  }
}

TEST(Schedule, EndsAtTheFinalFraction) {
  for (const Tail tail : tails)
    for (const std::int64_t warmup : {0, 1, 5, 99})
      for (const double fraction : {0.0, 0.1, 1.0})
        EXPECT_EQ(learning_rate({tail, warmup, fraction}, peak, 100, 100),
                  last_rate(tail, fraction));
}

TEST(Schedule, FallsSteadily) {
  for (const Tail tail : {Tail::cosine, Tail::linear})
    for (std::int64_t step = 11; step <= 100; ++step)
      EXPECT_LT(learning_rate({tail, 10, 0.1}, peak, step, 100),
                learning_rate({tail, 10, 0.1}, peak, step - 1, 100));
}

TEST(Schedule, HalfWay) {
  for (const Tail tail : {Tail::cosine, Tail::linear})
    EXPECT_DOUBLE_EQ(learning_rate({tail, 20, 0.2}, peak, 60, 100), 0.6 * peak);
  // A quarter of the way a cosine is above the line, three quarters below.
  EXPECT_NEAR(learning_rate({Tail::cosine, 20, 0.0}, 1.0, 40, 100), 0.8535533905932737, 1e-15);
  EXPECT_NEAR(learning_rate({Tail::cosine, 20, 0.0}, 1.0, 80, 100), 0.1464466094067263, 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate({Tail::linear, 20, 0.0}, 1.0, 40, 100), 0.75);
}

TEST(Schedule, WithoutWarmup) {
  EXPECT_DOUBLE_EQ(learning_rate({Tail::linear, 0, 0.0}, 1.0, 1, 4), 0.75);
  EXPECT_EQ(learning_rate({Tail::constant, 0, 0.0}, 1.0, 1, 4), 1.0);
  for (const Tail tail : tails)
    EXPECT_EQ(learning_rate({tail, 0, 0.5}, peak, 1, 1), last_rate(tail, 0.5));
}

TEST(Schedule, NothingButWarmup) {
  for (const Tail tail : tails) {
    EXPECT_EQ(learning_rate({tail, 10, 0.1}, 1.0, 1, 10), 0.1);
    EXPECT_EQ(learning_rate({tail, 10, 0.1}, 1.0, 10, 10), 1.0);
    // A warm-up longer than the run never gets to the peak.
    EXPECT_EQ(learning_rate({tail, 10, 0.1}, 1.0, 5, 5), 0.5);
  }
}

TEST(Schedule, StaysAtItsEndBeyondTheRun) {
  for (const Tail tail : tails)
    EXPECT_EQ(learning_rate({tail, 10, 0.1}, peak, 150, 100), last_rate(tail, 0.1));
}

}  // namespace
}  // namespace ostrakon::optim
