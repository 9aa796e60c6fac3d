// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon::optim {

struct OutlierSettings {
  std::int64_t window = 128;  ///< steps that the running mean and deviation look back over, about
  double threshold = 6.0;     ///< deviations above the mean from which a step is skipped
};

/// Finds steps whose loss or gradient norm is an outlier among those before, so that they can be
/// skipped. Mean and variance are exponentially weighted with 2 / (window + 1) (plain means until
/// that many steps were seen); no step is skipped before window / 2 (at least 2) were seen. What
/// lies beyond the threshold enters the statistics as if it were on it: one outlier hardly moves
/// them, while a lasting change of level is accepted after a few dozen steps.
class OutlierFilter {
 public:
  /// Deviations are taken as at least this fraction of the mean, so that where a value has hardly
  /// moved, not every movement is one too many.
  static constexpr double smallest_deviation = 1e-3;

  struct Statistics {
    double mean = 0.0;
    double variance = 0.0;
  };
  /// What a checkpoint holds.
  struct State {
    std::int64_t steps = 0;  ///< seen
    Statistics loss;
    Statistics gradient_norm;
  };
  struct Verdict {
    bool skip = false;
    // Deviations above the mean of the steps before; 0 while too few were seen, infinite for what
    // is not finite.
    double loss_score = 0.0;
    double gradient_norm_score = 0.0;
  };

  /// Throws Error where window is below 2 or threshold is not positive.
  explicit OutlierFilter(const OutlierSettings& settings);

  /// Compares a step with those before it, then adds it to the statistics. Values that all ranks
  /// share give the same verdict on all ranks. What is not finite is skipped and not added.
  Verdict judge(double loss, double gradient_norm);

  const State& state() const { return state_; }
  /// Throws Error where a number is not finite or is negative where it cannot be.
  void restore(const State& state);

 private:
  OutlierSettings settings_;
  State state_;
};

}  // namespace ostrakon::optim
