// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostrakon/math/activation.hpp>

#include "math/check_gradient.hpp"
#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using test::random_values;

constexpr std::int64_t widths[] = {1, 7, 64, 65};

long double reference_gelu(long double x) {
  const long double pi = 3.14159265358979323846L;
  return 0.5L * x * (1 + std::tanh(std::sqrt(2 / pi) * (x + 0.044715L * x * x * x)));
}

long double reference_silu(long double x) { return x / (1 + std::exp(-x)); }

/// Returns values up to +-`range`.
template <class T>
std::vector<T> spread(std::size_t count, std::uint32_t seed, double range) {
  std::vector<T> values = random_values<T>(count, seed);
  for (T& value : values) value *= static_cast<T>(range);
  return values;
}

template <class T>
std::vector<T> gelu(const std::vector<T>& x, std::int64_t rows) {
  const std::int64_t width = static_cast<std::int64_t>(x.size()) / rows;
  const DeviceArray<T> in(x);
  const DeviceArray<T> out(x.size());
  gelu_forward<T>(Exec(), {in.data(), rows, width}, {out.data(), rows, width});
  return out.host();
}

template <class T>
std::vector<T> gelu_gradient(const std::vector<T>& x, const std::vector<T>& dy, std::int64_t rows,
                             bool in_place) {
  const std::int64_t width = static_cast<std::int64_t>(x.size()) / rows;
  const DeviceArray<T> in(x);
  const DeviceArray<T> dout(dy);
  const DeviceArray<T> din(x.size());
  const DeviceArray<T>& target = in_place ? dout : din;
  gelu_backward<T>(Exec(), {in.data(), rows, width}, {dout.data(), rows, width},
                   {target.data(), rows, width});
  return target.host();
}

template <class T>
std::vector<T> swiglu(const std::vector<T>& gate_up, std::int64_t rows) {
  const std::int64_t width = static_cast<std::int64_t>(gate_up.size()) / (2 * rows);
  const DeviceArray<T> in(gate_up);
  const DeviceArray<T> out(rows * width);
  swiglu_forward<T>(Exec(), {in.data(), rows, 2 * width}, {out.data(), rows, width});
  return out.host();
}

template <class T>
std::vector<T> swiglu_gradient(const std::vector<T>& gate_up, const std::vector<T>& dy,
                               std::int64_t rows, bool in_place) {
  const std::int64_t width = static_cast<std::int64_t>(dy.size()) / rows;
  const DeviceArray<T> in(gate_up);
  const DeviceArray<T> dout(dy);
  const DeviceArray<T> din(gate_up.size());
  const DeviceArray<T>& target = in_place ? in : din;
  swiglu_backward<T>(Exec(), {in.data(), rows, 2 * width}, {dout.data(), rows, width},
                     {target.data(), rows, 2 * width});
  return target.host();
}

template <class T>
void check_gelu(double tolerance) {
  for (const std::int64_t width : widths) {
    const std::vector<T> x = spread<T>(5 * width, 1, 12.0);
    const std::vector<T> y = gelu(x, 5);
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(y[i], reference_gelu(x[i]), tolerance * std::max(1.0, std::abs(double(x[i]))));
  }
}

TEST(Gelu, ForwardAgreesWithPlainLoops) {
  check_gelu<double>(1e-15);
  check_gelu<float>(3e-7);
}

TEST(Gelu, BackwardAgreesWithFiniteDifferences) {
  for (const std::int64_t width : widths) {
    std::vector<double> x = spread<double>(3 * width, 1, 5.0);
    const std::vector<double> dy = random_values<double>(x.size(), 2);
    const std::vector<double> gradient = gelu_gradient(x, dy, 3, false);
    EXPECT_TRUE(test::gradient_agrees("gelu", x, gradient,
                                      [&] { return test::weighted_sum(gelu(x, 3), dy); }));
  }
}

template <class T>
void check_gelu_ends() {
  const T largest = std::numeric_limits<T>::max();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> x = {0,       15,  16,    17,       1000,     T(1e20),
                            largest, -17, -1000, T(-1e20), -largest, nan};
  const std::vector<T> ones(x.size(), T(1));
  const std::vector<T> y = gelu(x, 1);
  const std::vector<T> dx = gelu_gradient(x, ones, 1, false);
  EXPECT_EQ(y[0], T(0));
  EXPECT_EQ(dx[0], T(0.5));
  for (int i = 1; i <= 6; ++i) {
    EXPECT_EQ(y[i], x[i]);
    EXPECT_EQ(dx[i], T(1));
  }
  for (int i = 7; i <= 10; ++i) {
    EXPECT_NEAR(y[i] / x[i], T(0), 1e-37);
    EXPECT_NEAR(dx[i], T(0), 1e-37);
  }
  EXPECT_TRUE(std::isnan(y[11]));
  EXPECT_TRUE(std::isnan(dx[11]));
}

TEST(Gelu, EndsAreStable) {
  check_gelu_ends<double>();
  check_gelu_ends<float>();
}

template <class T>
void check_swiglu(double tolerance) {
  for (const std::int64_t width : widths) {
    const std::vector<T> gate_up = spread<T>(5 * 2 * width, 1, 12.0);
    const std::vector<T> y = swiglu(gate_up, 5);
    for (std::int64_t r = 0; r < 5; ++r)
      for (std::int64_t i = 0; i < width; ++i) {
        const long double expected =
            reference_silu(gate_up[r * 2 * width + i]) * gate_up[r * 2 * width + width + i];
        ASSERT_NEAR(y[r * width + i], expected, tolerance * (1 + std::abs(double(expected))));
      }
  }
}

TEST(Swiglu, ForwardAgreesWithPlainLoops) {
  check_swiglu<double>(2e-15);
  check_swiglu<float>(1e-6);
}

TEST(Swiglu, BackwardAgreesWithFiniteDifferences) {
  for (const std::int64_t width : widths) {
    std::vector<double> gate_up = spread<double>(3 * 2 * width, 1, 5.0);
    const std::vector<double> dy = random_values<double>(3 * width, 2);
    const std::vector<double> gradient = swiglu_gradient(gate_up, dy, 3, false);
    EXPECT_TRUE(test::gradient_agrees("swiglu", gate_up, gradient,
                                      [&] { return test::weighted_sum(swiglu(gate_up, 3), dy); }));
  }
}

template <class T>
void check_swiglu_ends() {
  const T big = T(1e18);
  const std::vector<T> y = swiglu<T>({big, -big, 100, -200, 0, 1, 1, 1, 2, 1}, 1);
  EXPECT_EQ(y[0], big);
  EXPECT_NEAR(y[1] / big, T(0), 1e-37);
  EXPECT_EQ(y[2], T(100));
  EXPECT_NEAR(y[3], T(0), 1e-36);
  EXPECT_EQ(y[4], T(0));
  const std::vector<T> gradient = swiglu_gradient<T>({big, -big, 0, 1, 1, 1}, {1, 1, 1}, 1, false);
  EXPECT_EQ(gradient[0], T(1));
  EXPECT_NEAR(gradient[1] / big, T(0), 1e-37);
  EXPECT_EQ(gradient[2], T(0.5));
  EXPECT_EQ(gradient[3], big);
  EXPECT_NEAR(gradient[4] / big, T(0), 1e-37);
  EXPECT_EQ(gradient[5], T(0));
}

TEST(Swiglu, EndsAreStable) {
  check_swiglu_ends<double>();
  check_swiglu_ends<float>();
}

TEST(Activation, InPlaceGivesTheSameBits) {
  for (const std::int64_t width : widths) {
    const std::vector<float> x = spread<float>(4 * width, 1, 4.0);
    const std::vector<float> dy = random_values<float>(4 * width, 2);
    EXPECT_EQ(gelu_gradient(x, dy, 4, true), gelu_gradient(x, dy, 4, false));
    const std::vector<float> half(dy.begin(), dy.begin() + 2 * width);
    EXPECT_EQ(swiglu_gradient(x, half, 2, true), swiglu_gradient(x, half, 2, false));
  }
}

TEST(Activation, AnElementDoesNotDependOnItsPlace) {
  // One long row must give the same as rows of one element.
  const std::vector<float> x = spread<float>(77, 1, 4.0);
  const std::vector<float> dy = random_values<float>(77, 2);
  EXPECT_EQ(gelu(x, 1), gelu(x, 77));
  EXPECT_EQ(gelu_gradient(x, dy, 1, false), gelu_gradient(x, dy, 77, false));
}

TEST(Activation, RespectsStrides) {
  const DeviceArray<double> x(random_values<double>(3 * 10, 1));
  const DeviceArray<double> y(3 * 9, -7.0);
  gelu_forward<double>(Exec(), {x.data(), 3, 7, 10}, {y.data(), 3, 7, 9});
  const std::vector<double> in = x.host();
  const std::vector<double> out = y.host();
  for (int r = 0; r < 3; ++r)
    for (int i = 0; i < 9; ++i) {
      if (i < 7)
        EXPECT_NEAR(out[r * 9 + i], reference_gelu(in[r * 10 + i]), 1e-15);
      else
        EXPECT_EQ(out[r * 9 + i], -7.0);
    }
}

}  // namespace
}  // namespace ostrakon::math
