// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/optim/adamw.hpp>
#include <ostrakon/optim/optimizer.hpp>
#include <stdexcept>
#include <string>

#include "math/compare.hpp"
#include "support/device_array.hpp"

namespace ostrakon::optim {
namespace {

using test::DeviceArray;
using test::random_values;
using test::same_bits;

constexpr std::int64_t count = 10001;
constexpr int steps = 20;

struct Case {
  std::string name;
  OptimizerSettings settings;
};

std::vector<Case> cases() {
  OptimizerSettings adamw;
  OptimizerSettings lion;
  lion.kind = OptimizerKind::lion;
  lion.beta2 = 0.99;
  OptimizerSettings nesterov;
  nesterov.kind = OptimizerKind::sgd;
  OptimizerSettings heavy_ball = nesterov;
  heavy_ball.nesterov = false;
  heavy_ball.momentum = 0.9;
  OptimizerSettings plain = nesterov;
  plain.momentum = 0.0;
  return {{"adamw", adamw},
          {"lion", lion},
          {"sgd, Nesterov", nesterov},
          {"sgd, heavy ball", heavy_ball},
          {"sgd", plain}};
}

UpdateStep step_of(std::int64_t step) {
  UpdateStep update_step;
  update_step.step = step;
  update_step.learning_rate = 1e-2 / static_cast<double>(step);
  update_step.weight_decay = 0.1;
  update_step.gradient_scale = 0.25;
  update_step.rounding_key = 77;
  update_step.first_element = 5;  // the arrays are an unaligned part of a parameter
  return update_step;
}

template <class T, class Moment>
struct State {
  std::vector<T> parameters;
  std::vector<Moment> first, second;

  bool operator==(const State& other) const {
    return same_bits(parameters, other.parameters) && same_bits(first, other.first) &&
           same_bits(second, other.second);
  }
};

template <class T>
std::vector<T> gradients(std::int64_t step) {
  return random_values<T>(count, 100 + step);
}

template <class T>
State<double, double> reference(const OptimizerSettings& s) {
  const std::vector<T> start = random_values<T>(count, 1);
  State<double, double> state = {std::vector<double>(start.begin(), start.end()),
                                 std::vector<double>(count, 0.0), std::vector<double>(count, 0.0)};
  for (int step = 1; step <= steps; ++step) {
    const UpdateStep with = step_of(step);
    const std::vector<T> all = gradients<T>(step);
    for (std::int64_t i = 0; i < count; ++i) {
      const double gradient = with.gradient_scale * static_cast<double>(all[i]);
      double& x = state.parameters[i];
      double& first = state.first[i];
      double& second = state.second[i];
      double direction = gradient;
      if (s.kind == OptimizerKind::adamw) {
        first = s.beta1 * first + (1 - s.beta1) * gradient;
        second = s.beta2 * second + (1 - s.beta2) * gradient * gradient;
        direction = first / (1 - std::pow(s.beta1, step)) /
                    (std::sqrt(second / (1 - std::pow(s.beta2, step))) + s.epsilon);
      } else if (s.kind == OptimizerKind::lion) {
        const double leaning = s.beta1 * first + (1 - s.beta1) * gradient;
        direction = leaning > 0 ? 1 : leaning < 0 ? -1 : 0;
        first = s.beta2 * first + (1 - s.beta2) * gradient;
      } else if (s.momentum != 0.0) {
        first = s.momentum * first + gradient;
        direction = s.nesterov ? gradient + s.momentum * first : first;
      }
      x -= with.learning_rate * direction + with.learning_rate * with.weight_decay * x;
    }
  }
  return state;
}

/// Runs body for the pieces of `all` that begin at `cuts`, in order.
template <class Body>
void for_each_piece(const std::vector<std::int64_t>& cuts, const Body& body) {
  std::int64_t begin = 0;
  for (std::size_t piece = 0; piece <= cuts.size(); ++piece) {
    const std::int64_t end = piece < cuts.size() ? cuts[piece] : count;
    body(begin, end);
    begin = end;
  }
}

template <class T, class Moment>
State<T, Moment> run(const OptimizerSettings& settings,
                     const std::vector<std::int64_t>& cuts = {}) {
  const int arrays = moments(settings, settings.kind);
  const DeviceArray<T> parameters(random_values<T>(count, 1));
  const DeviceArray<Moment> first(count, Moment(T(0)));
  const DeviceArray<Moment> second(count, Moment(T(0)));
  for (int step = 1; step <= steps; ++step) {
    const DeviceArray<T> g(gradients<T>(step));
    for_each_piece(cuts, [&](std::int64_t begin, std::int64_t end) {
      UpdateStep with = step_of(step);
      with.first_element += begin;
      const auto piece = [&](const auto& all) { return all.view().range(begin, end); };
      update<T, Moment, OnDevice>(Exec(), settings.kind, settings, with, piece(parameters),
                                  piece(g), arrays > 0 ? piece(first) : View<Moment*>(),
                                  arrays > 1 ? piece(second) : View<Moment*>());
    });
  }
  return {parameters.host(), first.host(), second.host()};
}

template <class T, class Moment>
State<T, Moment> run_on_host(const OptimizerSettings& settings,
                             const std::vector<std::int64_t>& cuts) {
  const int arrays = moments(settings, settings.kind);
  State<T, Moment> state = {random_values<T>(count, 1), std::vector<Moment>(count, Moment(T(0))),
                            std::vector<Moment>(count, Moment(T(0)))};
  for (int step = 1; step <= steps; ++step) {
    const std::vector<T> g = gradients<T>(step);
    for_each_piece(cuts, [&](std::int64_t begin, std::int64_t end) {
      UpdateStep with = step_of(step);
      with.first_element += begin;
      const auto piece = [&](auto& all) { return host_view(all).range(begin, end); };
      update<T, Moment, OnHost>(math::CallingThread(), settings.kind, settings, with,
                                piece(state.parameters), piece(g),
                                arrays > 0 ? piece(state.first) : HostView<Moment*>(),
                                arrays > 1 ? piece(state.second) : HostView<Moment*>());
    });
  }
  return state;
}

template <class T>
void check_steps(const Case& with, double tolerance) {
  const State<double, double> expected = reference<T>(with.settings);
  const State<T, T> found = run<T, T>(with.settings);
  EXPECT_LT(test::largest_difference(found.parameters, expected.parameters), tolerance)
      << with.name;
  EXPECT_LT(test::largest_difference(found.first, expected.first), tolerance) << with.name;
  EXPECT_LT(test::largest_difference(found.second, expected.second), tolerance) << with.name;
}

TEST(Optimizer, AgreesWithPlainLoopsOver20Steps) {
  for (const Case& with : cases()) {
    check_steps<double>(with, 1e-14);
    check_steps<float>(with, 1e-6);
  }
}

const std::vector<std::int64_t> partitions[] = {
    {64, 128, 4096}, {59}, {1, 2, 4, 7, 12, 20, 33, 54, 87, 5000, 10000}};

template <class Moment>
void check_partitions(const Case& with) {
  const State<float, Moment> whole = run<float, Moment>(with.settings);
  for (const std::vector<std::int64_t>& cuts : partitions)
    EXPECT_TRUE((run<float, Moment>(with.settings, cuts) == whole)) << with.name;
}

TEST(Optimizer, ShardsHaveTheBitsOfTheWhole) {
  for (const Case& with : cases()) {
    check_partitions<float>(with);
    check_partitions<bf16>(with);
  }
}

TEST(Optimizer, HostFunctionsHaveTheBitsOfTheKernels) {
  if (on_device) GTEST_SKIP() << "kernels run on a device";
  for (const Case& with : cases())
    for (const std::vector<std::int64_t>& cuts : partitions) {
      EXPECT_TRUE(
          (run_on_host<float, float>(with.settings, cuts) == run<float, float>(with.settings)))
          << with.name;
      EXPECT_TRUE(
          (run_on_host<float, bf16>(with.settings, cuts) == run<float, bf16>(with.settings)))
          << with.name;
      EXPECT_TRUE(
          (run_on_host<double, double>(with.settings, cuts) == run<double, double>(with.settings)))
          << with.name;
    }
}

TEST(Optimizer, MomentsIn16BitsStayNearThoseIn32) {
  // Rounding changes a moment by less than 2^-7 of it at each step, of which beta^n remains n steps
  // later: the mean difference stays well below the spacing of bf16.
  for (const Case& with : cases()) {
    const State<float, float> full = run<float, float>(with.settings);
    const State<float, bf16> half = run<float, bf16>(with.settings);
    double largest = 0;
    double distance = 0;
    double size = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      distance +=
          std::fabs(static_cast<double>(full.first[i]) - static_cast<double>(half.first[i]));
      size += std::fabs(static_cast<double>(full.first[i]));
      largest = std::fmax(largest, std::fabs(static_cast<double>(full.parameters[i]) -
                                             static_cast<double>(half.parameters[i])));
    }
    EXPECT_LE(distance, 0.01 * size) << with.name;
    if (with.settings.kind != OptimizerKind::lion) {
      EXPECT_LT(largest, 1e-3) << with.name;
    }
  }
}

TEST(Optimizer, PaddingStaysZero) {
  for (const Case& with : cases()) {
    const DeviceArray<float> parameters(70, 0.0f);
    const DeviceArray<float> g(70, 0.0f);
    const DeviceArray<bf16> first(70, bf16(0.0f));
    const DeviceArray<bf16> second(70, bf16(0.0f));
    update<float, bf16, OnDevice>(Exec(), with.settings.kind, with.settings, step_of(1), parameters,
                                  g, first, second);
    EXPECT_EQ(parameters.host(), std::vector<float>(70, 0.0f)) << with.name;
    for (const bf16 moment : first.host()) EXPECT_EQ(moment.bits, 0) << with.name;
    for (const bf16 moment : second.host()) EXPECT_EQ(moment.bits, 0) << with.name;
  }
}

TEST(Optimizer, AdamwIsTheSameFunction) {
  const OptimizerSettings settings;
  const UpdateStep with = step_of(3);
  const auto values = [](std::uint64_t seed) {
    return DeviceArray<float>(random_values<float>(count, seed));
  };
  const DeviceArray<float> g = values(1);
  const DeviceArray<float> parameters[] = {values(2), values(2)};
  const DeviceArray<float> first[] = {values(3), values(3)};
  const DeviceArray<float> second[] = {DeviceArray<float>(count, 0.5f),
                                       DeviceArray<float>(count, 0.5f)};
  update<float, float, OnDevice>(Exec(), OptimizerKind::adamw, settings, with, parameters[0], g,
                                 first[0], second[0]);
  adamw<float>(Exec(), parameters[1], g, first[1], second[1],
               {with.step, with.learning_rate, with.weight_decay, with.gradient_scale,
                settings.beta1, settings.beta2, settings.epsilon});
  EXPECT_TRUE(same_bits(parameters[0].host(), parameters[1].host()));
  EXPECT_TRUE(same_bits(first[0].host(), first[1].host()));
  EXPECT_TRUE(same_bits(second[0].host(), second[1].host()));
}

TEST(Optimizer, MuonIsForMatricesThatSaySo) {
  OptimizerSettings settings;
  settings.kind = OptimizerKind::muon;
  const auto rule = [&](std::vector<std::int64_t> shape, bool orthogonalize = true) {
    model::Parameter parameter;
    parameter.shape = std::move(shape);
    parameter.owner = "head";  // the name has no effect
    parameter.orthogonalize = orthogonalize;
    return rule_of(settings, parameter);
  };
  EXPECT_EQ(rule({8, 4}), OptimizerKind::muon);
  EXPECT_EQ(rule({8}), OptimizerKind::adamw);
  EXPECT_EQ(rule({8, 4}, false), OptimizerKind::adamw);
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::lion}) {
    settings.kind = kind;
    EXPECT_EQ(rule({8}), kind);
    EXPECT_EQ(rule({8, 4}, false), kind);
  }
}

TEST(Optimizer, CountsItsMoments) {
  OptimizerSettings settings;
  EXPECT_EQ(moments(settings, OptimizerKind::adamw), 2);
  EXPECT_EQ(moments(settings, OptimizerKind::lion), 1);
  EXPECT_EQ(moments(settings, OptimizerKind::muon), 1);
  EXPECT_EQ(moments(settings, OptimizerKind::sgd), 1);
  settings.momentum = 0.0;
  EXPECT_EQ(moments(settings, OptimizerKind::sgd), 0);
}

TEST(Optimizer, RefusesMuonElementByElement) {
  const DeviceArray<float> x(1, 0.0f);
  EXPECT_THROW((update<float, float, OnDevice>(Exec(), OptimizerKind::muon, {}, {}, x, x, x, x)),
               std::logic_error);
}

TEST(Optimizer, RefusesArraysOfOtherSizes) {
  const DeviceArray<float> x(64, 0.0f);
  const View<float*> less = x.view().range(0, 63);
  const auto update_with = [&](OptimizerKind rule, View<float*> gradients, View<float*> first,
                               View<float*> second) {
    update<float, float, OnDevice>(Exec(), rule, {}, {}, x, gradients, first, second);
  };
  EXPECT_THROW(update_with(OptimizerKind::adamw, less, x, x), Error);
  EXPECT_THROW(update_with(OptimizerKind::adamw, x, less, x), Error);
  EXPECT_THROW(update_with(OptimizerKind::adamw, x, x, less), Error);
  EXPECT_THROW(update_with(OptimizerKind::lion, x, {}, {}), Error);
  // The rule does not have this moment.
  EXPECT_NO_THROW(update_with(OptimizerKind::lion, x, x, less));
}

TEST(Optimizer, ParametersWithASignRateFollowTheSignAlone) {
  model::Parameter bias = model::Parameter::zeros("mlp.router.balance", {3});
  bias.sign_rate = 0.25;
  for (const auto kind : {OptimizerKind::adamw, OptimizerKind::muon, OptimizerKind::sgd}) {
    OptimizerSettings settings;
    settings.kind = kind;
    EXPECT_EQ(rule_of(settings, bias), OptimizerKind::sign);
    EXPECT_EQ(moments(settings, OptimizerKind::sign), 0);
    const ParamGroup group = param_group_of({}, bias, 1e-4, 0.1);
    EXPECT_EQ(group.learning_rate, 0.25);
    EXPECT_EQ(group.weight_decay, 0.0);
    UpdateStep step;
    step.learning_rate = group.learning_rate;
    step.gradient_scale = 1e-6;
    const DeviceArray<float> x(std::vector<float>{1, 1, 1}), gradient({1e-30f, 0, -1e30f});
    update<float, float, OnDevice>(Exec(), OptimizerKind::sign, settings, step, x.view(),
                                   gradient.view(), {}, {});
    EXPECT_EQ(x.host(), (std::vector<float>{0.75f, 1.0f, 1.25f}));
  }
}

}  // namespace
}  // namespace ostrakon::optim
