// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/rows/activation.hpp>
#include <vector>

#include "support/device_array.hpp"

namespace {

using ostrakon::math::fast_exp;
using ostrakon::math::fast_normal;
using ostrakon::math::fast_sigmoid;
using ostrakon::math::fast_tanh;

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Returns the error of `found` in units in the last place of a float of that magnitude.
double ulps(float found, double exact) {
  const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::abs(static_cast<double>(found) - exact) / unit;
}

struct Worst {
  double ulps = 0;
  float at = 0;
};

/// Returns the largest error of found(x) over floats from `least` to `most`, whose bits are
/// multiples of 1009, or one that is not a number.
template <class Found, class Exact>
Worst worst_error(float least, float most, const Found& found, const Exact& exact) {
  Worst worst;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 1009) {
    const auto pattern = static_cast<std::uint32_t>(bits);
    float x;
    std::memcpy(&x, &pattern, sizeof x);
    if (!(x >= least && x <= most)) continue;
    const double error = ulps(found(x), exact(static_cast<double>(x)));
    if (std::isnan(error)) return {error, x};
    if (error > worst.ulps) worst = {error, x};
  }
  return worst;
}

TEST(FastExp, IsWithinTwoUnitsInTheLastPlace) {
  const Worst worst = worst_error(
      -103.9f, 88.7228f, [](float x) { return fast_exp(x); }, [](double x) { return std::exp(x); });
  EXPECT_LE(worst.ulps, 2.0) << "at " << worst.at;
  EXPECT_GT(worst.ulps, 0.0);
}

TEST(FastExp, KnowsTheEndsOfTheRange) {
  EXPECT_EQ(fast_exp(0.0f), 1.0f);
  EXPECT_EQ(fast_exp(-0.0f), 1.0f);
  EXPECT_TRUE(std::isfinite(fast_exp(88.72283f)));
  EXPECT_EQ(fast_exp(88.73f), infinity);
  EXPECT_EQ(fast_exp(1e30f), infinity);
  EXPECT_EQ(fast_exp(infinity), infinity);
  EXPECT_GT(fast_exp(-103.0f), 0.0f);  // subnormal
  EXPECT_EQ(fast_exp(-104.0f), 0.0f);
  EXPECT_EQ(fast_exp(-1e30f), 0.0f);
  EXPECT_EQ(fast_exp(-infinity), 0.0f);
  EXPECT_TRUE(std::isnan(fast_exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FastSigmoid, IsWithinThreeUnitsInTheLastPlace) {
  const Worst worst = worst_error(
      -87.3f, infinity, [](float x) { return fast_sigmoid(x); },
      [](double x) { return 1.0 / (1.0 + std::exp(-x)); });
  EXPECT_LE(worst.ulps, 3.0) << "at " << worst.at;
  EXPECT_GT(worst.ulps, 0.0);
}

TEST(FastSigmoid, KnowsTheEndsOfTheRange) {
  EXPECT_EQ(fast_sigmoid(0.0f), 0.5f);
  for (const float x : {20.0f, 88.0f, 89.0f, 1e30f, infinity}) EXPECT_EQ(fast_sigmoid(x), 1.0f);
  for (const float x : {-89.0f, -1e30f, -infinity}) EXPECT_EQ(fast_sigmoid(x), 0.0f);
  for (float x = -89.0f; x < -87.0f; x += 0.01f) {
    EXPECT_GE(fast_sigmoid(x), 0.0f);
    EXPECT_LE(fast_sigmoid(x), 2e-38f);
  }
  EXPECT_TRUE(std::isnan(fast_sigmoid(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FastTanh, IsWithinThreeUnitsInTheLastPlace) {
  constexpr float most = std::numeric_limits<float>::max();
  const Worst worst = worst_error(
      -most, most, [](float x) { return fast_tanh(x); }, [](double x) { return std::tanh(x); });
  EXPECT_LE(worst.ulps, 3.0) << "at " << worst.at;
  EXPECT_GT(worst.ulps, 0.0);
}

TEST(FastTanh, KnowsTheEndsOfTheRange) {
  EXPECT_EQ(fast_tanh(0.0f), 0.0f);
  for (const float x : {11.0f, 1e30f, infinity}) {
    EXPECT_EQ(fast_tanh(x), 1.0f);
    EXPECT_EQ(fast_tanh(-x), -1.0f);
  }
  EXPECT_TRUE(std::isnan(fast_tanh(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FastNormal, IsWithinEightUnitsInTheLastPlace) {
  const Worst integral = worst_error(
      -12.5f, 12.5f, [](float x) { return fast_normal(x).integral; },
      [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); });
  EXPECT_LE(integral.ulps, 8.0) << "at " << integral.at;
  const Worst density = worst_error(
      -13.0f, 13.0f, [](float x) { return fast_normal(x).density; },
      [](double x) { return std::exp(-0.5 * x * x) * 0.39894228040143267794; });
  EXPECT_LE(density.ulps, 8.0) << "at " << density.at;
}

TEST(FastNormal, KnowsTheEndsOfTheRange) {
  EXPECT_EQ(fast_normal(0.0f).integral, 0.5f);
  for (const float x : {14.0f, 1e30f, infinity}) {
    EXPECT_EQ(fast_normal(x).integral, 1.0f);
    EXPECT_EQ(fast_normal(-x).integral, 0.0f);
    EXPECT_EQ(fast_normal(x).density, 0.0f);
  }
  const auto of_nan = fast_normal(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(of_nan.integral) && std::isnan(of_nan.density));
}

TEST(FastExp, InDoubleIsThatOfTheLibrary) {
  for (double x = -700; x < 700; x += 13.37)
    EXPECT_NEAR(fast_exp(x) / std::exp(x), 1.0, 1e-15) << x;
}

/// This source is compiled as a user's may be: the compiler fuses products and sums.
TEST(FastSigmoid, HasTheBitsOfTheLibrarysKernels) {
  if (ostrakon::on_device) GTEST_SKIP() << "kernels are not host code";
  constexpr std::int64_t count = 4096;
  std::vector<float> gate_up(2 * count, 1.0f);
  for (std::size_t i = 0; i < count; ++i) gate_up[i] = -40.0f + 0.0195f * static_cast<float>(i);
  const ostrakon::test::DeviceArray<float> x(gate_up), y(count);
  ostrakon::math::activation_forward<float>(ostrakon::Exec(), ostrakon::math::Activation::swiglu,
                                            x.view().matrix(1, 2 * count),
                                            y.view().matrix(1, count));
  const std::vector<float> found = y.host();
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_EQ(found[i], gate_up[i] * fast_sigmoid(gate_up[i])) << gate_up[i];
}

}  // namespace
