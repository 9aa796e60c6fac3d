// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/runtime/arena.hpp>
#include <string>

namespace ostrakon::train {

/// Returns the best rate of matrix products, in floating-point operations per second, of many
/// measured within about `budget` seconds; up to three times as long while the rate still improves.
///
/// `seconds_of(side)` multiplies two side x side matrices and returns how long it took. Sides are
/// powers of two from 256 to `largest_side` (which is the only one where it is smaller), up to the
/// first whose product takes some milliseconds. Each side gets the same share of the time, so most
/// windows are short: a scheduler that lets others run every few milliseconds leaves some of them
/// undisturbed.
double best_product_rate(std::int64_t largest_side, double budget,
                         const std::function<double(std::int64_t side)>& seconds_of);

/// The peak rate of a rank, for MFU: the best rate that was seen.
///
/// A measured peak may be too low, for example if the machine was busy. Steps that are faster than
/// it raise it, and MFU is an upper bound from then on. Rates are in floating-point operations per
/// second.
class PeakRate {
 public:
  enum class Origin {
    given,    ///< given by runtime.peak_gflops
    measured  ///< at start
  };
  /// `rate` must be positive.
  PeakRate(double rate, Origin origin) : origin_(origin), first_(rate), best_(rate) {}

  /// MFU of a step at this rate: at most 1, as a faster step raises the peak.
  double utilization(double step_rate);
  /// Notes a later measurement.
  void measure_again(double rate);

  Origin origin() const { return origin_; }
  double rate() const { return best_; }
  /// Whether a step has reached the known peak: then MFU is an upper bound.
  bool is_uncertain() const { return best_ > first_ && !measured_again_; }
  /// A line on how well the peak is known, without an end of line.
  std::string describe() const;

 private:
  Origin origin_;
  double first_;
  double best_;
  bool measured_again_ = false;  ///< whether the best rate is from a later measurement
};

/// The peak rate that runtime.peak_gflops gives; if it is 0, the one that `measure` finds.
PeakRate peak_rate(double peak_gflops, const std::function<double()>& measure);

/// Measures the best rate of matrix products in `dtype` that this rank reaches within `memory`, in
/// floating-point operations per second. Takes about `seconds`. Overwrites `memory`, which is the
/// device's.
double measure_product_rate(DType dtype, const runtime::Arena& memory, double seconds);

}  // namespace ostrakon::train
