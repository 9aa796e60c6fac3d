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

TEST(FastTanh, IsWithinFourUnitsInTheLastPlace) {
  double worst = 0;
  float worst_at = 0;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 1009) {
    const std::uint32_t pattern = static_cast<std::uint32_t>(bits);
    float x;
    std::memcpy(&x, &pattern, sizeof x);
    if (!std::isfinite(x)) continue;
    const double exact = std::tanh(static_cast<double>(x));
    const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
    const double error = std::abs(static_cast<double>(fast_tanh(x)) - exact) / unit;
    if (!(error <= worst)) {
      worst = error;
      worst_at = x;
    }
  }
  EXPECT_LE(worst, 4.0) << "at " << worst_at;
  EXPECT_GT(worst, 0.0);
  for (const float x : {11.0f, 1e30f, infinity}) {
    EXPECT_EQ(fast_tanh(x), 1.0f);
    EXPECT_EQ(fast_tanh(-x), -1.0f);
  }
  EXPECT_TRUE(std::isnan(fast_tanh(std::numeric_limits<float>::quiet_NaN())));
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

/// The error of `found` in units in the last place of a float of that magnitude.
double ulps(float found, double exact) {
  const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::abs(static_cast<double>(found) - exact) / unit;
}

/// The largest error(x) over floats with |x| up to `limit`.
template <class Error>
double worst_error(float limit, const Error& error) {
  double worst = 0;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 4099) {
    const std::uint32_t pattern = static_cast<std::uint32_t>(bits);
    float x;
    std::memcpy(&x, &pattern, sizeof x);
    if (!(std::abs(x) <= limit)) continue;
    const double one = error(x);
    if (!(one <= worst)) worst = one;
  }
  return worst;
}

TEST(FastTanh, IsWithinThreeUnitsInTheLastPlace) {
  const double worst = worst_error(
      1e30f, [](float x) { return ulps(fast_tanh(x), std::tanh(static_cast<double>(x))); });
  EXPECT_LE(worst, 3.0);
  EXPECT_GT(worst, 0.0);
  EXPECT_EQ(fast_tanh(infinity), 1.0f);
  EXPECT_EQ(fast_tanh(-infinity), -1.0f);
  EXPECT_EQ(fast_tanh(0.0f), 0.0f);
  EXPECT_TRUE(std::isnan(fast_tanh(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FastNormal, IsWithinEightUnitsInTheLastPlace) {
  const auto integral = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  EXPECT_LE(worst_error(12.5f, [&](float x) { return ulps(fast_normal(x).integral, integral(x)); }),
            8.0);
  EXPECT_LE(worst_error(13.0f,
                        [](float x) {
                          const double exact =
                              std::exp(-0.5 * x * static_cast<double>(x)) * 0.39894228040143267794;
                          return ulps(fast_normal(x).density, exact);
                        }),
            8.0);
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
