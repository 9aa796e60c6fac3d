// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/view.hpp>

namespace ostrakon::optim {

/// AdamW (Loshchilov & Hutter 2019): Adam with bias correction and decoupled weight decay
/// learning_rate * weight_decay * parameter.
struct AdamwSettings {
  double learning_rate = 3e-4;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double clip_norm = 1.0;  ///< largest global gradient norm; 0: no clipping
};

/// Arguments of one AdamW step.
struct AdamwStep {
  std::int64_t step = 1;  ///< counts from 1
  double learning_rate = 0.0;
  double weight_decay = 0.0;    ///< 0 for parameters that do not decay
  double gradient_scale = 1.0;  ///< multiplies the gradient first (clipping)
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
};

/// Applies one step to all four arrays, which have equal sizes and do not overlap.
template <class T>
void adamw(const Exec& exec, View<T*> parameters, View<const T*> gradients, View<T*> first_moment,
           View<T*> second_moment, const AdamwStep& step);

/// Returns min(1, clip_norm / (norm + 1e-6)); 1 if clip_norm is 0.
double clip_coefficient(double norm, double clip_norm);

}  // namespace ostrakon::optim
