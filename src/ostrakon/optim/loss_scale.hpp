// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon::optim {

/// All powers of two, so that scaling rounds nothing.
struct LossScaleSettings {
  double initial = 65536.0;
  double smallest = 1.0;
  double largest = 16777216.0;          ///< 2^24
  std::int64_t growth_interval = 2000;  ///< good steps in a row after which the scale doubles
};

/// What the loss is multiplied with before backward in fp16, so that small gradients do not vanish,
/// and their sums divided by after (Micikevicius et al. 2018): doubles after growth_interval good
/// steps in a row, halves on a step whose gradient is not finite, which is then skipped. All ranks
/// keep equal copies, as each decides from the sums that all share.
class LossScale {
 public:
  /// What a checkpoint holds.
  struct State {
    double scale;
    std::int64_t good_steps;  ///< since the scale last changed
  };

  /// Throws Error where the settings are no powers of two in order, or the interval is below 1.
  explicit LossScale(const LossScaleSettings& settings);

  double value() const { return state_.scale; }

  /// After each step: whether its loss and gradient were finite on all ranks. Returns false where
  /// the scale was to be halved but is the smallest: then it is not the scale that is to blame.
  bool update(bool finite);

  const State& state() const { return state_; }
  /// Throws Error where the state does not fit the settings.
  void restore(const State& state);

 private:
  LossScaleSettings settings_;
  State state_;
};

}  // namespace ostrakon::optim
