// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/names.hpp>

namespace ostrakon::optim {

enum class Tail { cosine, linear, constant, warmup_stable_decay, inverse_square_root };
constexpr Named<Tail> tail_names[] = {{Tail::cosine, "cosine"},
                                      {Tail::linear, "linear"},
                                      {Tail::constant, "constant"},
                                      {Tail::warmup_stable_decay, "warmup_stable_decay"},
                                      {Tail::inverse_square_root, "inverse_square_root"}};
constexpr const char* name(Tail tail) { return name_in(tail_names, tail); }

/// Linear warm-up to the peak over `warmup_steps`, then `tail`:
/// cosine, linear       down to final_fraction * peak at the last step
/// constant             stays at the peak
/// warmup_stable_decay  stays at the peak, then linearly over the last decay_steps down to
///                      final_fraction * peak (Hu et al. 2024); a run that is extended resumes
///                      from any step of the plateau
/// inverse_square_root  peak * sqrt(warmup_steps / step), without an end (Vaswani et al. 2017)
struct LearningRateSchedule {
  Tail tail = Tail::cosine;
  std::int64_t warmup_steps = 0;
  double final_fraction = 0.1;
  std::int64_t decay_steps = 0;  ///< for warmup_stable_decay; at most the steps after the warm-up
};

/// Returns the learning rate of `step` of `steps`, counted from 1. The warm-up, including its last
/// step, is peak * step / warmup_steps.
double learning_rate(const LearningRateSchedule& settings, double peak, std::int64_t step,
                     std::int64_t steps);

}  // namespace ostrakon::optim
