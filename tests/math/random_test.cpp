// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostrakon/math/random.hpp>
#include <set>

#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;

template <class T>
std::vector<T> normal(std::int64_t count, std::uint64_t key, std::int64_t first,
                      double deviation = 1.0) {
  const DeviceArray<T> x(count, T(99));
  fill_normal<T>(Exec(), x, key, first, deviation);
  return x.host();
}

void expect_words(const RandomBits& bits, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                  std::uint32_t d) {
  EXPECT_EQ(bits.word[0], a);
  EXPECT_EQ(bits.word[1], b);
  EXPECT_EQ(bits.word[2], c);
  EXPECT_EQ(bits.word[3], d);
}

TEST(Random, PhiloxGivesThePublishedWords) {
  // The known answers of Random123 for philox4x32-10.
  expect_words(philox(0, 0, 0), 0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u);
  const std::uint64_t ones = ~std::uint64_t{0};
  expect_words(philox(ones, ones, ones), 0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu);
  expect_words(philox(0x299f31d0a4093822u, 0x85a308d3243f6a88u, 0x0370734413198a2eu), 0xd16cfe09u,
               0x94fdccebu, 0x5001e420u, 0x24126ea1u);
}

template <class T>
void check_ranges() {
  const std::vector<T> whole = normal<T>(40, 5, 0);
  for (std::int64_t first = 0; first < 12; ++first)
    for (std::int64_t count = 0; count < 12; ++count)
      ASSERT_EQ(normal<T>(count, 5, first),
                std::vector<T>(whole.begin() + first, whole.begin() + first + count));
  // Tests a position whose index does not fit into 32 bits.
  const std::int64_t far = (std::int64_t{1} << 40) + 1;
  const std::vector<T> there = normal<T>(9, 5, far);
  ASSERT_EQ(normal<T>(4, 5, far + 3), std::vector<T>(there.begin() + 3, there.begin() + 7));
  ASSERT_NE(there, normal<T>(9, 5, 1));
}

TEST(Random, PartsOfASequenceHaveTheBitsOfTheWhole) {
  check_ranges<double>();
  check_ranges<float>();
}

TEST(Random, PowersOfLogUniformValuesAreSpreadEvenly) {
  constexpr std::int64_t count = 20000;
  const DeviceArray<float> all(count), part(10);
  fill_log_uniform<float>(Exec(), all, 5, 0, 0.5, 4.5);
  fill_log_uniform<float>(Exec(), part, 5, 100, 0.5, 4.5);
  const std::vector<float> values = all.host();
  EXPECT_EQ(part.host(), std::vector<float>(values.begin() + 100, values.begin() + 110));
  std::vector<int> counts(4);
  for (const float value : values) {
    const double power = std::exp(static_cast<double>(value));
    ASSERT_GE(power, 0.4999);
    ASSERT_LT(power, 4.5001);
    ++counts[std::min(3, static_cast<int>(power - 0.5))];
  }
  for (const int one : counts) EXPECT_NEAR(one, count / 4, 300);
}

TEST(Random, ValuesAreNormal) {
  const std::int64_t count = 1000000;
  std::vector<double> x = normal<double>(count, random_key(1, "weights"), 0);
  double moment[5] = {};
  double neighbours = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    double power = 1;
    for (double& sum : moment) {
      sum += power / count;
      power *= x[i];
    }
    if (i > 0) neighbours += x[i] * x[i - 1] / count;
  }
  // Moments are within four standard errors.
  const double error = 1.0 / std::sqrt(static_cast<double>(count));
  EXPECT_NEAR(moment[1], 0.0, 4 * error);
  EXPECT_NEAR(moment[2], 1.0, 4 * std::sqrt(2.0) * error);
  EXPECT_NEAR(moment[3], 0.0, 4 * std::sqrt(15.0) * error);
  EXPECT_NEAR(moment[4], 3.0, 4 * std::sqrt(96.0) * error);
  EXPECT_NEAR(neighbours, 0.0, 4 * error);
  // Kolmogorov-Smirnov distance, which is exceeded in one of a thousand sequences.
  std::sort(x.begin(), x.end());
  double distance = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double expected = 0.5 * std::erfc(-x[i] / std::sqrt(2.0));
    distance = std::max(distance, std::abs(expected - (i + 0.5) / count));
  }
  EXPECT_LT(distance, 1.95 * error);
}

TEST(Random, DeviationScales) {
  const std::vector<double> one = normal<double>(11, 5, 3);
  const std::vector<double> two = normal<double>(11, 5, 3, 2.0);
  const std::vector<float> narrow = normal<float>(11, 5, 3);
  for (int i = 0; i < 11; ++i) {
    EXPECT_EQ(two[i], 2.0 * one[i]);
    EXPECT_EQ(narrow[i], static_cast<float>(one[i]));
  }
}

TEST(Random, KeysDiffer) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (int layer = 0; layer < 100; ++layer)
      keys.insert(random_key(seed, "block." + std::to_string(layer) + ".weight"));
  EXPECT_EQ(keys.size(), 10000u);
  EXPECT_NE(random_key(1, ""), random_key(2, ""));
  EXPECT_EQ(random_key(1, "a"), random_key(1, "a"));
  // Sequences of neighbouring keys are uncorrelated.
  const std::vector<double> a = normal<double>(100000, random_key(1, "a"), 0);
  const std::vector<double> b = normal<double>(100000, random_key(1, "b"), 0);
  const std::vector<double> c = normal<double>(100000, random_key(2, "a"), 0);
  double ab = 0;
  double ac = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i] / 1e5;
    ac += a[i] * c[i] / 1e5;
  }
  EXPECT_NEAR(ab, 0.0, 0.013);
  EXPECT_NEAR(ac, 0.0, 0.013);
}

}  // namespace
}  // namespace ostrakon::math
