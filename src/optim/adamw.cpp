// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <ostrakon/math/work_items.hpp>
#include <ostrakon/optim/adamw.hpp>

namespace ostrakon::optim {

namespace {

/// What one step multiplies with: computed in double, once, on the host.
template <class T>
struct Coefficients {
  T scale, beta1, beta2, rest1, rest2, step_size, root_scale, epsilon, decay;

  Coefficients(const AdamwSettings& settings, std::int64_t step, double learning_rate,
               double weight_decay, double gradient_scale)
      : scale(static_cast<T>(gradient_scale)),
        beta1(static_cast<T>(settings.beta1)),
        beta2(static_cast<T>(settings.beta2)),
        rest1(static_cast<T>(1.0 - settings.beta1)),
        rest2(static_cast<T>(1.0 - settings.beta2)),
        step_size(static_cast<T>(learning_rate / correction(settings.beta1, step))),
        root_scale(static_cast<T>(1.0 / std::sqrt(correction(settings.beta2, step)))),
        epsilon(static_cast<T>(settings.epsilon)),
        decay(static_cast<T>(learning_rate * weight_decay)) {}

  static double correction(double beta, std::int64_t step) {
    return 1.0 - std::pow(beta, static_cast<double>(step));
  }
};

/// One run of elements; the four arrays do not overlap.
template <class T>
KOKKOS_INLINE_FUNCTION void update(const Coefficients<T>& c, T* __restrict__ parameters,
                                   const T* __restrict__ gradients, T* __restrict__ first_moment,
                                   T* __restrict__ second_moment, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T gradient = c.scale * gradients[i];
    const T first = c.beta1 * first_moment[i] + c.rest1 * gradient;
    const T second = c.beta2 * second_moment[i] + c.rest2 * (gradient * gradient);
    first_moment[i] = first;
    second_moment[i] = second;
    const T direction = first / (math::sqrt(second) * c.root_scale + c.epsilon);
    parameters[i] -= c.step_size * direction + c.decay * parameters[i];
  }
}

}  // namespace

template <class T>
void adamw(const Exec& exec, T* parameters, const T* gradients, T* first_moment, T* second_moment,
           std::int64_t count, std::int64_t step, double learning_rate, double weight_decay,
           double gradient_scale, const AdamwSettings& settings) {
  constexpr std::int64_t elements_per_item = math::per_item(4096);
  const Coefficients<T> coefficients(settings, step, learning_rate, weight_decay, gradient_scale);
  math::for_each_item(
      exec, "adamw", math::items_for(count, elements_per_item), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t begin = item * elements_per_item;
        update(coefficients, parameters + begin, gradients + begin, first_moment + begin,
               second_moment + begin, math::smaller(elements_per_item, count - begin));
      });
}

double clip_coefficient(double norm, double clip_norm) {
  if (clip_norm == 0.0) return 1.0;
  return std::min(1.0, clip_norm / (norm + 1e-6));
}

template void adamw<float>(const Exec&, float*, const float*, float*, float*, std::int64_t,
                           std::int64_t, double, double, double, const AdamwSettings&);
template void adamw<double>(const Exec&, double*, const double*, double*, double*, std::int64_t,
                            std::int64_t, double, double, double, const AdamwSettings&);

}  // namespace ostrakon::optim
