// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/scaling/step_parts.hpp>
#include <vector>

namespace ostrakon::scaling {

/// Where the time of steps goes, as shares that add up to 1. With U the compute time of a rank, r*
/// the rank that computes longest in a step, S the step's seconds, and sums over steps:
struct Shares {
  double compute = 0.0;    ///< mean of U over ranks / S
  double imbalance = 0.0;  ///< (U of r* - mean of U) / S
  double communication =
      0.0;               ///< of r*, exposed: not time spent waiting for ranks that compute more
  double host = 0.0;     ///< of r*, exposed
  double copies = 0.0;   ///< of r*, exposed
  double waiting = 0.0;  ///< of r*
};

/// Adds up steps of one run.
class ShareSums {
 public:
  /// A step: the parts of all ranks, one at least, that computes something.
  void add(const std::vector<RankParts>& ranks);
  int steps() const { return steps_; }
  /// `steps()` is 1 at least.
  Shares shares() const;

 private:
  Shares sums_;  // in seconds
  int steps_ = 0;
};

/// An efficiency as a product, after the POP project's model (Rosas, Gimenez, Labarta: Scalability
/// prediction for fundamental performance factors, 2014). Each but the first is at most 1.
struct Factors {
  double compute_rate = 0.0;  ///< tokens that a rank processes in a second of computing
  double balance = 1.0;       ///< mean over ranks of the compute time / the longest one
  double overlap = 1.0;       ///< what is left of the step without exposed communication / the step
  double host = 1.0;          ///< what is left of that without exposed work of the host / that
  double copies = 1.0;        ///< what is left of that without exposed copies / that
  double bubbles = 1.0;  ///< what is left of that without waiting, the longest compute time / that
};

/// `tokens_per_rank`: of a step, all of them over the number of ranks. The product of the factors
/// is tokens_per_rank / step_seconds, whatever the shares. `shares.compute` is above 0.
Factors factors_of(const Shares& shares, double tokens_per_rank, double step_seconds);

/// Each factor over that of a base: their product is the efficiency relative to it.
Factors relative(const Factors& factors, const Factors& base);

double product(const Factors& factors);

}  // namespace ostrakon::scaling
