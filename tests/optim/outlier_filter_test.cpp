// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/optim/outlier_filter.hpp>

#include "support/device_array.hpp"
#include "support/scratch_folder.hpp"

namespace ostrakon::optim {
namespace {

using testing::error_of;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Returns `level` with noise of deviation `noise`.
std::vector<double> noisy(std::int64_t steps, double level, double noise, std::uint64_t seed) {
  std::vector<double> values = test::random_values<double>(steps, seed);
  for (double& value : values) value = level + noise * std::sqrt(3.0) * value;
  return values;
}

TEST(OutlierFilter, LetsNoisePass) {
  OutlierFilter filter({});
  const std::vector<double> losses = noisy(5000, 3.0, 0.05, 1);
  const std::vector<double> norms = noisy(5000, 0.4, 0.03, 2);
  for (int step = 0; step < 5000; ++step)
    ASSERT_FALSE(filter.judge(losses[step], norms[step]).skip) << step;
  EXPECT_NEAR(filter.state().loss.mean, 3.0, 0.02);
  EXPECT_NEAR(std::sqrt(filter.state().loss.variance), 0.05, 0.01);
  EXPECT_NEAR(filter.state().gradient_norm.mean, 0.4, 0.012);
  EXPECT_NEAR(std::sqrt(filter.state().gradient_norm.variance), 0.03, 0.006);
}

TEST(OutlierFilter, ScoresAgreeWithWeightedSums) {
  OutlierSettings settings;
  settings.window = 20;
  settings.threshold = 100.0;  // nothing is clipped
  OutlierFilter filter(settings);
  const std::vector<double> losses = noisy(80, 3.0, 0.5, 3);
  // The weights of all values so far, and their mean and variance, computed directly.
  std::vector<double> weights;
  for (int step = 0; step < 80; ++step) {
    const OutlierFilter::Verdict verdict = filter.judge(losses[step], 2.0 * losses[step]);
    if (step < 10) {
      EXPECT_EQ(verdict.loss_score, 0.0);
    } else {
      double mean = 0;
      double variance = 0;
      for (int i = 0; i < step; ++i) mean += weights[i] * losses[i];
      for (int i = 0; i < step; ++i) variance += weights[i] * std::pow(losses[i] - mean, 2);
      const double expected = (losses[step] - mean) / std::sqrt(variance);
      EXPECT_NEAR(verdict.loss_score, expected, 1e-9) << step;
      EXPECT_NEAR(verdict.gradient_norm_score, expected, 1e-9) << step;
    }
    const double last = std::max(1.0 / (step + 1), 2.0 / 21.0);
    for (double& weight : weights) weight *= 1 - last;
    weights.push_back(last);
  }
}

TEST(OutlierFilter, SkipsALeapOfEither) {
  for (const bool of_loss : {true, false}) {
    OutlierFilter filter({});
    const std::vector<double> losses = noisy(300, 3.0, 0.05, 4);
    const std::vector<double> norms = noisy(300, 0.4, 0.03, 5);
    for (int step = 0; step < 300; ++step) {
      const bool leap = step == 200 || step == 201;
      const OutlierFilter::Verdict verdict =
          filter.judge(leap && of_loss ? 4.0 : losses[step], leap && !of_loss ? 1e6 : norms[step]);
      ASSERT_EQ(verdict.skip, leap) << step;
      if (leap) {
        EXPECT_GT(of_loss ? verdict.loss_score : verdict.gradient_norm_score, 6.0);
        EXPECT_LT(of_loss ? verdict.gradient_norm_score : verdict.loss_score, 6.0);
      }
    }
    // The outlier of 10^6 has hardly changed the statistics.
    EXPECT_LT(filter.state().gradient_norm.mean, 0.45);
  }
}

TEST(OutlierFilter, AFallIsNoOutlier) {
  OutlierFilter filter({});
  const std::vector<double> losses = noisy(200, 3.0, 0.05, 6);
  for (const double loss : losses) filter.judge(loss, loss);
  EXPECT_FALSE(filter.judge(0.1, 0.1).skip);
}

TEST(OutlierFilter, ALevelThatStaysIsTheNewNormal) {
  OutlierFilter filter({});
  for (const double loss : noisy(500, 3.0, 0.05, 7)) filter.judge(loss, 1.0);
  int skipped = 0;
  for (const double loss : noisy(100, 30.0, 0.05, 8)) skipped += filter.judge(loss, 1.0).skip;
  EXPECT_GE(skipped, 5);
  EXPECT_LE(skipped, 40);
  for (const double loss : noisy(100, 30.0, 0.05, 9))
    EXPECT_FALSE(filter.judge(loss, 1.0).skip) << loss;
}

TEST(OutlierFilter, SkipsNothingBeforeItKnows) {
  OutlierSettings settings;
  settings.window = 10;
  OutlierFilter filter(settings);
  for (int step = 0; step < 5; ++step)
    EXPECT_FALSE(filter.judge(std::pow(10.0, step), 1.0).skip) << step;
  OutlierFilter level(settings);
  for (int step = 0; step < 5; ++step) level.judge(1.0, 1.0);
  EXPECT_TRUE(level.judge(10.0, 1.0).skip);
}

TEST(OutlierFilter, WhatHardlyMovesMayMoveALittle) {
  OutlierFilter filter({});
  for (int step = 0; step < 200; ++step) ASSERT_FALSE(filter.judge(2.0, 0.0).skip);
  EXPECT_FALSE(filter.judge(2.01, 0.0).skip);  // below 6 / 1000
  EXPECT_TRUE(filter.judge(2.02, 0.0).skip);
  EXPECT_FALSE(filter.judge(2.0, 5.0).skip);  // a norm that was always 0 has no statistics
}

TEST(OutlierFilter, SkipsWhatIsNotFiniteAndForgetsIt) {
  OutlierFilter filter({});
  for (const double value : {nan, infinity, -infinity}) {
    EXPECT_TRUE(filter.judge(value, 1.0).skip);
    EXPECT_TRUE(filter.judge(1.0, value).skip);
  }
  EXPECT_EQ(filter.judge(nan, 1.0).loss_score, infinity);
  EXPECT_EQ(filter.judge(nan, 1.0).gradient_norm_score, 0.0);
  EXPECT_EQ(filter.state().steps, 0);
}

TEST(OutlierFilter, ContinuesFromItsState) {
  OutlierSettings settings;
  settings.window = 8;
  settings.threshold = 2.0;
  OutlierFilter whole(settings);
  OutlierFilter stopped(settings);
  int skipped = 0;
  for (const double loss : noisy(200, 3.0, 0.5, 10)) {
    OutlierFilter next(settings);
    next.restore(stopped.state());
    const OutlierFilter::Verdict expected = whole.judge(loss, loss * loss);
    const OutlierFilter::Verdict found = next.judge(loss, loss * loss);
    stopped = next;
    skipped += found.skip;
    ASSERT_EQ(found.skip, expected.skip);
    ASSERT_EQ(found.loss_score, expected.loss_score);
    ASSERT_EQ(found.gradient_norm_score, expected.gradient_norm_score);
  }
  EXPECT_GT(skipped, 0);
}

TEST(OutlierFilter, RefusesWhatCannotBe) {
  EXPECT_EQ(error_of([] {
              OutlierFilter({1, 6.0});
            }),
            "outlier filter: window is 1, expected at least 2");
  EXPECT_EQ(error_of([] {
              OutlierFilter({8, 0.0});
            }),
            "outlier filter: threshold is 0, expected a positive number");
  OutlierFilter filter({});
  EXPECT_NE(error_of([&] { filter.restore({-1, {}, {}}); }), "no error");
  EXPECT_NE(error_of([&] { filter.restore({1, {nan, 0}, {}}); }), "no error");
  EXPECT_NE(error_of([&] { filter.restore({1, {}, {1, -1}}); }), "no error");
}

}  // namespace
}  // namespace ostrakon::optim
