// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon::optim {

enum class Tail { cosine, linear, constant };

/// Linear warm-up to the peak over `warmup_steps`, then `tail` down to final_fraction * peak at the
/// last step (constant: stays at the peak).
struct ScheduleSettings {
  Tail tail = Tail::cosine;
  std::int64_t warmup_steps = 0;
  double final_fraction = 0.1;
};

/// Rate of `step`, counted from 1, of `steps`: peak * step / warmup_steps up to and with the
/// warm-up's last step.
double learning_rate(const ScheduleSettings& settings, double peak, std::int64_t step,
                     std::int64_t steps);

}  // namespace ostrakon::optim
