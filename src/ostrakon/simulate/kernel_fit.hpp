// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/plan/ir/kernel_work.hpp>
#include <ostrakon/simulate/machine.hpp>
#include <string>
#include <vector>

namespace ostrakon::simulate {

/// Measured actions of one kind.
struct KernelSample {
  std::string name;
  double seconds = 0.0;
  double share = 0.0;  ///< share of the step's time
  double flops = 0.0;
  plan::KernelWork work;
  bool is_backward = false;
};

/// Says which kernels have a launch time besides their work: matrix products alone, as on a host;
/// or all, as on a device to which kernels are submitted.
enum class Launches { of_products, of_all };

/// Upper bounds of a machine's rates, for rates that samples do not determine.
struct RateLimits {
  double products = 0.0;              ///< floating-point operations per second
  double row_bytes_per_second = 0.0;  ///< rate of kernels without products
};

/// Fits a machine's numbers, in a dtype, to samples: least squares of relative errors of seconds,
/// weighted by the samples' share of steps. No number is below 0.
class KernelFit {
 public:
  /// Fits with the given widths of KernelRates. If samples do not determine the time of a part in
  /// backward, it is taken to be as long as in forward.
  KernelFit(const std::vector<KernelSample>& samples, double product_width, double attention_width,
            Launches launches = Launches::of_products);

  /// Whether samples determine the rate of products, or of kernels without products: whether it
  /// explains more of some sample's time than times vary.
  bool tells_products() const { return is_told_[products]; }
  bool tells_rows() const { return is_told_[rows]; }
  /// Uses the limits for rates that samples do not determine, and fits the other numbers to the
  /// remaining time. Afterwards set() returns the limit for such a rate, and tells_...() is still
  /// false.
  void take_limits(const std::vector<KernelSample>& samples, const RateLimits& limits);

  /// Returns the time by the fitted numbers.
  double seconds(const KernelSample& sample) const;
  double error() const { return error_; }  ///< sum of weighted squares

  /// Sets the fitted rates; 0 for those that samples do not determine.
  void set(ComputeRates& rates) const;

 private:
  /// Parts of an action whose forward and backward times may differ.
  static constexpr std::size_t products = 0, attention = 1, rows = 2, parts = 3;

  std::vector<double> terms(const KernelSample& sample) const;
  void fit(const std::vector<KernelSample>& samples);
  void fit_passes(const std::vector<KernelSample>& samples);
  bool explains_any(const std::vector<KernelSample>& samples, std::size_t part) const;

  KernelRates widths_;
  Launches launches_;
  bool is_told_[parts] = {true, true, true};
  double limits_[parts] = {};  ///< seconds per unit of amount, if taken from limits; else 0
  bool has_passes_[parts] = {true, true, true};  ///< false: backward takes as long as forward
  std::vector<double> coefficients_;             ///< seconds per unit of each of terms()
  double error_ = 0.0;
};

/// Returns the fit with the least error over a set of widths.
KernelFit fit_kernels(const std::vector<KernelSample>& samples,
                      Launches launches = Launches::of_products);

/// A measured step of several ranks.
struct StepSample {
  double seconds = 0.0;
  double simulated = 0.0;    ///< simulated seconds with that number of ranks, without waits
  double collectives = 0.0;  ///< number of collectives per rank
};

/// Time that ranks wait for each other.
struct Waits {
  double of_collective = 0.0;  ///< seconds per collective
  double of_step = 0.0;        ///< relative to the step without these waits: 0.1 is 10 %
};

/// Returns the waits with the least squares of relative errors of steps. Neither is below 0.
Waits fit_waits(const std::vector<StepSample>& samples);

}  // namespace ostrakon::simulate
