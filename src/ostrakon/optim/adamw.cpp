// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/optim/adamw.hpp>

#include <algorithm>
#include <ostrakon/optim/optimizer.hpp>

namespace ostrakon::optim {

template <class T>
void adamw(const Exec& exec, View<T*> parameters, View<const T*> gradients, View<T*> first_moment,
           View<T*> second_moment, const AdamwStep& step) {
  OptimizerSettings settings;
  settings.beta1 = step.beta1;
  settings.beta2 = step.beta2;
  settings.epsilon = step.epsilon;
  UpdateStep update_step;
  update_step.step = step.step;
  update_step.learning_rate = step.learning_rate;
  update_step.weight_decay = step.weight_decay;
  update_step.gradient_scale = step.gradient_scale;
  update<T, T, OnDevice>(exec, OptimizerKind::adamw, settings, update_step, parameters, gradients,
                         first_moment, second_moment);
}

double clip_coefficient(double norm, double clip_norm) {
  if (clip_norm == 0.0) return 1.0;
  return std::min(1.0, clip_norm / (norm + 1e-6));
}

template void adamw<float>(const Exec&, View<float*>, View<const float*>, View<float*>,
                           View<float*>, const AdamwStep&);
template void adamw<double>(const Exec&, View<double*>, View<const double*>, View<double*>,
                            View<double*>, const AdamwStep&);

}  // namespace ostrakon::optim
