// SPDX-License-Identifier: Apache-2.0
#pragma once

// The elementwise update of each optimizer. The factors are computed in double, once, on the host.

#include <cmath>
#include <ostrakon/optim/optimizer.hpp>

namespace ostrakon::optim {

/// a b + c d.
template <class T>
KOKKOS_INLINE_FUNCTION T two_products(T a, T b, T c, T d) {
  return math::multiply_add(a, b, c * d);
}

template <class T>
struct AdamwRule {
  static constexpr int moments = 2;
  static constexpr bool in_place = false;
  T scale, beta1, beta2, rest1, rest2, step_size, root_scale, epsilon, decay;

  AdamwRule(const OptimizerSettings& settings, const UpdateStep& step)
      : scale(static_cast<T>(step.gradient_scale)),
        beta1(static_cast<T>(settings.beta1)),
        beta2(static_cast<T>(settings.beta2)),
        rest1(static_cast<T>(1.0 - settings.beta1)),
        rest2(static_cast<T>(1.0 - settings.beta2)),
        step_size(static_cast<T>(step.learning_rate / correction(settings.beta1, step.step))),
        root_scale(static_cast<T>(1.0 / std::sqrt(correction(settings.beta2, step.step)))),
        epsilon(static_cast<T>(settings.epsilon)),
        decay(static_cast<T>(step.learning_rate * step.weight_decay)) {}

  static double correction(double beta, std::int64_t step) {
    return 1.0 - std::pow(beta, static_cast<double>(step));
  }

  KOKKOS_INLINE_FUNCTION T operator()(T x, T unscaled_gradient, T& first, T& second) const {
    const T gradient = scale * unscaled_gradient;
    first = two_products(beta1, first, rest1, gradient);
    second = two_products(beta2, second, rest2, gradient * gradient);
    const T direction = first / math::multiply_add(math::sqrt(second), root_scale, epsilon);
    return x - two_products(step_size, direction, decay, x);
  }
};

/// SGD without momentum.
template <class T>
struct PlainRule {
  static constexpr int moments = 0;
  static constexpr bool in_place = false;
  T step_size, decay;

  PlainRule(double step_size_, double decay_)
      : step_size(static_cast<T>(step_size_)), decay(static_cast<T>(decay_)) {}

  KOKKOS_INLINE_FUNCTION T operator()(T x, T gradient, T&, T&) const {
    return x - two_products(step_size, gradient, decay, x);
  }
};

/// momentum = mu * momentum + gradient; the direction is the momentum, or with Nesterov one step
/// ahead.
template <class T>
struct Momentum {
  T scale, momentum, of_momentum, of_gradient;

  Momentum(const OptimizerSettings& settings, const UpdateStep& step)
      : scale(static_cast<T>(step.gradient_scale)),
        momentum(static_cast<T>(settings.momentum)),
        of_momentum(static_cast<T>(settings.nesterov ? settings.momentum : 1.0)),
        of_gradient(static_cast<T>(settings.nesterov ? 1.0 : 0.0)) {}

  KOKKOS_INLINE_FUNCTION T direction(T unscaled_gradient, T& first) const {
    const T gradient = scale * unscaled_gradient;
    first = math::multiply_add(momentum, first, gradient);
    return two_products(of_gradient, gradient, of_momentum, first);
  }
};

template <class T>
struct SgdRule {
  static constexpr int moments = 1;
  static constexpr bool in_place = false;
  Momentum<T> momentum;
  T step_size, decay;

  SgdRule(const OptimizerSettings& settings, const UpdateStep& step)
      : momentum(settings, step),
        step_size(static_cast<T>(step.learning_rate)),
        decay(static_cast<T>(step.learning_rate * step.weight_decay)) {}

  KOKKOS_INLINE_FUNCTION T operator()(T x, T gradient, T& first, T&) const {
    return x - two_products(step_size, momentum.direction(gradient, first), decay, x);
  }
};

/// The first part of Muon: replaces x, a gradient, by the direction.
template <class T>
struct DirectionRule {
  static constexpr int moments = 1;
  static constexpr bool in_place = true;
  Momentum<T> momentum;

  KOKKOS_INLINE_FUNCTION T operator()(T x, T, T& first, T&) const {
    return momentum.direction(x, first);
  }
};

template <class T>
struct LionRule {
  static constexpr int moments = 1;
  static constexpr bool in_place = false;
  T scale, beta1, beta2, rest1, rest2, step_size, decay;

  LionRule(const OptimizerSettings& settings, const UpdateStep& step)
      : scale(static_cast<T>(step.gradient_scale)),
        beta1(static_cast<T>(settings.beta1)),
        beta2(static_cast<T>(settings.beta2)),
        rest1(static_cast<T>(1.0 - settings.beta1)),
        rest2(static_cast<T>(1.0 - settings.beta2)),
        step_size(static_cast<T>(step.learning_rate)),
        decay(static_cast<T>(step.learning_rate * step.weight_decay)) {}

  KOKKOS_INLINE_FUNCTION T operator()(T x, T unscaled_gradient, T& first, T&) const {
    const T gradient = scale * unscaled_gradient;
    const T direction = two_products(beta1, first, rest1, gradient);
    first = two_products(beta2, first, rest2, gradient);
    const T sign = static_cast<T>((direction > T(0)) - (direction < T(0)));
    return x - two_products(step_size, sign, decay, x);
  }
};

/// The gradient's sign, which does not depend on gradient_scale.
template <class T>
struct SignRule {
  static constexpr int moments = 0;
  static constexpr bool in_place = false;
  T step_size, decay;

  explicit SignRule(const UpdateStep& step)
      : step_size(static_cast<T>(step.learning_rate)),
        decay(static_cast<T>(step.learning_rate * step.weight_decay)) {}

  KOKKOS_INLINE_FUNCTION T operator()(T x, T gradient, T&, T&) const {
    const T sign = static_cast<T>((gradient > T(0)) - (gradient < T(0)));
    return x - two_products(step_size, sign, decay, x);
  }
};

}  // namespace ostrakon::optim
