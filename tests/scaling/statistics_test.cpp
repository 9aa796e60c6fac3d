// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/scaling/statistics.hpp>
#include <random>
#include <vector>

namespace ostrakon::scaling {
namespace {

TEST(Statistics, StudentsTIsThatOfTables) {
  // Two-sided, 95 %: any table of the distribution.
  const std::vector<std::pair<int, double>> table = {
      {1, 12.7062},  {2, 4.30265},  {3, 3.18245},  {4, 2.77645},   {5, 2.57058},   {9, 2.26216},
      {10, 2.22814}, {19, 2.09302}, {30, 2.04227}, {100, 1.98397}, {1000, 1.96234}};
  for (const auto& [degrees, t] : table) EXPECT_NEAR(student_t_95(degrees), t, 6e-6 * t) << degrees;
}

TEST(Statistics, AnIntervalOfKnownValues) {
  // Mean 5, standard deviation sqrt(10): t of 4 degrees x sqrt(10 / 5).
  const Interval interval = interval_of({1.0, 3.0, 5.0, 7.0, 9.0});
  EXPECT_TRUE(interval.is_known);
  EXPECT_DOUBLE_EQ(interval.mean, 5.0);
  EXPECT_NEAR(interval.half_width, 2.776445 * std::sqrt(2.0), 1e-5);
  const Interval one = interval_of({4.0});
  EXPECT_FALSE(one.is_known);
  EXPECT_EQ(one.mean, 4.0);
  EXPECT_EQ(one.half_width, 0.0);
}

TEST(Statistics, AutocorrelationOfKnownValues) {
  EXPECT_EQ(lag_one_autocorrelation({2.0, 2.0, 2.0, 2.0}), 0.0);
  EXPECT_EQ(lag_one_autocorrelation({1.0, 2.0}), 0.0);
  // Deviations -1.5, -0.5, 0.5, 1.5: (0.75 - 0.25 + 0.75) / 5.
  EXPECT_DOUBLE_EQ(lag_one_autocorrelation({1.0, 2.0, 3.0, 4.0}), 0.25);
}

TEST(Statistics, IndependentStepsAreNotBatched) {
  const std::vector<double> values = {3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0,
                                      3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0};
  const Interval batched = interval_of_steps(values), plain = interval_of(values);
  EXPECT_EQ(batched.half_width, plain.half_width);
  EXPECT_EQ(batched.mean, 2.0);
}

TEST(Statistics, StepsThatGoTogetherAreBatched) {
  // Two levels, eight steps each: neighbours are alike, so there are far fewer independent values.
  std::vector<double> values;
  for (int i = 0; i < 48; ++i) values.push_back(i / 8 % 2 == 0 ? 1.0 : 2.0);
  const Interval batched = interval_of_steps(values), plain = interval_of(values);
  EXPECT_DOUBLE_EQ(batched.mean, 1.5);
  // Twelve batches of four, which are 1, 1, 2, 2, ...: a variance of 3 / 11.
  EXPECT_NEAR(batched.half_width, 2.200985 * std::sqrt(3.0 / 11.0 / 12.0), 1e-5);
  EXPECT_GT(batched.half_width, 2.0 * plain.half_width);
}

// An AR(1) process: intervals that took its steps for independent would miss its mean in half of
// the cases.
TEST(Statistics, IntervalsOfCorrelatedStepsHoldTheMean) {
  std::mt19937 generator(1);
  std::normal_distribution<double> noise(0.0, 0.1);
  int batched_holds = 0, plain_holds = 0;
  constexpr int trials = 400;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<double> values;
    double state = 0.0;
    for (int i = 0; i < 400; ++i) {
      state = 0.8 * state + noise(generator);
      if (i >= 100) values.push_back(1.0 + state);
    }
    const auto holds = [](const Interval& interval) {
      return std::abs(interval.mean - 1.0) <= interval.half_width;
    };
    batched_holds += holds(interval_of_steps(values)) ? 1 : 0;
    plain_holds += holds(interval_of(values)) ? 1 : 0;
  }
  EXPECT_GE(batched_holds, trials * 85 / 100);
  EXPECT_LE(plain_holds, trials * 65 / 100);
}

TEST(Statistics, TheMeanIsOfAllStepsAlsoWhereBatchesLeaveSomeOut) {
  std::vector<double> values;
  for (int i = 0; i < 31; ++i) values.push_back(i);
  EXPECT_DOUBLE_EQ(interval_of_steps(values).mean, 15.0);
}

TEST(Statistics, OutliersAreFarAboveTheMedian) {
  std::vector<double> values;
  for (int i = 0; i < 20; ++i) values.push_back(1.0 + 0.001 * (i % 5));
  EXPECT_TRUE(find_outliers(values).empty());
  values[7] = 1.05;  // far in deviations, but no matter
  EXPECT_TRUE(find_outliers(values).empty());
  values[7] = 1.5;
  values[12] = 0.5;  // fast steps are none
  EXPECT_EQ(find_outliers(values), (std::vector<std::size_t>{7}));
  EXPECT_TRUE(find_outliers({1.0, 9.0}).empty());
  EXPECT_EQ(median({4.0, 1.0, 3.0}), 3.0);
  EXPECT_EQ(median({4.0, 1.0, 3.0, 2.0}), 2.5);
}

}  // namespace
}  // namespace ostrakon::scaling
