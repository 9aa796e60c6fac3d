// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/plan/kernel_work.hpp>
#include <ostrakon/simulate/machine.hpp>
#include <string>
#include <vector>

namespace ostrakon::simulate {

/// Actions of one kind that were measured.
struct KernelSample {
  std::string name;
  double seconds = 0.0;
  double share = 0.0;  ///< of the step that they are part of
  double flops = 0.0;
  plan::KernelWork work;
  bool is_backward = false;
};

/// Says which kernels take a time besides their work: matrix products, as on a host; or, as on a
/// device that kernels are submitted to, all.
enum class Launches { of_products, of_all };

/// Rates that a machine can't exceed, for those that samples do not tell.
struct RateLimits {
  double products = 0.0;              ///< floating-point operations per second
  double row_bytes_per_second = 0.0;  ///< of kernels without products
};

/// Numbers of a machine, in a dtype, from samples: least squares of seconds relative to the
/// measured ones, weighted by the samples' share of steps. No number is below 0.
class KernelFit {
 public:
  /// With the widths of KernelRates given. Where samples do not tell how long backward takes in one
  /// of its parts, that takes as long as forward's.
  KernelFit(const std::vector<KernelSample>& samples, double product_width, double attention_width,
            Launches launches = Launches::of_products);

  /// Whether samples tell the rate of products, or of kernels without them: whether it explains
  /// more of the time of some sample than times vary by.
  bool tells_products() const { return is_told_[products]; }
  bool tells_rows() const { return is_told_[rows]; }
  /// Takes the limits for the rates that samples do not tell, and fits the others to the time that
  /// this leaves. After it a limit is what set() says of such a rate, which samples still do not
  /// tell.
  void take_limits(const std::vector<KernelSample>& samples, const RateLimits& limits);

  /// What the fitted numbers say.
  double seconds(const KernelSample& sample) const;
  double error() const { return error_; }  ///< sum of weighted squares

  /// The rates that these are; 0 where samples say none.
  void set(ComputeRates& rates) const;

 private:
  /// What both passes may take differently.
  static constexpr std::size_t products = 0, attention = 1, rows = 2, parts = 3;

  std::vector<double> terms(const KernelSample& sample) const;
  void fit(const std::vector<KernelSample>& samples);
  void fit_passes(const std::vector<KernelSample>& samples);
  bool explains_any(const std::vector<KernelSample>& samples, std::size_t part) const;

  KernelRates widths_;
  Launches launches_;
  bool is_told_[parts] = {true, true, true};
  double limits_[parts] = {};  ///< seconds that are taken for what counts, where not told; or 0
  bool has_passes_[parts] = {true, true, true};  ///< else backward takes as long as forward
  std::vector<double> coefficients_;  ///< of terms(): seconds for each of what they count
  double error_ = 0.0;
};

/// With those widths, of some, that have the least error.
KernelFit fit_kernels(const std::vector<KernelSample>& samples,
                      Launches launches = Launches::of_products);

/// A step of several ranks that was measured.
struct StepSample {
  double seconds = 0.0;
  double simulated = 0.0;    ///< seconds, with the number of ranks without a wait
  double collectives = 0.0;  ///< of a rank
};

/// What ranks wait for each other.
struct Waits {
  double of_collective = 0.0;  ///< seconds of each
  double of_step = 0.0;        ///< of what the step takes besides: 0.1 is 10 %
};

/// Least squares of relative errors of steps. Neither number is below 0.
Waits fit_waits(const std::vector<StepSample>& samples);

}  // namespace ostrakon::simulate
