// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <ostrakon/model/unit_run.hpp>
#include <string>
#include <vector>

#include <ostrakon/gradient_check.hpp>
#include <ostrakon/training.hpp>

// Units of a Builder, with operations of one's own.

namespace ostrakon::tests {

constexpr std::int64_t built_samples = 4, built_rows = 2, built_width = 16;

/// Samples of rows of numbers between -1 and 1, sample by sample.
class BuiltSamples : public SampleSource {
 public:
  std::int64_t sample_bytes() const override {
    return built_rows * built_width * static_cast<std::int64_t>(sizeof(float));
  }
  void fill(std::uint64_t first, std::int64_t count, void* batch) override {
    auto* const values = static_cast<float*>(batch);
    for (std::int64_t i = 0; i < count * built_rows * built_width; ++i)
      values[i] =
          static_cast<float>(std::sin(0.7 * static_cast<double>(first * built_rows * built_width +
                                                                static_cast<std::uint64_t>(i))));
  }
};

inline LeafSize built_leaf(std::int64_t tensor_ranks = 1, std::int64_t pieces = 1) {
  return {built_samples, BuiltSamples().sample_bytes(), built_rows, tensor_ranks, pieces};
}

/// y = scale tanh(x), by element; the scale is of columns. `sign`: -1, or 1 for a wrong gradient.
template <class T>
static void tanh_forward(const OperationForward<T>& call) {
  const auto x = call.inputs[0];
  const auto scale = call.parameters[0];
  const auto y = call.output;
  for_each(
      call.exec, y.rows(), y.columns(), KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
        y(i, j) = T(compute_t<T>(scale(j)) * std::tanh(compute_t<T>(x(i, j))));
      });
}
template <class T>
static void tanh_backward(const OperationBackward<T>& call, int sign) {
  using C = compute_t<T>;
  const auto x = call.inputs[0], dy = call.gradient;
  const auto dx = call.input_gradients[0];
  const auto scale = call.parameters[0];
  const auto dscale = call.parameter_gradients[0];
  const std::int64_t rows = x.rows();
  for_each(
      call.exec, x.columns(), KOKKOS_LAMBDA(std::int64_t j) {
        C sum = 0;
        for (std::int64_t i = 0; i < rows; ++i) {
          const C t = std::tanh(C(x(i, j)));
          dx(i, j) = T(C(dy(i, j)) * C(scale(j)) * (1 + sign * t * t));
          sum += C(dy(i, j)) * t;
        }
        if (dscale.size() > 0) dscale(j) = sum;
      });
}
template <class T>
Operation<T> scaled_tanh(Value x, std::int64_t columns, int sign = -1) {
  Operation<T> own{"tanh", {x}, tanh_forward<T>, [sign](const OperationBackward<T>& call) {
                     tanh_backward<T>(call, sign);
                   }};
  own.takes = Takes::elements;
  own.parameters = {Parameter::normal("tanh.scale", {columns}, 0.5)};
  return own;
}

/// y(i, j) = tanh(sum over k of x(i, k) w(k, j)), by row, to as many columns. Backward reads y.
template <class T>
static void mixed_forward(const OperationForward<T>& call) {
  const auto x = call.inputs[0];
  const auto y = call.output;
  const auto w = call.parameters[0];
  for_each(
      call.exec, y.rows(), y.columns(), KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
        compute_t<T> sum = 0;
        for (std::int64_t k = 0; k < x.columns(); ++k)
          sum += compute_t<T>(x(i, k)) * compute_t<T>(w(k * y.columns() + j));
        y(i, j) = T(std::tanh(sum));
      });
}
template <class T>
static void mixed_backward(const OperationBackward<T>& call) {
  using C = compute_t<T>;
  const auto x = call.inputs[0], y = call.output, dy = call.gradient;
  const auto dx = call.input_gradients[0];
  const auto w = call.parameters[0];
  const auto dw = call.parameter_gradients[0];
  for_each(
      call.exec, x.rows(), x.columns(), KOKKOS_LAMBDA(std::int64_t i, std::int64_t k) {
        C sum = 0;
        for (std::int64_t j = 0; j < y.columns(); ++j)
          sum += C(dy(i, j)) * (1 - C(y(i, j)) * C(y(i, j))) * C(w(k * y.columns() + j));
        dx(i, k) = T(sum);
      });
  for_each(
      call.exec, x.columns(), y.columns(), KOKKOS_LAMBDA(std::int64_t k, std::int64_t j) {
        C sum = 0;
        for (std::int64_t i = 0; i < x.rows(); ++i)
          sum += C(x(i, k)) * C(dy(i, j)) * (1 - C(y(i, j)) * C(y(i, j)));
        dw(k * y.columns() + j) = sum;
      });
}
template <class T>
Operation<T> mixed(Value x) {
  Operation<T> own{"mixed", {x}, mixed_forward<T>, mixed_backward<T>};
  own.parameters = {Parameter::normal("mixed.weight", {built_width, built_width}, 0.5)};
  own.backward_reads_output = true;
  return own;
}

/// The loss of a row: the sum of squares of x - x0, of which x0 is the batch.
template <class T>
static void misfit_forward(const OperationForward<T>& call) {
  const auto x = call.inputs[0];
  const auto losses = call.losses;
  const std::int64_t first = call.first_row, columns = x.columns();
  const auto wanted = call.batch.template array<float>(0, (first + x.rows()) * columns);
  for_each(
      call.exec, x.rows(), KOKKOS_LAMBDA(std::int64_t i) {
        losses(i) = 0;
        for (std::int64_t j = 0; j < columns; ++j) {
          const compute_t<T> r = x(i, j) - 0.5f * wanted((first + i) * columns + j);
          losses(i) += r * r;
        }
      });
}
template <class T>
static void misfit_backward(const OperationBackward<T>& call) {
  const auto x = call.inputs[0];
  const auto dx = call.input_gradients[0];
  const std::int64_t first = call.first_row, columns = x.columns();
  const auto wanted = call.batch.template array<float>(0, (first + x.rows()) * columns);
  const compute_t<T> factor = 2 * call.loss_scale;
  for_each(
      call.exec, x.rows(), columns, KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
        dx(i, j) = T(factor * (x(i, j) - 0.5f * wanted((first + i) * columns + j)));
      });
}
template <class T>
Operation<T> misfit(Value x) {
  Operation<T> own{"misfit", {x}, misfit_forward<T>, misfit_backward<T>};
  own.reads_batch = true;
  return own;
}

}  // namespace ostrakon::tests
