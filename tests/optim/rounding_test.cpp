// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/math/half.hpp>
#include <ostrakon/optim/optimizer.hpp>
#include <ostrakon/optim/rounding.hpp>
#include <set>

#include "math/compare.hpp"
#include "support/device_array.hpp"

namespace ostrakon::optim {
namespace {

using test::DeviceArray;

constexpr std::int64_t many = 1 << 18;

TEST(Rounding, BlocksHoldTheBitsOfTheirElements) {
  const Rounding rounding = {12345, 7};
  for (const std::int64_t block : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1} << 40}) {
    std::uint32_t bits[rounding_block];
    rounding.bits_of_block(block, bits);
    for (std::int64_t i = 0; i < rounding_block; ++i)
      ASSERT_EQ(bits[i], rounding.bits(block * rounding_block + i));
  }
}

TEST(Rounding, ElementsKeysAndStepsHaveBitsOfTheirOwn) {
  std::set<std::uint32_t> seen;
  for (const std::uint64_t key : {1, 2})
    for (const std::int64_t step : {1, 2})
      for (std::int64_t element = 0; element < 256; ++element)
        seen.insert(Rounding{key, step}.bits(element));
  EXPECT_EQ(seen.size(), 1024u);
}

struct Moments {
  std::vector<bf16> first, second;
};

/// Returns both moments of AdamW after one step from zero with all gradients 1: 1 - beta1 and 1 -
/// beta2.
Moments one_step(double first, double second, std::int64_t step) {
  OptimizerSettings settings;
  settings.beta1 = 1.0 - first;
  settings.beta2 = 1.0 - second;
  UpdateStep with;
  with.step = step;
  with.rounding_key = 3;
  const DeviceArray<float> parameters(many, 0.0f);
  const DeviceArray<float> gradients(many, 1.0f);
  const DeviceArray<bf16> moments[] = {DeviceArray<bf16>(many, bf16(0.0f)),
                                       DeviceArray<bf16>(many, bf16(0.0f))};
  update<float, bf16, OnDevice>(Exec(), OptimizerKind::adamw, settings, with, parameters, gradients,
                                moments[0], moments[1]);
  return {moments[0].host(), moments[1].host()};
}

/// Returns the position of `value` between the bf16 below and the next one, from 0 to 1.
double fraction_of(double value, double* below, double* distance) {
  int exponent = 0;
  std::frexp(value, &exponent);
  *distance = std::ldexp(1.0, exponent - 8);
  *below = std::floor(value / *distance) * *distance;
  return (value - *below) / *distance;
}

TEST(Rounding, IsRightOnAverage) {
  // Values at various positions between adjacent bf16.
  for (const double value : {0.1, 0.3, 0.003, 0.7001, 0.12502, 0.2499}) {
    const auto exact = static_cast<double>(static_cast<float>(value));
    double below = 0;
    double distance = 0;
    const double fraction = fraction_of(exact, &below, &distance);
    const double sigma =
        distance * std::sqrt(fraction * (1 - fraction) / static_cast<double>(many));
    const Moments moments = one_step(value, value, 1);
    for (const std::vector<bf16>& moment : {moments.first, moments.second}) {
      double sum = 0;
      for (const bf16 x : moment) {
        const auto rounded = static_cast<double>(static_cast<float>(x));
        ASSERT_TRUE(rounded == below || rounded == below + distance) << value;
        sum += rounded - exact;
      }
      EXPECT_LT(std::fabs(sum / static_cast<double>(many)), 4 * sigma + 1e-4 * distance) << value;
    }
  }
}

/// Returns the fraction of elements in which both a and b are rounded up; each is in half of all.
double both_up(const std::vector<bf16>& a, const std::vector<bf16>& b, double value) {
  double both = 0;
  for (std::int64_t i = 0; i < many; ++i)
    both += static_cast<float>(a[i]) > value && static_cast<float>(b[i]) > value;
  return both / static_cast<double>(many);
}

TEST(Rounding, IsIndependentBetweenMomentsStepsAndNeighbours) {
  const double value = 0.5 + 0.5 / 256;  // halfway between two bf16
  const Moments at_1 = one_step(value, value, 1);
  const Moments at_2 = one_step(value, value, 2);
  const double sigma = std::sqrt(0.25 * 0.75 / static_cast<double>(many));
  EXPECT_NEAR(both_up(at_1.first, at_1.second, value), 0.25, 4 * sigma);
  EXPECT_NEAR(both_up(at_1.first, at_2.first, value), 0.25, 4 * sigma);
  EXPECT_NEAR(both_up(at_1.second, at_2.second, value), 0.25, 4 * sigma);
  for (const std::int64_t shift : {1, 16, 64}) {
    std::vector<bf16> neighbours(at_1.first.begin() + shift, at_1.first.end());
    neighbours.insert(neighbours.end(), at_1.first.begin(), at_1.first.begin() + shift);
    EXPECT_NEAR(both_up(at_1.first, neighbours, value), 0.25, 4 * sigma);
  }
}

TEST(Rounding, KeepsWhatIsBelowHalfADigit) {
  // With beta2 = 0.999 and unit gradients the changes of the second moment fall below half a unit
  // of bf16 from about 0.25 on; rounded to nearest it would stop there.
  OptimizerSettings settings;
  settings.beta2 = 0.999;
  constexpr std::int64_t elements = 4096;
  const DeviceArray<float> parameters(elements, 0.0f);
  const DeviceArray<float> gradients(elements, 1.0f);
  const DeviceArray<bf16> first(elements, bf16(0.0f));
  const DeviceArray<bf16> second(elements, bf16(0.0f));
  float nearest = 0;
  constexpr int steps = 1000;
  for (int step = 1; step <= steps; ++step) {
    UpdateStep with;
    with.step = step;
    update<float, bf16, OnDevice>(Exec(), OptimizerKind::adamw, settings, with, parameters,
                                  gradients, first, second);
    nearest = static_cast<float>(bf16(0.999f * nearest + 0.001f));
  }
  double mean = 0;
  for (const bf16 x : second.host()) mean += static_cast<double>(static_cast<float>(x)) / elements;
  const double expected = 1 - std::pow(0.999, steps);
  EXPECT_NEAR(mean, expected, 0.002);
  EXPECT_LT(nearest, 0.6 * expected);
}

}  // namespace
}  // namespace ostrakon::optim
