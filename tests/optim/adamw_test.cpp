// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/optim/adamw.hpp>

#include "support/device_array.hpp"

namespace ostrakon::optim {
namespace {

using test::DeviceArray;
using test::random_values;

constexpr std::int64_t count = 10001;
constexpr double gradient_scale = 0.25;

double rate(std::int64_t step) { return 1e-2 / static_cast<double>(step); }

template <class T>
struct State {
  std::vector<T> parameters, first, second;
};

template <class T>
std::vector<T> gradients(std::int64_t step) {
  return random_values<T>(count, 100 + step);
}

/// Algorithm 2 of Loshchilov & Hutter, line by line.
template <class T>
State<double> reference(int steps, double weight_decay, const AdamwSettings& s) {
  const std::vector<T> start = random_values<T>(count, 1);
  State<double> state = {std::vector<double>(start.begin(), start.end()),
                         std::vector<double>(count, 0.0), std::vector<double>(count, 0.0)};
  for (int step = 1; step <= steps; ++step) {
    const std::vector<T> g = gradients<T>(step);
    for (std::int64_t i = 0; i < count; ++i) {
      const double gradient = gradient_scale * static_cast<double>(g[i]);
      state.first[i] = s.beta1 * state.first[i] + (1 - s.beta1) * gradient;
      state.second[i] = s.beta2 * state.second[i] + (1 - s.beta2) * gradient * gradient;
      const double first = state.first[i] / (1 - std::pow(s.beta1, step));
      const double second = state.second[i] / (1 - std::pow(s.beta2, step));
      state.parameters[i] -= rate(step) * (first / (std::sqrt(second) + s.epsilon) +
                                           weight_decay * state.parameters[i]);
    }
  }
  return state;
}

/// Runs the steps with the kernel, in pieces that begin at `cuts`.
template <class T>
State<T> run(int steps, double weight_decay, const AdamwSettings& settings,
             const std::vector<std::int64_t>& cuts = {}) {
  const DeviceArray<T> parameters(random_values<T>(count, 1));
  const DeviceArray<T> first(count, T(0));
  const DeviceArray<T> second(count, T(0));
  for (int step = 1; step <= steps; ++step) {
    const DeviceArray<T> g(gradients<T>(step));
    std::int64_t begin = 0;
    for (std::size_t piece = 0; piece <= cuts.size(); ++piece) {
      const std::int64_t end = piece < cuts.size() ? cuts[piece] : count;
      const auto piece_of = [&](const DeviceArray<T>& all) { return all.view().range(begin, end); };
      adamw<T>(Exec(), piece_of(parameters), piece_of(g), piece_of(first), piece_of(second),
               {step, rate(step), weight_decay, gradient_scale, settings.beta1, settings.beta2,
                settings.epsilon});
      begin = end;
    }
  }
  return {parameters.host(), first.host(), second.host()};
}

template <class T>
void check_steps(double tolerance) {
  const AdamwSettings settings;
  for (const double weight_decay : {0.0, 0.1}) {
    const State<double> expected = reference<T>(20, weight_decay, settings);
    const State<T> found = run<T>(20, weight_decay, settings);
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_NEAR(found.first[i], expected.first[i], tolerance);
      ASSERT_NEAR(found.second[i], expected.second[i], tolerance);
      ASSERT_NEAR(found.parameters[i], expected.parameters[i], tolerance);
    }
  }
}

TEST(Adamw, AgreesWithPlainLoopsOver20Steps) {
  check_steps<double>(1e-14);
  check_steps<float>(5e-7);
}

TEST(Adamw, ShardsHaveTheBitsOfTheWhole) {
  const State<float> whole = run<float>(3, 0.1, {});
  for (const std::vector<std::int64_t>& cuts :
       {std::vector<std::int64_t>{64, 128, 4096}, {1, 2, 4, 7, 12, 20, 33, 54, 87, 5000, 10000}}) {
    const State<float> parts = run<float>(3, 0.1, {}, cuts);
    EXPECT_EQ(parts.parameters, whole.parameters);
    EXPECT_EQ(parts.first, whole.first);
    EXPECT_EQ(parts.second, whole.second);
  }
}

TEST(Adamw, FirstStepMovesByTheRate) {
  const DeviceArray<double> parameters(std::vector<double>{1.0, 1.0, 1.0});
  const DeviceArray<double> g(std::vector<double>{1e-3, -5.0, 0.0});
  const DeviceArray<double> first(3, 0.0);
  const DeviceArray<double> second(3, 0.0);
  AdamwStep step;
  step.learning_rate = 0.01;
  step.epsilon = 0.0;
  step.beta2 = 0.999;
  const auto first_two = [](const DeviceArray<double>& all) { return all.view().range(0, 2); };
  adamw<double>(Exec(), first_two(parameters), first_two(g), first_two(first), first_two(second),
                step);
  EXPECT_NEAR(parameters.host()[0], 0.99, 1e-15);
  EXPECT_NEAR(parameters.host()[1], 1.01, 1e-15);
  EXPECT_EQ(parameters.host()[2], 1.0);
}

TEST(Adamw, PaddingStaysZero) {
  const auto zero = [] { return DeviceArray<float>(70, 0.0f); };
  const DeviceArray<float> zeros[] = {zero(), zero(), zero(), zero()};
  AdamwStep step;
  step.learning_rate = 0.01;
  step.weight_decay = 0.1;
  adamw<float>(Exec(), zeros[0], zeros[1], zeros[2], zeros[3], step);
  for (const DeviceArray<float>& array : zeros)
    EXPECT_EQ(array.host(), std::vector<float>(70, 0.0f));
}

TEST(Adamw, DecayIsDecoupled) {
  const DeviceArray<double> parameters(std::vector<double>{2.0});
  const DeviceArray<double> g(1, 0.0);
  const DeviceArray<double> first(1, 0.0);
  const DeviceArray<double> second(1, 0.0);
  AdamwStep step;
  step.learning_rate = 0.1;
  step.weight_decay = 0.5;
  adamw<double>(Exec(), parameters, g, first, second, step);
  EXPECT_DOUBLE_EQ(parameters.host()[0], 2.0 - 0.1 * 0.5 * 2.0);
  EXPECT_EQ(first.host()[0], 0.0);
}

TEST(ClipCoefficient, ShrinksOnlyLargeNorms) {
  EXPECT_EQ(clip_coefficient(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_coefficient(0.0, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_coefficient(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_DOUBLE_EQ(clip_coefficient(4.0, 2.0), 2.0 / (4.0 + 1e-6));
  EXPECT_EQ(clip_coefficient(1e30, 0.0), 1.0);
}

}  // namespace
}  // namespace ostrakon::optim
