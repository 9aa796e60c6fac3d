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

// A chain of small units of all kinds: without parameters, with phases, tied, frozen.

namespace ostrakon::tests {

constexpr std::int64_t small_rows = 2, small_width = 5, small_all = small_rows * small_width;

/// What a unit does wrong.
enum class Fault {
  none,
  wrong_gradient,  ///< of parameters
  wrong_input_gradient,
  unwritten_gradient,  ///< of one element
  forgets_to_add,      ///< adds_gradients is not looked at
  leaves_out_adding,   ///< with adds_gradients nothing is written
  recomputes_otherwise,
  writes_outside,
  writes_to_input,
  reads_after_parameter,
  writes_after_gradient,       ///< of its last parameter
  writes_after_tied_gradient,  ///< of the Tied
  unwritten_output,
  damages_output,  ///< as writes_outside and unwritten_output
  forward_varies,  ///< from call to call
  backward_varies,
  ignores_loss_scale,  ///< of the Squares
  // Arrays that a call does not have:
  writes_absent_output,  ///< where it recomputes, and before the last phase
  writes_losses,         ///< though it is not the loss unit
  writes_loss_output,    ///< of the Squares, whose output are losses
  writes_frozen_gradient,
  writes_frozen_tied_gradient  ///< of the Tied
};

/// y = the batch, of floats.
template <class T>
class Source final : public Unit<T> {
 public:
  UnitDescription describe() const override {
    UnitDescription unit;
    unit.name = "source";
    unit.output = small_all;
    unit.reads_batch = true;
    return unit;
  }
  void forward(const ForwardCall<T>& call) const override {
    const auto x = call.batch.template array<float>(0, small_all);
    const auto y = call.output;
    for_each(
        call.exec, small_all, KOKKOS_LAMBDA(std::int64_t i) { y(i) = T(x(i)); });
  }
  void backward(const BackwardCall<T>&) const override {}
};

/// How a Bend computes.
struct BendKind {
  Fault fault = Fault::none;
  bool has_phases = false;     ///< two in forward and in backward
  bool has_exchanges = false;  ///< between them, over one rank
  int exchange_ranks = 1;
  bool is_frozen = false;  ///< its shift
  double size = 1.0, offset = 0.0;
};

/// y = size tanh(scale x + shift) + offset, by columns. Saves the tanh.
template <class T>
class Bend final : public Unit<T> {
 public:
  Bend(std::string name, const BendKind& kind) : name_(std::move(name)), kind_(kind) {}

  UnitDescription describe() const override {
    UnitDescription unit;
    unit.name = name_;
    unit.parameters = {Parameter::normal("scale", {small_width}, 0.5),
                       Parameter::zeros("shift", {small_width})};
    unit.parameters[1].frozen = kind_.is_frozen;
    unit.input = unit.output = small_all;
    unit.saved_bytes = unit.backward[0].workspace_bytes = small_all * sizeof(T);
    if (!kind_.has_phases) return unit;
    unit.forward.resize(2);
    unit.backward.resize(2);
    unit.forward[1].workspace_bytes = 8;
    unit.backward[0].workspace_bytes = 0;
    unit.backward[1].workspace_bytes = small_all * sizeof(T);
    if (!kind_.has_exchanges) return unit;
    unit.forward[1].reads = unit.backward[1].reads = {0};
    unit.forward[0].then = unit.backward[0].then =
        plan::Exchange{plan::ExchangeKind::gather,
                       {plan::Axis::shard, kind_.exchange_ranks},
                       small_all * kind_.exchange_ranks,
                       sizeof(T)};
    return unit;
  }

  void forward(const ForwardCall<T>& call) const override {
    const auto x = call.input;
    const auto y = call.output;
    const auto a = call.parameters(0), b = call.parameters(1);
    const auto t = call.saved.template array<T>(0, small_all);
    const bool is_first = call.phase == 0, is_last = !kind_.has_phases || call.phase == 1;
    // From phase to phase by way of `saved`, or of an exchange.
    const bool hands = kind_.has_exchanges && is_first, takes = kind_.has_exchanges && !is_first;
    const auto handed = hands ? call.handed.template array<T>(0, small_all) : t;
    const Array<const T> taken =
        takes ? call.exchanged.template array<T>(0, small_all) : Array<const T>(t);
    const compute_t<T> spoilt =
        kind_.fault == Fault::recomputes_otherwise && call.recomputes ? 1e-3 : 0;
    const bool leaves_out =
        kind_.fault == Fault::unwritten_output || kind_.fault == Fault::damages_output;
    const T* const past =
        kind_.fault == Fault::reads_after_parameter ? a.data() + small_width : nullptr;
    const compute_t<T> varying = kind_.fault == Fault::forward_varies ? 1e-3 * ++calls_ : 0;
    const auto size = static_cast<compute_t<T>>(kind_.size);
    const auto offset = static_cast<compute_t<T>>(kind_.offset);
    for_each(
        call.exec, small_all, KOKKOS_LAMBDA(std::int64_t i) {
          const std::int64_t j = i % small_width;
          if (is_first) handed(i) = T(a(j) * x(i) + b(j));
          if (!is_last) return;
          const compute_t<T> sum = is_first ? handed(i) : taken(i);
          t(i) = T(std::tanh(sum) + spoilt + varying + (past == nullptr ? 0 : compute_t<T>(*past)));
          if (y.size() > 0 && !(leaves_out && i == 3)) y(i) = T(size * t(i) + offset);
        });
    const bool is_outside =
        kind_.fault == Fault::writes_outside || kind_.fault == Fault::damages_output;
    T* strange = is_outside                              ? t.data() + small_all
                 : kind_.fault == Fault::writes_to_input ? const_cast<T*>(x.data())
                 : kind_.fault == Fault::writes_losses   ? reinterpret_cast<T*>(call.losses.data())
                                                         : nullptr;
    if (kind_.fault == Fault::writes_absent_output && y.size() == 0) strange = y.data() + 3;
    if (strange != nullptr)
      for_each(
          call.exec, 1, KOKKOS_LAMBDA(std::int64_t) { *strange = T(7); });
  }

  void backward(const BackwardCall<T>& call) const override {
    const bool is_first = call.phase == 0, is_last = !kind_.has_phases || call.phase == 1;
    const auto g = call.gradient;
    const auto t = call.saved.template array<T>(0, small_all);
    // The first phase only says what the second one multiplies with.
    if (kind_.has_phases && is_first) {
      const auto handed = kind_.has_exchanges ? call.handed.template array<T>(0, small_all) : t;
      for_each(
          call.exec, small_all, KOKKOS_LAMBDA(std::int64_t i) { handed(i) = T(1 - t(i) * t(i)); });
      return;
    }
    if (!is_last) return;
    const bool is_given = kind_.has_phases;
    const Array<const T> given =
        kind_.has_exchanges ? call.exchanged.template array<T>(0, small_all) : Array<const T>(t);
    const auto x = call.input;
    const auto a = call.parameters(0);
    const auto d = call.workspace.template array<T>(0, small_all);
    const compute_t<T> factor = kind_.fault == Fault::wrong_input_gradient ? 2 : 1;
    const auto size = static_cast<compute_t<T>>(kind_.size);
    for_each(
        call.exec, small_all, KOKKOS_LAMBDA(std::int64_t i) {
          const compute_t<T> slope = is_given ? compute_t<T>(given(i)) : 1 - t(i) * t(i);
          d(i) = T(size * g(i) * slope);
          g(i) = T(factor * d(i) * a(i % small_width));
        });
    const auto da = call.parameter_gradients(0), db = call.parameter_gradients(1);
    const bool adds = call.adds_gradients && kind_.fault != Fault::forgets_to_add;
    if (call.adds_gradients && kind_.fault == Fault::leaves_out_adding) return;
    const std::int64_t columns = small_width - (kind_.fault == Fault::unwritten_gradient ? 1 : 0);
    const compute_t<T> sign = kind_.fault == Fault::wrong_gradient ? -1 : 1;
    const compute_t<T> varying = kind_.fault == Fault::backward_varies ? 1e-6 * ++calls_ : 0;
    for_each(
        call.exec, columns, KOKKOS_LAMBDA(std::int64_t j) {
          compute_t<T> of_scale = 0, of_shift = 0;
          for (std::int64_t i = j; i < small_all; i += small_width) {
            of_scale += sign * d(i) * x(i);
            of_shift += d(i);
          }
          da(j) = (adds ? da(j) : 0) + of_scale + varying;
          if (db.size() > 0) db(j) = (adds ? db(j) : 0) + of_shift;
        });
    compute_t<T>* const strange = kind_.fault == Fault::writes_after_gradient
                                      ? da.data() + small_width
                                  : kind_.fault == Fault::writes_frozen_gradient ? db.data() + 2
                                                                                 : nullptr;
    if (strange != nullptr)
      for_each(
          call.exec, 1, KOKKOS_LAMBDA(std::int64_t) { *strange = 7; });
  }

 private:
  std::string name_;
  BendKind kind_;
  mutable int calls_ = 0;
};

/// y = scale x, with the scale of the Bend that it is tied to. Saves nothing, has no parameters.
template <class T>
class Tied final : public Unit<T> {
 public:
  Tied(std::string tied_to, Fault fault) : tied_to_(std::move(tied_to)), fault_(fault) {}

  UnitDescription describe() const override {
    UnitDescription unit;
    unit.name = "tied";
    unit.input = unit.output = small_all;
    unit.tied_to = tied_to_;
    return unit;
  }
  void forward(const ForwardCall<T>& call) const override {
    const auto x = call.input;
    const auto y = call.output;
    const auto a = call.tied_parameters(0);
    for_each(
        call.exec, small_all,
        KOKKOS_LAMBDA(std::int64_t i) { y(i) = T(a(i % small_width) * x(i)); });
  }
  void backward(const BackwardCall<T>& call) const override {
    const auto x = call.input;
    const auto g = call.gradient;
    const auto a = call.tied_parameters(0);
    const auto da = call.tied_gradients(0);
    for_each(
        call.exec, small_width, KOKKOS_LAMBDA(std::int64_t j) {
          compute_t<T> sum = 0;
          for (std::int64_t i = j; i < small_all; i += small_width) {
            sum += g(i) * x(i);
            g(i) = T(g(i) * a(j));
          }
          da(j) = sum;
        });
    compute_t<T>* const strange =
        fault_ == Fault::writes_after_tied_gradient    ? da.data() + small_width
        : fault_ == Fault::writes_frozen_tied_gradient ? call.tied_gradients(1).data() + 2
                                                       : nullptr;
    if (strange != nullptr)
      for_each(
          call.exec, 1, KOKKOS_LAMBDA(std::int64_t) { *strange = 7; });
  }

 private:
  std::string tied_to_;
  Fault fault_;
};

/// The loss of a row: the sum of squares of x - target, with a target of its own.
template <class T>
class Squares final : public Unit<T> {
 public:
  explicit Squares(Fault fault) : fault_(fault) {}

  UnitDescription describe() const override {
    UnitDescription unit;
    unit.name = "squares";
    unit.parameters = {Parameter::zeros("target", {small_width})};
    unit.input = small_all;
    unit.output = small_rows;
    unit.is_loss = true;
    unit.saved_bytes = small_all * sizeof(T);
    return unit;
  }
  void forward(const ForwardCall<T>& call) const override {
    const auto x = call.input;
    const auto c = call.parameters(0);
    const auto r = call.saved.template array<T>(0, small_all);
    const auto losses = call.losses;
    for_each(
        call.exec, small_rows, KOKKOS_LAMBDA(std::int64_t row) {
          losses(row) = 0;
          for (std::int64_t j = 0; j < small_width; ++j) {
            const std::int64_t i = row * small_width + j;
            r(i) = T(x(i) - c(j) - compute_t<T>(0.3));
            losses(row) += r(i) * r(i);
          }
        });
    if (fault_ != Fault::writes_loss_output) return;
    T* const strange = call.output.data();
    for_each(
        call.exec, 1, KOKKOS_LAMBDA(std::int64_t) { *strange = T(7); });
  }
  void backward(const BackwardCall<T>& call) const override {
    const auto r = call.saved.template array<T>(0, small_all);
    const auto g = call.gradient;
    const auto dc = call.parameter_gradients(0);
    const compute_t<T> factor = fault_ == Fault::ignores_loss_scale ? 2 : 2 * call.loss_scale;
    for_each(
        call.exec, small_width, KOKKOS_LAMBDA(std::int64_t j) {
          compute_t<T> sum = 0;
          for (std::int64_t i = j; i < small_all; i += small_width) {
            g(i) = T(factor * r(i));
            sum -= g(i);
          }
          dc(j) = sum;
        });
  }

 private:
  Fault fault_;
};

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

template <class T>
using Units = std::vector<std::unique_ptr<Unit<T>>>;

/// source, bend.0, bend.1, tied to bend.0, squares. `fault`: of the last two.
template <class T>
Units<T> small_units(const BendKind& first = {}, const BendKind& second = {},
                     Fault fault = Fault::none) {
  Units<T> units;
  units.push_back(std::make_unique<Source<T>>());
  units.push_back(std::make_unique<Bend<T>>("bend.0", first));
  units.push_back(std::make_unique<Bend<T>>("bend.1", second));
  units.push_back(std::make_unique<Tied<T>>("bend.0", fault));
  units.push_back(std::make_unique<Squares<T>>(fault));
  return units;
}

template <class T>
Chain<T> small_chain(const BendKind& first = {}, const BendKind& second = {},
                     Fault fault = Fault::none) {
  return {small_units<T>(first, second, fault), {small_rows, SmallSamples().sample_bytes()}};
}

}  // namespace ostrakon::tests
