// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostrakon/optim/learning_rate.hpp>

namespace ostrakon::optim {
namespace {

constexpr Tail tails[] = {Tail::cosine, Tail::linear, Tail::constant};
constexpr double peak = 3e-4;

double last_rate(Tail tail, double fraction) {
  return tail == Tail::constant ? peak : fraction * peak;
}

TEST(LearningRate, WarmsUpLinearly) {
  for (const Tail tail : tails) {
    const LearningRateSchedule settings = {tail, 7, 0.1};
    for (std::int64_t step = 1; step <= 7; ++step)
      EXPECT_DOUBLE_EQ(learning_rate(settings, peak, step, 100),
                       peak * static_cast<double>(step) / 7.0);
    EXPECT_EQ(learning_rate(settings, peak, 7, 100), peak);
    if (tail != Tail::constant) {
      EXPECT_LT(learning_rate(settings, peak, 8, 100), peak);
    }
  }
}

TEST(LearningRate, EndsAtTheFinalFraction) {
  for (const Tail tail : tails)
    for (const std::int64_t warmup : {0, 1, 5, 99})
      for (const double fraction : {0.0, 0.1, 1.0})
        EXPECT_EQ(learning_rate({tail, warmup, fraction}, peak, 100, 100),
                  last_rate(tail, fraction));
}

TEST(LearningRate, FallsSteadily) {
  for (const Tail tail : {Tail::cosine, Tail::linear})
    for (std::int64_t step = 11; step <= 100; ++step)
      EXPECT_LT(learning_rate({tail, 10, 0.1}, peak, step, 100),
                learning_rate({tail, 10, 0.1}, peak, step - 1, 100));
}

TEST(LearningRate, HalfWay) {
  for (const Tail tail : {Tail::cosine, Tail::linear})
    EXPECT_DOUBLE_EQ(learning_rate({tail, 20, 0.2}, peak, 60, 100), 0.6 * peak);
  // At a quarter of the way a cosine is above the line, at three quarters below.
  EXPECT_NEAR(learning_rate({Tail::cosine, 20, 0.0}, 1.0, 40, 100), 0.8535533905932737, 1e-15);
  EXPECT_NEAR(learning_rate({Tail::cosine, 20, 0.0}, 1.0, 80, 100), 0.1464466094067263, 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate({Tail::linear, 20, 0.0}, 1.0, 40, 100), 0.75);
}

TEST(LearningRate, WithoutWarmup) {
  EXPECT_DOUBLE_EQ(learning_rate({Tail::linear, 0, 0.0}, 1.0, 1, 4), 0.75);
  EXPECT_EQ(learning_rate({Tail::constant, 0, 0.0}, 1.0, 1, 4), 1.0);
  for (const Tail tail : tails)
    EXPECT_EQ(learning_rate({tail, 0, 0.5}, peak, 1, 1), last_rate(tail, 0.5));
}

TEST(LearningRate, NothingButWarmup) {
  for (const Tail tail : tails) {
    EXPECT_EQ(learning_rate({tail, 10, 0.1}, 1.0, 1, 10), 0.1);
    EXPECT_EQ(learning_rate({tail, 10, 0.1}, 1.0, 10, 10), 1.0);
    // A warm-up longer than the run does not reach the peak.
    EXPECT_EQ(learning_rate({tail, 10, 0.1}, 1.0, 5, 5), 0.5);
  }
}

TEST(LearningRate, StaysAtItsEndBeyondTheRun) {
  for (const Tail tail : tails)
    EXPECT_EQ(learning_rate({tail, 10, 0.1}, peak, 150, 100), last_rate(tail, 0.1));
}

LearningRateSchedule warmup_stable_decay(std::int64_t warmup, double fraction, std::int64_t decay) {
  return {Tail::warmup_stable_decay, warmup, fraction, decay};
}

TEST(LearningRate, StaysAtThePeakAndThenDecays) {
  const LearningRateSchedule settings = warmup_stable_decay(4, 0.25, 4);
  const double expected[] = {0.25, 0.5,    0.75,  1.0,    1.0,  1.0, 1.0,
                             1.0,  0.8125, 0.625, 0.4375, 0.25, 0.25};
  for (std::int64_t step = 1; step <= 13; ++step)
    EXPECT_DOUBLE_EQ(learning_rate(settings, 1.0, step, 12), expected[step - 1]) << step;
}

TEST(LearningRate, APlateauDoesNotKnowTheEnd) {
  // A run can be extended, or decay from any of its checkpoints.
  const LearningRateSchedule settings = warmup_stable_decay(10, 0.0, 20);
  for (std::int64_t step = 1; step <= 80; ++step)
    EXPECT_EQ(learning_rate(settings, peak, step, 100), learning_rate(settings, peak, step, 1000));
}

TEST(LearningRate, ADecayOfAllThatRemainsIsTheLine) {
  for (const std::int64_t decay : {90, 1000})
    for (std::int64_t step = 1; step <= 110; ++step)
      EXPECT_EQ(learning_rate(warmup_stable_decay(10, 0.1, decay), peak, step, 100),
                learning_rate({Tail::linear, 10, 0.1}, peak, step, 100));
  EXPECT_EQ(learning_rate(warmup_stable_decay(10, 0.1, 0), peak, 100, 100), peak);
  EXPECT_EQ(learning_rate(warmup_stable_decay(0, 0.5, 1), peak, 1, 1), 0.5 * peak);
}

TEST(LearningRate, InverseSquareRootMeetsTheWarmup) {
  const LearningRateSchedule settings = {Tail::inverse_square_root, 16, 0.1};
  // Vaswani et al. (2017), equation 3, where the factor before min() scales the peak.
  for (std::int64_t step = 1; step <= 1000; ++step) {
    const auto t = static_cast<double>(step);
    const double expected = 4.0 * peak * std::min(1.0 / std::sqrt(t), t / 64.0);
    EXPECT_NEAR(learning_rate(settings, peak, step, 100), expected, 1e-15 * peak) << step;
  }
  EXPECT_EQ(learning_rate(settings, peak, 64, 100), 0.5 * peak);
  EXPECT_EQ(learning_rate({Tail::inverse_square_root, 0, 0.1}, peak, 1, 100), peak);
  EXPECT_EQ(learning_rate({Tail::inverse_square_root, 0, 0.1}, peak, 100, 100), 0.1 * peak);
}

}  // namespace
}  // namespace ostrakon::optim
