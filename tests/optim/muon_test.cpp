// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/optim/muon.hpp>

#include "math/compare.hpp"
#include "support/device_array.hpp"

namespace ostrakon::optim {
namespace {

using test::DeviceArray;
using test::largest_difference;
using test::random_values;
using test::same_bits;

struct Shape {
  std::int64_t rows, columns;
};
constexpr Shape shapes[] = {{48, 80}, {80, 48}, {33, 33}, {1, 7}, {7, 1}, {1, 1}, {130, 65}};

/// A row-major matrix for plain loops.
struct Dense {
  std::int64_t rows, columns;
  std::vector<double> values;

  Dense(std::int64_t rows_, std::int64_t columns_)
      : rows(rows_), columns(columns_), values(rows_ * columns_, 0.0) {}
  double& operator()(std::int64_t i, std::int64_t j) { return values[i * columns + j]; }
  double operator()(std::int64_t i, std::int64_t j) const { return values[i * columns + j]; }
};

Dense product(const Dense& x, const Dense& y) {
  Dense z(x.rows, y.columns);
  for (std::int64_t i = 0; i < x.rows; ++i)
    for (std::int64_t k = 0; k < x.columns; ++k)
      for (std::int64_t j = 0; j < y.columns; ++j) z(i, j) += x(i, k) * y(k, j);
  return z;
}

Dense transposed(const Dense& x) {
  Dense y(x.columns, x.rows);
  for (std::int64_t i = 0; i < x.rows; ++i)
    for (std::int64_t j = 0; j < x.columns; ++j) y(j, i) = x(i, j);
  return y;
}

/// Jordan's algorithm, line by line, always with X X^T.
Dense reference(Dense x, int iterations) {
  double norm = 0;
  for (const double value : x.values) norm += value * value;
  for (double& value : x.values) value /= std::sqrt(norm);
  for (int iteration = 0; iteration < iterations; ++iteration) {
    const Dense square = product(x, transposed(x));
    Dense sum = product(square, square);
    for (std::size_t i = 0; i < sum.values.size(); ++i)
      sum.values[i] = -4.7750 * square.values[i] + 2.0315 * sum.values[i];
    Dense next = product(sum, x);
    for (std::size_t i = 0; i < x.values.size(); ++i) next.values[i] += 3.4445 * x.values[i];
    x = next;
  }
  return x;
}

template <class T>
Dense random_dense(const Shape& shape, std::uint64_t seed) {
  Dense x(shape.rows, shape.columns);
  x.values = test::converted<double>(random_values<T>(shape.rows * shape.columns, seed));
  return x;
}

template <class T>
std::vector<T> orthogonalized(const Dense& x, int iterations) {
  const DeviceArray<T> matrix(test::converted<T>(x.values));
  const DeviceArray<unsigned char> workspace(orthogonalize_workspace<T>(x.rows, x.columns));
  orthogonalize<T>(Exec(), View<T**>(matrix.data(), x.rows, x.columns), iterations,
                   view_as<std::byte>(workspace.view()));
  return matrix.host();
}

TEST(Orthogonalize, AgreesWithPlainLoops) {
  for (const Shape& shape : shapes)
    for (const int iterations : {1, 2, 5, 6}) {
      const Dense x = random_dense<float>(shape, 1);
      const Dense expected = reference(x, iterations);
      EXPECT_LT(largest_difference(orthogonalized<double>(x, iterations), expected.values), 1e-11)
          << shape.rows << " x " << shape.columns << ", " << iterations;
      // A rounding error of small singular vectors grows as they do, 485-fold in 5 iterations.
      EXPECT_LT(largest_difference(orthogonalized<float>(x, iterations), expected.values), 1e-4)
          << shape.rows << " x " << shape.columns << ", " << iterations;
    }
}

/// Returns I - 2 v v^T / (v^T v).
Dense reflection(std::int64_t size, std::uint64_t seed) {
  const std::vector<double> v = random_values<double>(size, seed);
  double norm = 0;
  for (const double value : v) norm += value * value;
  Dense q(size, size);
  for (std::int64_t i = 0; i < size; ++i)
    for (std::int64_t j = 0; j < size; ++j) q(i, j) = (i == j) - 2 * v[i] * v[j] / norm;
  return q;
}

TEST(Orthogonalize, KeepsSingularVectorsAndLevelsSingularValues) {
  for (const Shape& shape : {Shape{40, 64}, {64, 40}}) {
    const Dense left = reflection(shape.rows, 1);
    const Dense right = reflection(shape.columns, 2);
    // The singular values span two orders of magnitude.
    Dense diagonal(shape.rows, shape.columns);
    for (std::int64_t i = 0; i < 40; ++i)
      diagonal(i, i) = std::pow(10.0, -2.0 * static_cast<double>(i) / 39.0);
    Dense found = product(product(left, diagonal), right);
    found.values = test::converted<double>(orthogonalized<float>(found, 5));
    const Dense turned_back = product(product(left, found), right);
    for (std::int64_t i = 0; i < shape.rows; ++i)
      for (std::int64_t j = 0; j < shape.columns; ++j) {
        if (i != j) {
          EXPECT_NEAR(turned_back(i, j), 0.0, 1e-4);
        } else {
          EXPECT_GT(turned_back(i, j), 0.68) << diagonal(i, j);
          EXPECT_LT(turned_back(i, j), 1.21) << diagonal(i, j);
        }
      }
  }
}

TEST(Orthogonalize, ProductWithItsTransposeIsNearTheIdentity) {
  // The eigenvalues of y y^T are squares of numbers from 0.68 to 1.21, so its diagonal is in the
  // same range.
  const Dense x = random_dense<float>({96, 384}, 3);
  Dense y = x;
  y.values = test::converted<double>(orthogonalized<float>(x, 5));
  const Dense square = product(y, transposed(y));
  for (std::int64_t i = 0; i < 96; ++i)
    for (std::int64_t j = 0; j < 96; ++j)
      if (i == j) {
        EXPECT_GT(square(i, i), 0.68 * 0.68);
        EXPECT_LT(square(i, i), 1.21 * 1.21);
      } else {
        EXPECT_NEAR(square(i, j), 0.0, 0.3) << i << ", " << j;
      }
}

TEST(Orthogonalize, DoesNotDependOnTheSize) {
  const Dense x = random_dense<float>({20, 30}, 4);
  const std::vector<float> expected = orthogonalized<float>(x, 5);
  for (const double factor : {1e-37, 1e-20, 1e20, 1e37}) {
    Dense scaled = x;
    for (double& value : scaled.values) value *= factor;
    EXPECT_LT(largest_difference(orthogonalized<float>(scaled, 5), expected), 1e-5) << factor;
  }
  // Scaling by a power of two changes no bit.
  Dense scaled = x;
  for (double& value : scaled.values) value *= 0x1p-40;
  EXPECT_TRUE(same_bits(orthogonalized<float>(scaled, 5), expected));
}

TEST(Orthogonalize, LeavesZerosZero) {
  const Dense zeros(5, 9);
  EXPECT_EQ(orthogonalized<float>(zeros, 5), std::vector<float>(45, 0.0f));
}

TEST(Orthogonalize, KeepsToItsRowsAndItsWorkspace) {
  for (const Shape& shape : shapes) {
    const Dense x = random_dense<float>(shape, 5);
    const std::int64_t stride = shape.columns + 3;
    const std::int64_t bytes = orthogonalize_workspace<float>(shape.rows, shape.columns);
    const DeviceArray<unsigned char> workspace(bytes + 256, 0xA5);
    std::vector<float> rows(shape.rows * stride, 42.0f);
    for (std::int64_t i = 0; i < shape.rows; ++i)
      for (std::int64_t j = 0; j < shape.columns; ++j)
        rows[i * stride + j] = static_cast<float>(x(i, j));
    const DeviceArray<float> matrix(rows);
    orthogonalize<float>(Exec(), View<float**>(matrix.data(), shape.rows, shape.columns, stride), 5,
                         view_as<std::byte>(workspace.view()));
    const std::vector<float> found = matrix.host();
    const Dense expected = reference(x, 5);
    for (std::int64_t i = 0; i < shape.rows; ++i)
      for (std::int64_t j = 0; j < stride; ++j) {
        if (j < shape.columns)
          ASSERT_NEAR(found[i * stride + j], expected(i, j), 1e-4);
        else
          ASSERT_EQ(found[i * stride + j], 42.0f);
      }
    const std::vector<unsigned char> after = workspace.host();
    for (std::int64_t i = bytes; i < bytes + 256; ++i) ASSERT_EQ(after[i], 0xA5);
  }
}

TEST(Orthogonalize, RefusesNoIterations) {
  const DeviceArray<float> x(1, 1.0f);
  const DeviceArray<unsigned char> workspace(orthogonalize_workspace<float>(1, 1));
  EXPECT_THROW(orthogonalize<float>(Exec(), View<float**>(x.data(), 1, 1), 0,
                                    view_as<std::byte>(workspace.view())),
               Error);
}

constexpr Shape shape = {71, 141};
constexpr std::int64_t count = shape.rows * shape.columns;

OptimizerSettings muon_settings(bool nesterov) {
  OptimizerSettings settings;
  settings.kind = OptimizerKind::muon;
  settings.nesterov = nesterov;
  settings.muon_rate_factor = 2.0;
  return settings;
}

UpdateStep step_of(std::int64_t step) {
  UpdateStep with;
  with.step = step;
  with.learning_rate = 1e-2 / static_cast<double>(step);
  with.weight_decay = 0.1;
  with.gradient_scale = 0.25;
  with.rounding_key = 9;
  return with;
}

template <class T, class Moment>
struct State {
  std::vector<T> parameters;
  std::vector<Moment> momentum;
};

/// Runs 20 steps, with the elementwise parts in pieces of `piece` elements.
template <class T, class Moment>
State<T, Moment> run(const OptimizerSettings& settings, std::int64_t piece) {
  const DeviceArray<T> parameters(random_values<T>(count, 1));
  const DeviceArray<Moment> momentum(count, Moment(T(0)));
  const DeviceArray<unsigned char> workspace(orthogonalize_workspace<T>(shape.rows, shape.columns));
  for (int step = 1; step <= 20; ++step) {
    UpdateStep with = step_of(step);
    const DeviceArray<T> direction(random_values<T>(count, 100 + step));
    for (std::int64_t begin = 0; begin < count; begin += piece) {
      with.first_element = begin;
      const std::int64_t end = std::min(begin + piece, count);
      muon_direction<T, Moment, OnDevice>(Exec(), settings, with,
                                          direction.view().range(begin, end),
                                          momentum.view().range(begin, end));
    }
    orthogonalize<T>(Exec(), View<T**>(direction.data(), shape.rows, shape.columns),
                     settings.muon_iterations, view_as<std::byte>(workspace.view()));
    for (std::int64_t begin = 0; begin < count; begin += piece) {
      const std::int64_t end = std::min(begin + piece, count);
      muon_apply<T, OnDevice>(Exec(), settings, with, shape.rows, shape.columns,
                              parameters.view().range(begin, end),
                              direction.view().range(begin, end));
    }
  }
  return {parameters.host(), momentum.host()};
}

template <class T, class Moment>
State<T, Moment> run_on_host(const OptimizerSettings& settings) {
  State<T, Moment> state = {random_values<T>(count, 1), std::vector<Moment>(count, Moment(T(0)))};
  const DeviceArray<unsigned char> workspace(orthogonalize_workspace<T>(shape.rows, shape.columns));
  for (int step = 1; step <= 20; ++step) {
    const UpdateStep with = step_of(step);
    std::vector<T> direction = random_values<T>(count, 100 + step);
    muon_direction<T, Moment, OnHost>(math::CallingThread(), settings, with, host_view(direction),
                                      host_view(state.momentum));
    const DeviceArray<T> matrix(direction);
    orthogonalize<T>(Exec(), View<T**>(matrix.data(), shape.rows, shape.columns),
                     settings.muon_iterations, view_as<std::byte>(workspace.view()));
    direction = matrix.host();
    muon_apply<T, OnHost>(math::CallingThread(), settings, with, shape.rows, shape.columns,
                          host_view(state.parameters), host_view(direction));
  }
  return state;
}

template <class T>
void check_steps(bool nesterov, double tolerance) {
  const OptimizerSettings settings = muon_settings(nesterov);
  std::vector<double> parameters = test::converted<double>(random_values<T>(count, 1));
  std::vector<double> momentum(count, 0.0);
  for (int step = 1; step <= 20; ++step) {
    const UpdateStep with = step_of(step);
    const std::vector<T> gradients = random_values<T>(count, 100 + step);
    Dense direction(shape.rows, shape.columns);
    for (std::int64_t i = 0; i < count; ++i) {
      const double gradient = with.gradient_scale * static_cast<double>(gradients[i]);
      momentum[i] = settings.momentum * momentum[i] + gradient;
      direction.values[i] = nesterov ? gradient + settings.momentum * momentum[i] : momentum[i];
    }
    direction = reference(direction, 5);
    const double rate = 2.0 * with.learning_rate;
    for (std::int64_t i = 0; i < count; ++i)
      parameters[i] -= rate * (0.2 * std::sqrt(141.0) * direction.values[i] + 0.1 * parameters[i]);
  }
  const State<T, T> found = run<T, T>(settings, count);
  EXPECT_LT(largest_difference(found.parameters, parameters), tolerance);
  EXPECT_LT(largest_difference(found.momentum, momentum), tolerance);
}

TEST(Muon, AgreesWithPlainLoopsOver20Steps) {
  for (const bool nesterov : {false, true}) {
    check_steps<double>(nesterov, 1e-12);
    check_steps<float>(nesterov, 1e-5);
  }
}

TEST(Muon, ShardsHaveTheBitsOfTheWhole) {
  const OptimizerSettings settings = muon_settings(true);
  const State<float, float> whole = run<float, float>(settings, count);
  const State<float, bf16> whole_16 = run<float, bf16>(settings, count);
  for (const std::int64_t piece : {64, 1000, 5007}) {
    const State<float, float> parts = run<float, float>(settings, piece);
    EXPECT_TRUE(same_bits(parts.parameters, whole.parameters)) << piece;
    EXPECT_TRUE(same_bits(parts.momentum, whole.momentum)) << piece;
    const State<float, bf16> parts_16 = run<float, bf16>(settings, piece);
    EXPECT_TRUE(same_bits(parts_16.parameters, whole_16.parameters)) << piece;
    EXPECT_TRUE(same_bits(parts_16.momentum, whole_16.momentum)) << piece;
  }
}

TEST(Muon, HostFunctionsHaveTheBitsOfTheKernels) {
  if (on_device) GTEST_SKIP() << "kernels run on a device";
  const OptimizerSettings settings = muon_settings(true);
  const State<float, float> kernels = run<float, float>(settings, count);
  const State<float, float> plain = run_on_host<float, float>(settings);
  EXPECT_TRUE(same_bits(plain.parameters, kernels.parameters));
  EXPECT_TRUE(same_bits(plain.momentum, kernels.momentum));
  const State<float, bf16> kernels_16 = run<float, bf16>(settings, count);
  const State<float, bf16> plain_16 = run_on_host<float, bf16>(settings);
  EXPECT_TRUE(same_bits(plain_16.parameters, kernels_16.parameters));
  EXPECT_TRUE(same_bits(plain_16.momentum, kernels_16.momentum));
}

TEST(Muon, MovesAsFarAsAdamw) {
  // The root mean square of an update, divided by its rate, is the same for all shapes.
  for (const Shape& of : {Shape{32, 128}, {128, 32}, {64, 64}}) {
    const Dense x = random_dense<float>(of, 6);
    const DeviceArray<float> direction(orthogonalized<float>(x, 5));
    const std::int64_t elements = of.rows * of.columns;
    const DeviceArray<float> parameters(elements, 0.0f);
    UpdateStep with;
    with.learning_rate = 1.0;
    muon_apply<float, OnDevice>(Exec(), {}, with, of.rows, of.columns, parameters, direction);
    double squares = 0;
    for (const float value : parameters.host()) squares += static_cast<double>(value) * value;
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(elements)), 0.2, 0.04);
  }
}

}  // namespace
}  // namespace ostrakon::optim
