// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostrakon/math/activation.hpp>
#include <ostrakon/math/elementary.hpp>
#include <vector>

#include "support/device_array.hpp"

namespace {

using ostrakon::math::fast_exp;
using ostrakon::math::fast_sigmoid;

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Returns the error in units in the last place of a float of that magnitude.
double error_in_ulps(float x) {
  const double exact = std::exp(static_cast<double>(x));
  const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::abs(static_cast<double>(fast_exp(x)) - exact) / unit;
}

TEST(FastExp, IsWithinTwoUnitsInTheLastPlace) {
  double worst = 0;
  float worst_at = 0;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 1009) {
    const std::uint32_t pattern = static_cast<std::uint32_t>(bits);
    float x;
    std::memcpy(&x, &pattern, sizeof x);
    if (!(x >= -103.9f && x <= 88.7228f)) continue;
    const double error = error_in_ulps(x);
    if (!(error <= worst)) {
      worst = error;
      worst_at = x;
    }
  }
  EXPECT_LE(worst, 2.0) << "at " << worst_at;
  EXPECT_GT(worst, 0.0);
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
  double worst = 0;
  float worst_at = 0;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 1009) {
    const std::uint32_t pattern = static_cast<std::uint32_t>(bits);
    float x;
    std::memcpy(&x, &pattern, sizeof x);
    if (!(x >= -87.3f)) continue;
    const double exact = 1.0 / (1.0 + std::exp(-static_cast<double>(x)));
    const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
    const double error = std::abs(static_cast<double>(fast_sigmoid(x)) - exact) / unit;
    if (!(error <= worst)) {
      worst = error;
      worst_at = x;
    }
  }
  EXPECT_LE(worst, 3.0) << "at " << worst_at;
  EXPECT_GT(worst, 0.0);
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
  ostrakon::math::swiglu_forward<float>(ostrakon::Exec(), x.view().matrix(1, 2 * count),
                                        y.view().matrix(1, count));
  const std::vector<float> found = y.host();
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_EQ(found[i], gate_up[i] * fast_sigmoid(gate_up[i])) << gate_up[i];
}

}  // namespace
