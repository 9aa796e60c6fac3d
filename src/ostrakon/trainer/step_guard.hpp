// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/optim/loss_scale.hpp>
#include <ostrakon/optim/outlier_filter.hpp>
#include <ostrakon/trainer/state/skipped_steps.hpp>
#include <ostrakon/trainer/trainer_settings.hpp>
#include <string>

namespace ostrakon::train {

/// The terms of a global batch's loss, and how many of them count.
struct StepTerms {
  std::int64_t all = 1;
  std::int64_t counted = 1;

  /// What gradients are multiplied by: they are computed as those of a mean over all terms, and
  /// become those of the mean over the ones that count. Exactly 1 if all count, and if none does,
  /// as gradients are 0 then.
  double gradient_factor() const {
    return counted > 0 ? static_cast<double>(all) / static_cast<double>(counted) : 1.0;
  }
};

/// The results of a step that all ranks know after its sums are added over them.
struct StepSums {
  double loss = 0.0;       ///< mean over the terms that count; NaN if any is not finite,
                           ///< 0 if none counts
  double grad_norm = 0.0;  ///< of that mean's gradient, before clipping; NaN if it is
                           ///< not finite
  std::int64_t non_finite_losses = 0;  ///< terms of the loss that are not finite
  bool gradient_is_finite = true;
  StepTerms terms = {};
};

/// The mean of such a sum over so many terms; NaN if any is not finite, 0 if there are none.
double mean_of(HostView<const std::int64_t*> sum, std::int64_t terms);

/// Returns the sums of losses and of squared gradients (step_sums integers, see math/exact_sum.hpp)
/// as doubles. `loss_scale`: the scale with which gradients were computed.
StepSums read_sums(HostView<const std::int64_t*> sums, const StepTerms& terms, double loss_scale);

/// The decision about a step's update.
struct StepDecision {
  bool skip_update = false;      ///< whether nothing is updated
  double gradient_scale = 1.0;   ///< factor of gradients in the update: clipping, the inverse loss
                                 ///< scale, and StepTerms::gradient_factor()
  std::string skipped;           ///< why the update is skipped; empty if that has to be diagnosed
  bool overflowed = false;       ///< whether it is skipped as the loss scale was too large, which
                                 ///< is lower now
  bool needs_diagnosis = false;  ///< whether the gradient is not finite: see judge_gradient
  std::string error;             ///< why the run has to end; empty: it continues
};

/// Decides from a step's sums whether its update is made, and how gradients are scaled. It keeps
/// the state that this depends on: the loss scale, the statistics of outliers and the number of
/// updates. It does not communicate: all ranks see the same sums and decide alike.
class StepGuard {
 public:
  /// `compute`: dtype of parameters and activations. `updates_early`: before sums are known.
  StepGuard(const StepSettings& settings, DType compute, bool updates_early);

  bool updates_early() const { return updates_early_; }

  /// The factor of the loss of the next step before backward: 1 without fp16.
  double loss_scale() const;
  /// The number of updates so far.
  std::int64_t updates() const { return updates_; }
  /// The steps since the last update.
  const SkippedSteps& skipped() const { return skipped_; }

  /// The verdict until a step's sums are known; early updates, which do not wait for them, use it.
  StepDecision before_sums() const;
  /// Judges step `step`, once a step. Changes the loss scale and the statistics of outliers.
  StepDecision judge(std::int64_t step, const StepSums& sums);
  /// Continues with the diagnosis that judge() asked for: "the gradient of head is not finite ...".
  StepDecision judge_gradient(std::int64_t step, const std::string& diagnosis) const;
  /// Notes that the step was not an error.
  void finish(const StepDecision& verdict);

  /// Returns why a run has to end after a validation with these sums; empty: it continues.
  std::string validation_error(std::int64_t step, const StepSums& sums) const;

  /// Writes its state to a checkpoint's progress, and restores it. restore() throws Error where the
  /// progress does not fit the settings.
  void save(checkpoint::Progress& progress) const;
  void restore(const checkpoint::Progress& progress);

 private:
  std::string loss_text(const StepSums& sums) const;
  std::string outlier_text(const optim::OutlierFilter::Verdict& verdict) const;
  std::string failure(const std::string& when, const std::string& what, bool of_loss) const;
  std::string changed_parameters() const;

  StabilitySettings stability_;
  double clip_norm_;
  std::int64_t step_terms_;
  const char* term_name_;
  DType compute_dtype_, reduce_dtype_;
  bool updates_early_;
  bool scales_loss_;
  optim::LossScale loss_scale_;
  std::optional<optim::OutlierFilter> outliers_;
  std::int64_t updates_ = 0;
  SkippedSteps skipped_;
};

}  // namespace ostrakon::train
