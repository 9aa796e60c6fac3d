// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/optim/learning_rate.hpp>

#include <algorithm>
#include <cmath>

namespace ostrakon::optim {

double learning_rate(const LearningRateSchedule& settings, double peak, std::int64_t step,
                     std::int64_t steps) {
  const std::int64_t warmup = settings.warmup_steps;
  if (step <= warmup) return peak * (static_cast<double>(step) / static_cast<double>(warmup));
  if (settings.tail == Tail::constant) return peak;
  if (settings.tail == Tail::inverse_square_root) {
    // Without a warm-up the formula is used as if the warm-up had one step.
    const double reached = static_cast<double>(std::max<std::int64_t>(warmup, 1));
    return peak * std::sqrt(reached / static_cast<double>(step));
  }
  const std::int64_t start = settings.tail == Tail::warmup_stable_decay
                                 ? std::max(warmup, steps - settings.decay_steps)
                                 : warmup;
  if (step <= start) return peak;
  // Decay progress: 0 at the last step of the plateau, 1 at the run's last step.
  const double progress =
      step >= steps ? 1.0 : static_cast<double>(step - start) / static_cast<double>(steps - start);
  constexpr double pi = 3.141592653589793;
  const double height =
      settings.tail == Tail::cosine ? 0.5 * (1.0 + std::cos(pi * progress)) : 1.0 - progress;
  return peak * std::fma(1.0 - settings.final_fraction, height, settings.final_fraction);
}

}  // namespace ostrakon::optim
