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

  explicit Coefficients(const AdamwStep& step)
      : scale(static_cast<T>(step.gradient_scale)),
        beta1(static_cast<T>(step.beta1)),
        beta2(static_cast<T>(step.beta2)),
        rest1(static_cast<T>(1.0 - step.beta1)),
        rest2(static_cast<T>(1.0 - step.beta2)),
        step_size(static_cast<T>(step.learning_rate / correction(step.beta1, step.step))),
        root_scale(static_cast<T>(1.0 / std::sqrt(correction(step.beta2, step.step)))),
        epsilon(static_cast<T>(step.epsilon)),
        decay(static_cast<T>(step.learning_rate * step.weight_decay)) {}

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
           std::int64_t count, const AdamwStep& step) {
  constexpr std::int64_t elements_per_item = math::per_item(4096);
  const Coefficients<T> coefficients(step);
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
                           const AdamwStep&);
template void adamw<double>(const Exec&, double*, const double*, double*, double*, std::int64_t,
                            const AdamwStep&);

}  // namespace ostrakon::optim
