// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/math/rows/activation.hpp>

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

/// `rows` rows of the activation of x.
template <class T>
std::vector<T> activated(Activation kind, const std::vector<T>& x, std::int64_t rows) {
  const std::int64_t width = static_cast<std::int64_t>(x.size()) / rows;
  const std::int64_t inner = is_gated(kind) ? width / 2 : width;
  const DeviceArray<T> in(x);
  const DeviceArray<T> out(rows * inner);
  activation_forward<T>(Exec(), kind, {in.data(), rows, width}, {out.data(), rows, inner});
  return out.host();
}

/// The gradient of x; in place it replaces x of gated activations, and dy of others.
template <class T>
std::vector<T> gradient_of(Activation kind, const std::vector<T>& x, const std::vector<T>& dy,
                           std::int64_t rows, bool in_place) {
  const std::int64_t width = static_cast<std::int64_t>(x.size()) / rows;
  const std::int64_t inner = static_cast<std::int64_t>(dy.size()) / rows;
  const DeviceArray<T> in(x);
  const DeviceArray<T> dout(dy);
  const DeviceArray<T> din(x.size());
  const DeviceArray<T>& target = !in_place ? din : is_gated(kind) ? in : dout;
  activation_backward<T>(Exec(), kind, {in.data(), rows, width}, {dout.data(), rows, inner},
                         {target.data(), rows, width});
  return target.host();
}

template <class T>
std::vector<T> gelu(const std::vector<T>& x, std::int64_t rows) {
  return activated(Activation::gelu, x, rows);
}
template <class T>
std::vector<T> gelu_gradient(const std::vector<T>& x, const std::vector<T>& dy, std::int64_t rows,
                             bool in_place) {
  return gradient_of(Activation::gelu, x, dy, rows, in_place);
}
template <class T>
std::vector<T> swiglu(const std::vector<T>& gate_up, std::int64_t rows) {
  return activated(Activation::swiglu, gate_up, rows);
}
template <class T>
std::vector<T> swiglu_gradient(const std::vector<T>& gate_up, const std::vector<T>& dy,
                               std::int64_t rows, bool in_place) {
  return gradient_of(Activation::swiglu, gate_up, dy, rows, in_place);
}

/// What is made of a number, or of a gate and what it is multiplied by, in long double.
long double reference(Activation kind, long double x, long double up) {
  const auto exact_gelu = [](long double z) { return z * std::erfc(-z / std::sqrt(2.0L)) / 2; };
  switch (kind) {
    case Activation::gelu:
      return reference_gelu(x);
    case Activation::gelu_exact:
      return exact_gelu(x);
    case Activation::relu:
      return std::max(x, 0.0L);
    case Activation::relu_squared:
      return std::pow(std::max(x, 0.0L), 2);
    case Activation::swiglu:
      return reference_silu(x) * up;
    case Activation::geglu:
      return reference_gelu(x) * up;
    case Activation::geglu_exact:
      return exact_gelu(x) * up;
    case Activation::swiglu_clamped: {
      const long double g = std::min(x, 7.0L);
      return g / (1 + std::exp(-1.702L * g)) * (std::clamp(up, -7.0L, 7.0L) + 1);
    }
  }
  return 0;
}

template <class T>
void check_kinds(double tolerance) {
  for (const auto& [kind, name] : activation_names)
    for (const std::int64_t width : widths) {
      const bool gated = is_gated(kind);
      const std::int64_t all = gated ? 2 * width : width;
      const std::vector<T> x = spread<T>(5 * all, 1, 12.0);
      const std::vector<T> y = activated(kind, x, 5);
      for (std::int64_t r = 0; r < 5; ++r)
        for (std::int64_t i = 0; i < width; ++i) {
          const long double up = gated ? x[r * all + width + i] : T(0);
          const long double expected = reference(kind, x[r * all + i], up);
          ASSERT_NEAR(y[r * width + i], expected, tolerance * (1 + std::abs(double(expected))))
              << name << " of " << x[r * all + i] << ", " << double(up);
        }
    }
}

TEST(Activation, ForwardAgreesWithPlainLoops) {
  check_kinds<double>(3e-15);
  check_kinds<float>(1e-6);
}

TEST(Activation, BackwardAgreesWithFiniteDifferences) {
  for (const auto& [kind, name] : activation_names)
    for (const std::int64_t width : widths) {
      const Activation activation = kind;
      std::vector<double> x = spread<double>(3 * (is_gated(kind) ? 2 * width : width), 1, 8.3);
      const std::vector<double> dy = random_values<double>(3 * width, 2);
      const std::vector<double> gradient = gradient_of(kind, x, dy, 3, false);
      EXPECT_TRUE(test::gradient_agrees(
          name, x, gradient, [&] { return test::weighted_sum(activated(activation, x, 3), dy); }));
    }
}

TEST(Activation, WhatIsClampedHasNoGradient) {
  const std::vector<double> of_gate_and_up = gradient_of<double>(
      Activation::swiglu_clamped, {7.5, 7.5, 1, 1, 2, 7.5, -7.5, 2}, {1, 1, 1, 1}, 1, false);
  const std::vector<bool> expected = {false, false, true, true, true, false, false, true};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(of_gate_and_up[i] != 0.0, expected[i]) << i;
}

/// Far from 0 an activation is its asymptote, and nothing overflows on the way.
template <class T>
void check_ends() {
  const T big = T(1e18), nan = std::numeric_limits<T>::quiet_NaN();
  for (const auto& [kind, name] : activation_names) {
    const bool gated = is_gated(kind);
    const bool clamps = kind == Activation::swiglu_clamped,
               squares = kind == Activation::relu_squared;
    const std::vector<T> up = {1, 1, 1};
    std::vector<T> x = {big, -big, nan};
    if (gated) x.insert(x.end(), up.begin(), up.end());
    const std::vector<T> y = activated(kind, x, 1), dx = gradient_of(kind, x, up, 1, false);
    if (!clamps) {
      EXPECT_EQ(y[0], squares ? big * big : big) << name;
      EXPECT_EQ(dx[0], squares ? 2 * big : T(1)) << name;
    }
    EXPECT_NEAR(y[1] / big, T(0), 1e-37) << name;
    EXPECT_NEAR(dx[1], T(0), 1e-37) << name;
    EXPECT_TRUE(std::isnan(y[2])) << name;
    EXPECT_TRUE(kind == Activation::relu || std::isnan(dx[2])) << name;
  }
}

TEST(Activation, EndsAreStable) {
  check_ends<double>();
  check_ends<float>();
}

/// Small probabilities have all digits: x Phi(x) of a negative x.
TEST(GeluExact, KeepsDigitsOfItsTail) {
  std::vector<float> x;
  for (float one = -12.5f; one < 0.0f; one += 0.01f) x.push_back(one);
  const std::vector<float> y = activated(Activation::gelu_exact, x, 1);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = static_cast<double>(reference(Activation::gelu_exact, x[i], 0));
    EXPECT_NEAR(y[i] / expected, 1.0, 1e-6) << x[i];
  }
}

/// A gate of each row, and of each element.
TEST(Gate, AgreesWithPlainLoopsAndFiniteDifferences) {
  for (const std::int64_t width : widths)
    for (const std::int64_t gates : {std::int64_t{1}, width}) {
      std::vector<double> x = random_values<double>(3 * width, 1);
      std::vector<double> gate = random_values<double>(3 * gates, 3);
      gate[0] = -3.0;
      gate.back() = 5.0;
      const std::vector<double> dy = random_values<double>(x.size(), 2);
      const auto forward = [&] {
        const DeviceArray<double> in(x), opened(gate), out(x.size());
        gate_forward<double>(Exec(), in.matrix(3, width), opened.matrix(3, gates),
                             out.matrix(3, width));
        return out.host();
      };
      const std::vector<double> y = forward();
      for (std::size_t i = 0; i < x.size(); ++i)
        EXPECT_NEAR(y[i], x[i] / (1 + std::exp(-gate[gates == 1 ? i / width : i])), 1e-15);
      const DeviceArray<double> in(x), opened(gate), d(dy), dgate(gate.size());
      gate_backward<double>(Exec(), in.matrix(3, width), opened.matrix(3, gates),
                            d.matrix(3, width), d.matrix(3, width), dgate.matrix(3, gates));
      const auto sum = [&] { return test::weighted_sum(forward(), dy); };
      EXPECT_TRUE(test::gradient_agrees("gated", x, d.host(), sum));
      EXPECT_TRUE(test::gradient_agrees("gate", gate, dgate.host(), sum));
    }
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
  for (const auto& [kind, name] : activation_names)
    for (const std::int64_t width : widths) {
      const std::vector<float> x = spread<float>(4 * (is_gated(kind) ? 2 * width : width), 1, 4.0);
      const std::vector<float> dy = random_values<float>(4 * width, 2);
      EXPECT_EQ(gradient_of(kind, x, dy, 4, true), gradient_of(kind, x, dy, 4, false)) << name;
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
  activation_forward<double>(Exec(), Activation::gelu, {x.data(), 3, 7, 10}, {y.data(), 3, 7, 9});
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
