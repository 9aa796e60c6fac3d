// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon::optim {

struct OutlierSettings {
  std::int64_t window = 128;  ///< approximate number of steps in the running mean and deviation
  double threshold = 6.0;     ///< deviations above the mean from which a step is skipped
};

/// Finds steps whose loss or gradient norm is an outlier among earlier steps, so that they can be
/// skipped. Mean and variance are exponentially weighted with 2 / (window + 1) (plain means for the
/// first steps); no step is skipped before window / 2 (at least 2) were seen. A value above the
/// threshold enters the statistics as if it were at the threshold: one outlier hardly moves them,
/// while a lasting change of level is accepted after a few dozen steps.
class OutlierFilter {
 public:
  /// Deviations are at least this fraction of the mean, so that small changes of a nearly constant
  /// value are no outliers.
  static constexpr double smallest_deviation = 1e-3;

  struct Statistics {
    double mean = 0.0;
    double variance = 0.0;
  };
  /// State in a checkpoint.
  struct State {
    std::int64_t steps = 0;  ///< number of steps seen
    Statistics loss;
    Statistics gradient_norm;
  };
  struct Verdict {
    bool skip = false;
    // Deviations above the mean of the steps before; 0 while too few were seen, infinite for a
    // value that is not finite.
    double loss_score = 0.0;
    double gradient_norm_score = 0.0;
  };

  /// Throws Error if window is below 2 or threshold is not positive.
  explicit OutlierFilter(const OutlierSettings& settings);

  /// Compares a step with those before it, then adds it to the statistics. The verdict is the same
  /// on all ranks if the values are. A step with a value that is not finite is skipped and not
  /// added.
  Verdict judge(double loss, double gradient_norm);

  const State& state() const { return state_; }
  /// Throws Error if a number is not finite, or negative where it can't be.
  void restore(const State& state);

 private:
  OutlierSettings settings_;
  State state_;
};

}  // namespace ostrakon::optim
