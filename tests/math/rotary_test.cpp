// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/math/attention/rotary.hpp>
#include <ostrakon/math/attention/sine_cosine.hpp>

#include "math/check_gradient.hpp"
#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using test::random_values;

struct Case {
  std::int64_t rows, heads, head_width, tokens, first_position;
  double base;
};

const Case all_cases[] = {
    {1, 1, 2, 1, 0, 10000.0},    {5, 1, 6, 5, 0, 10000.0},      {6, 3, 14, 3, 2, 500000.0},
    {70, 2, 64, 35, 0, 10000.0}, {3, 2, 130, 3, 1000, 10000.0}, {40, 1, 8, 40, 131040, 500000.0},
};

template <class T>
std::vector<T> rotated(const Case& c, Rotation rotation, const std::vector<T>& x) {
  const DeviceArray<T> device(x);
  rotate<T>(Exec(), rotation, {device.data(), c.rows, c.heads * c.head_width}, c.head_width, c.base,
            c.tokens, c.first_position);
  return device.host();
}

template <class T>
std::vector<T> input(const Case& c, std::uint32_t seed) {
  return random_values<T>(c.rows * c.heads * c.head_width, seed);
}

template <class T>
void check_rotate(double tolerance) {
  for (const Case& c : all_cases) {
    const std::vector<T> x = input<T>(c, 1);
    const std::vector<T> y = rotated(c, Rotation::forward, x);
    const std::int64_t half = c.head_width / 2;
    for (std::int64_t r = 0; r < c.rows; ++r)
      for (std::int64_t head = 0; head < c.heads; ++head)
        for (std::int64_t i = 0; i < half; ++i) {
          const long double angle =
              (c.first_position + r % c.tokens) *
              std::pow(static_cast<long double>(c.base), -2.0L * i / c.head_width);
          const std::int64_t low = (r * c.heads + head) * c.head_width + i;
          const long double a = x[low];
          const long double b = x[low + half];
          ASSERT_NEAR(y[low], a * std::cos(angle) - b * std::sin(angle), tolerance);
          ASSERT_NEAR(y[low + half], b * std::cos(angle) + a * std::sin(angle), tolerance);
        }
  }
}

TEST(Rotary, AgreesWithPlainLoops) {
  check_rotate<double>(1e-10);
  check_rotate<float>(3e-7);
}

TEST(Rotary, StaysAccurateFarFromTheBeginning) {
  // The rotation of x = (1, 0) gives cosine and sine.
  for (const double base : {10000.0, 500000.0, 1e7})
    for (const std::int64_t head_width : {64, 128, 600}) {
      const Case c = {40, 1, head_width, 40, 1000000, base};
      const std::int64_t half = head_width / 2;
      std::vector<float> x(c.rows * head_width, 0.0f);
      for (std::int64_t r = 0; r < c.rows; ++r) std::fill_n(&x[r * head_width], half, 1.0f);
      const std::vector<float> y = rotated(c, Rotation::forward, x);
      for (std::int64_t r = 0; r < c.rows; ++r)
        for (std::int64_t i = 0; i < half; ++i) {
          const long double angle =
              (c.first_position + r) *
              std::pow(static_cast<long double>(base), -2.0L * i / head_width);
          ASSERT_NEAR(y[r * head_width + i], std::cos(angle), 1.5e-7);
          ASSERT_NEAR(y[r * head_width + half + i], std::sin(angle), 1.5e-7);
        }
    }
}

TEST(Rotary, InverseTurnsBack) {
  for (const Case& c : all_cases) {
    const std::vector<double> x = input<double>(c, 1);
    const std::vector<double> back =
        rotated(c, Rotation::inverse, rotated(c, Rotation::forward, x));
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(back[i], x[i], 2e-15);
  }
}

TEST(Rotary, InverseIsTheGradient) {
  const Case c = {6, 3, 14, 3, 2, 500000.0};
  std::vector<double> x = input<double>(c, 1);
  const std::vector<double> dy = input<double>(c, 2);
  const std::vector<double> gradient = rotated(c, Rotation::inverse, dy);
  EXPECT_TRUE(test::gradient_agrees("rotate", x, gradient, [&] {
    return test::weighted_sum(rotated(c, Rotation::forward, x), dy);
  }));
}

TEST(Rotary, ARowAloneHasTheSameBits) {
  const Case c = {70, 2, 64, 35, 3, 10000.0};
  const std::vector<float> x = input<float>(c, 1);
  const std::vector<float> y = rotated(c, Rotation::forward, x);
  const std::int64_t width = c.heads * c.head_width;
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const Case one = {1, c.heads, c.head_width, 1, c.first_position + r % c.tokens, c.base};
    const std::vector<float> row(x.begin() + r * width, x.begin() + (r + 1) * width);
    ASSERT_EQ(rotated(one, Rotation::forward, row),
              std::vector<float>(y.begin() + r * width, y.begin() + (r + 1) * width));
  }
}

TEST(Rotary, LeavesOtherColumnsAlone) {
  // The query heads are the first columns of wider rows.
  const DeviceArray<double> x(2 * 10, 1.0);
  rotate<double>(Exec(), Rotation::forward, {x.data(), 2, 4, 10}, 4, 100.0, 2, 5);
  const std::vector<double> y = x.host();
  for (int r = 0; r < 2; ++r)
    for (int i = 0; i < 10; ++i) EXPECT_EQ(y[r * 10 + i] == 1.0, i >= 4);
}

TEST(SineCosine, AgreesWithTheLibrary) {
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    const double angle = (i - 100000) * 1.3107;
    const SineCosine turned = sine_cosine(angle);
    worst = std::max(worst, static_cast<double>(
                                std::abs(turned.sine - std::sin(static_cast<long double>(angle)))));
    worst = std::max(
        worst,
        static_cast<double>(std::abs(turned.cosine - std::cos(static_cast<long double>(angle)))));
  }
  EXPECT_LT(worst, 1e-15);
}

TEST(SineCosine, OfTurnsAgreesWithTheLibrary) {
  double worst = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const std::uint64_t turns = i * 0x9E3779B97F4A7C15u;
    const SineCosineFloat turned = sine_cosine_of_turns(turns);
    const double angle = static_cast<double>(turns) * 0x1p-64 * 6.283185307179586;
    worst = std::max({worst, std::abs(turned.sine - std::sin(angle)),
                      std::abs(turned.cosine - std::cos(angle))});
  }
  EXPECT_LT(worst, 0x1p-23);
  EXPECT_EQ(sine_cosine_of_turns(0).sine, 0.0f);
  EXPECT_EQ(sine_cosine_of_turns(0).cosine, 1.0f);
  EXPECT_EQ(sine_cosine_of_turns(std::uint64_t{1} << 63).cosine, -1.0f);
}

}  // namespace
}  // namespace ostrakon::math
