// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <ostrakon/gradient_check.hpp>
#include <ostrakon/training.hpp>
#include <string>
#include <utility>
#include <vector>

// Chains of small units: of operations of one's own, right and wrong, and with a tied table.

namespace ostrakon::tests {

constexpr std::int64_t small_rows = 2, small_width = 5, small_all = small_rows * small_width;

/// What the kernels of an operation do wrong.
enum class Fault {
  none,
  wrong_gradient,  ///< of a parameter
  wrong_input_gradient,
  reads_what_it_does_not_say,  ///< its input, in backward
  mixes_rows,
  mixes_columns,
  // Arrays:
  unwritten_output,
  unwritten_gradient,  ///< of a parameter
  writes_outside,
  writes_to_input,
  reads_after_parameter,
  writes_after_gradient,  ///< of a parameter
  writes_losses,          ///< of which it has none
  writes_frozen_gradient,
  // From call to call:
  forward_varies,
  backward_varies,
  // Faults of losses:
  ignores_loss_scale,
  writes_output
};

/// How a Bend computes.
struct BendKind {
  Fault fault = Fault::none;
  bool is_frozen = false;  ///< its shift
  double size = 1.0, offset = 0.0;
};

/// Writes where the kernels that it stands in have nothing to write; null: not at all.
template <class T>
static void write_strange(const Exec& exec, T* where) {
  if (where != nullptr)
    for_each(
        exec, 1, KOKKOS_LAMBDA(std::int64_t) { *where = T(7); });
}

/// y = size tanh(scale x + shift) + offset, by element; scale and shift are of columns.
template <class T>
static void bend_forward(const OperationForward<T>& call, const BendKind& kind, int number) {
  using C = compute_t<T>;
  const auto x = call.inputs[0];
  const auto y = call.output;
  const auto a = call.parameters[0], b = call.parameters[1];
  const Fault fault = kind.fault;
  const auto size = static_cast<C>(kind.size);
  const auto offset =
      static_cast<C>(kind.offset + (fault == Fault::forward_varies ? 1e-3 * number : 0.0));
  const T* const past = fault == Fault::reads_after_parameter ? a.data() + a.size() : nullptr;
  for_each(
      call.exec, y.rows(), y.columns(), KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
        if (fault == Fault::unwritten_output && i == 0 && j == 3) return;
        const C from = x(fault == Fault::mixes_rows ? x.rows() - 1 : i,
                         fault == Fault::mixes_columns ? x.columns() - 1 : j);
        const C t = std::tanh(C(a(j)) * from + C(b(j)));
        y(i, j) = T(size * t + offset + (past == nullptr ? C(0) : C(*past)));
      });
  if (fault == Fault::writes_outside)
    write_strange(call.exec, y.data() + (y.rows() - 1) * y.stride() + y.columns());
  if (fault == Fault::writes_to_input) write_strange(call.exec, const_cast<T*>(x.data()));
  if (fault == Fault::writes_losses) write_strange(call.exec, call.losses.data());
}

template <class T>
static void bend_backward(const OperationBackward<T>& call, const BendKind& kind, int number) {
  using C = compute_t<T>;
  const auto x = call.inputs[0], dy = call.gradient;
  const auto dx = call.input_gradients[0];
  const auto a = call.parameters[0], b = call.parameters[1];
  const auto da = call.parameter_gradients[0], db = call.parameter_gradients[1];
  const Fault fault = kind.fault;
  const auto size = static_cast<C>(kind.size);
  const C factor = fault == Fault::wrong_input_gradient ? 2 : 1;
  const C sign = fault == Fault::wrong_gradient ? -1 : 1;
  const C varying = fault == Fault::backward_varies ? C(1e-6) * number : C(0);
  const T* const input = x.data();  // not by x(i, j), as it may be empty
  const std::int64_t stride = x.stride(), rows = dx.rows();
  for_each(
      call.exec, dx.columns(), KOKKOS_LAMBDA(std::int64_t j) {
        C of_scale = varying, of_shift = 0;
        for (std::int64_t i = 0; i < rows; ++i) {
          const C from = input[i * stride + j];
          const C t = std::tanh(C(a(j)) * from + C(b(j)));
          const C d = size * C(dy(i, j)) * (1 - t * t);
          of_scale += sign * d * from;
          of_shift += d;
          dx(i, j) = T(factor * d * C(a(j)));
        }
        if (fault != Fault::unwritten_gradient || j > 0) da(j) = of_scale;
        if (db.size() > 0) db(j) = of_shift;
      });
  if (fault == Fault::writes_after_gradient) write_strange(call.exec, da.data() + da.size());
  if (fault == Fault::writes_frozen_gradient) write_strange(call.exec, db.data() + 2);
}

template <class T>
Operation<T> bend(Value x, const BendKind& kind) {
  const auto calls = std::make_shared<int>(0);
  Operation<T> own{
      "bend",
      {x},
      [=](const OperationForward<T>& call) { bend_forward<T>(call, kind, ++*calls); },
      [=](const OperationBackward<T>& call) { bend_backward<T>(call, kind, ++*calls); }};
  own.takes = Takes::elements;
  own.backward_reads_inputs = kind.fault != Fault::reads_what_it_does_not_say;
  own.parameters = {Parameter::normal("scale", {small_width}, 0.5),
                    Parameter::zeros("shift", {small_width})};
  own.parameters[1].frozen = kind.is_frozen;
  return own;
}

/// The loss of a row: the sum of squares of x - target - 0.3, with a target that is trained.
template <class T>
static void squares_forward(const OperationForward<T>& call, Fault fault) {
  const auto x = call.inputs[0];
  const auto c = call.parameters[0];
  const auto losses = call.losses;
  for_each(
      call.exec, x.rows(), KOKKOS_LAMBDA(std::int64_t i) {
        compute_t<T> sum = 0;
        for (std::int64_t j = 0; j < x.columns(); ++j) {
          const compute_t<T> r = x(i, j) - c(j) - compute_t<T>(0.3);
          sum += r * r;
        }
        losses(i) = sum;
      });
  if (fault == Fault::writes_output) write_strange(call.exec, call.output.data());
}
template <class T>
static void squares_backward(const OperationBackward<T>& call, Fault fault) {
  const auto x = call.inputs[0];
  const auto c = call.parameters[0];
  const auto dx = call.input_gradients[0];
  const auto dc = call.parameter_gradients[0];
  const compute_t<T> factor = fault == Fault::ignores_loss_scale ? 2 : 2 * call.loss_scale;
  for_each(
      call.exec, x.columns(), KOKKOS_LAMBDA(std::int64_t j) {
        compute_t<T> sum = 0;
        for (std::int64_t i = 0; i < x.rows(); ++i) {
          const compute_t<T> r = x(i, j) - c(j) - compute_t<T>(0.3);
          dx(i, j) = T(factor * r);
          sum -= factor * r;
        }
        dc(j) = sum;
      });
}
template <class T>
Operation<T> squares(Value x, Fault fault = Fault::none) {
  Operation<T> own{"squares",
                   {x},
                   [=](const OperationForward<T>& call) { squares_forward<T>(call, fault); },
                   [=](const OperationBackward<T>& call) { squares_backward<T>(call, fault); }};
  own.parameters = {Parameter::zeros("target", {small_width})};
  return own;
}

/// Rows of numbers between -1 and 1.
class SmallSamples : public SampleSource {
 public:
  std::int64_t sample_bytes() const override {
    return small_width * static_cast<std::int64_t>(sizeof(float));
  }
  void fill(std::uint64_t first, std::int64_t count, void* batch) override {
    auto* const values = static_cast<float*>(batch);
    for (std::int64_t i = 0; i < count * small_width; ++i)
      values[i] = static_cast<float>(
          std::sin(0.7 * static_cast<double>(first * small_width + static_cast<std::uint64_t>(i))));
  }
  Facts identity() const override { return {{"data", "sines"}}; }
};

/// source, bend.0, bend.1, squares. `fault`: of the last one.
template <class T>
ostrakon::Units<T> small_units(const BendKind& first = {}, const BendKind& second = {},
                               Fault fault = Fault::none) {
  ostrakon::Units<T> units;
  units.add("source", [](Builder<T>& b) { return b.floats(small_width); });
  units.add("bend.0", [=](Builder<T>& b, Value x) { return b.apply(bend<T>(x, first)); });
  units.add("bend.1", [=](Builder<T>& b, Value x) { return b.apply(bend<T>(x, second)); });
  units.add("squares", [=](Builder<T>& b, Value x) { return b.losses(squares<T>(x, fault)); });
  return units;
}

template <class T>
Chain<T> small_chain(const BendKind& first = {}, const BendKind& second = {},
                     Fault fault = Fault::none) {
  return {small_units<T>(first, second, fault), {small_rows, SmallSamples().sample_bytes()}};
}

constexpr std::int64_t small_words = 7, small_tokens = 3;

/// Sequences of tokens, and the next ones as targets.
class SmallTokens : public SmallSamples {
 public:
  std::int64_t sample_bytes() const override {
    return 2 * small_tokens * static_cast<std::int64_t>(sizeof(std::int32_t));
  }
  void fill(std::uint64_t first, std::int64_t count, void* batch) override {
    auto* const tokens = static_cast<std::int32_t*>(batch);
    for (std::int64_t i = 0; i < count * small_tokens; ++i) {
      const auto at = first * small_tokens + static_cast<std::uint64_t>(i);
      tokens[i] = static_cast<std::int32_t>(at * at % small_words);
      tokens[count * small_tokens + i] =
          static_cast<std::int32_t>((at + 1) * (at + 1) % small_words);
    }
  }
};

/// embedding, bend, and losses with the table of the embedding.
template <class T>
Chain<T> tied_chain() {
  ostrakon::Units<T> units;
  units.add("embedding",
            [](Builder<T>& b) { return b.embedding(small_words, small_width, 0, 0.5); });
  units.add("bend", [](Builder<T>& b, Value x) { return b.apply(bend<T>(x, {})); });
  units.add("head", [](Builder<T>& b, Value x) { return b.tied_cross_entropy(x, "embedding"); });
  return {units, {small_rows, SmallTokens().sample_bytes(), small_tokens}};
}

}  // namespace ostrakon::tests
