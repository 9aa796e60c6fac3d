// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon::optim {

/// All scales are powers of two, so that scaling rounds nothing.
struct LossScaleSettings {
  double initial = 65536.0;
  double smallest = 1.0;
  double largest = 16777216.0;          ///< 2^24
  std::int64_t growth_interval = 2000;  ///< consecutive finite steps after which the scale doubles
};

/// Dynamic loss scale for fp16 (Micikevicius et al. 2018): the loss is multiplied by it before
/// backward, so that small gradients do not underflow, and the summed gradients are divided by it.
/// It doubles after growth_interval finite steps in a row, and halves on a step whose gradient is
/// not finite, which is then skipped. All ranks keep equal copies, as each decides from the same
/// reduced values.
class LossScale {
 public:
  /// State in a checkpoint.
  struct State {
    double scale;
    std::int64_t good_steps;  ///< steps since the scale last changed
  };

  /// Throws Error if the settings are not ascending powers of two, or the interval is below 1.
  explicit LossScale(const LossScaleSettings& settings);

  double value() const { return state_.scale; }

  /// To be called after each step with whether its loss and gradient were finite on all ranks.
  /// Returns false if the scale should be halved but is the smallest: then the scale is not the
  /// cause.
  bool update(bool finite);

  const State& state() const { return state_; }
  /// Throws Error if the state does not fit the settings.
  void restore(const State& state);

 private:
  LossScaleSettings settings_;
  State state_;
};

}  // namespace ostrakon::optim
