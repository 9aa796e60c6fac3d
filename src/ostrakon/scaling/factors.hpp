// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/scaling/step_parts.hpp>
#include <vector>

namespace ostrakon::scaling {

/// How the time of steps is used, as shares that add up to 1. U is the compute time of a rank, r*
/// the rank with the longest U in a step, S the step's seconds; numerators and denominators are
/// summed over steps.
struct Shares {
  double compute = 0.0;        ///< mean of U over ranks / S
  double imbalance = 0.0;      ///< (U of r* - mean of U) / S
  double communication = 0.0;  ///< exposed, on r*: without time spent waiting for ranks that
                               ///< compute longer
  double host = 0.0;           ///< exposed, on r*
  double copies = 0.0;         ///< exposed, on r*
  double waiting = 0.0;        ///< waiting time of r*
};

/// Sums the shares of the steps of one run.
class ShareSums {
 public:
  /// Adds a step: the parts of all ranks, of which at least one computes.
  void add(const std::vector<RankParts>& ranks);
  int steps() const { return steps_; }
  /// Requires that steps() is at least 1.
  Shares shares() const;

 private:
  Shares sums_;  // sums in seconds
  int steps_ = 0;
};

/// An efficiency as a product, after the POP project's model (Rosas, Gimenez, Labarta: Scalability
/// prediction for fundamental performance factors, 2014). All factors but the first are at most 1.
struct Factors {
  double compute_rate = 0.0;  ///< tokens per rank and second of compute time
  double balance = 1.0;       ///< mean over ranks of the compute time / the longest one
  double overlap = 1.0;       ///< (step - exposed communication) / step
  double host = 1.0;          ///< remaining time without exposed work of the host / remaining time
  double copies = 1.0;        ///< remaining time without exposed copies / remaining time
  double bubbles = 1.0;       ///< longest compute time / remaining time, which also has waiting
};

/// Returns the factors. `tokens_per_rank`: tokens of a step over the number of ranks. The product
/// of the factors is tokens_per_rank / step_seconds, for any shares. `shares.compute` must be above
/// 0.
Factors factors_of(const Shares& shares, double tokens_per_rank, double step_seconds);

/// Divides each factor by that of a base: the product is the efficiency relative to the base.
Factors relative(const Factors& factors, const Factors& base);

double product(const Factors& factors);

}  // namespace ostrakon::scaling
