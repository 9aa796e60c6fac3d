// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/cross_entropy/logits.hpp>

namespace ostrakon::math {

/// What gradients of a row's logits consist of: softmax * the softmax's factor - the target's one
/// for the target - the one that is the same everywhere.
template <class C>
struct LogitFactors {
  C softmax, target, everywhere;
};

/// A LossForm in the type of losses, for kernels. Without smoothing and z-loss it changes no bit of
/// a cross-entropy and its gradients.
template <class C>
class RowLoss {
 public:
  explicit RowLoss(const LossForm& form)
      : smoothing_(static_cast<C>(form.smoothing)),
        share_(static_cast<C>(form.smoothing / static_cast<double>(form.words))),
        z_loss_(static_cast<C>(form.z_loss)) {}

  KOKKOS_INLINE_FUNCTION bool smooths() const { return smoothing_ > C(0); }

  /// log_total: the log of the sum of exponentials relative to the largest logit; sum: that of all
  /// logits, which only a smoothed loss reads.
  KOKKOS_INLINE_FUNCTION C loss(C largest, C log_total, C at_target, C sum) const {
    C all = (largest - at_target) + log_total;
    if (smooths()) all += smoothing_ * at_target - share_ * sum;
    const C log_sum = largest + log_total;
    if (z_loss_ > C(0)) all += z_loss_ * log_sum * log_sum;
    return all;
  }

  /// Returns the factors of `times` * the loss.
  KOKKOS_INLINE_FUNCTION LogitFactors<C> factors(C times, C log_sum) const {
    return {times * (C(1) + C(2) * z_loss_ * log_sum), times * (C(1) - smoothing_), times * share_};
  }

 private:
  C smoothing_, share_, z_loss_;
};

}  // namespace ostrakon::math
