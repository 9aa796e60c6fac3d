// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/optim/loss_scale.hpp>
#include <ostrakon/optim/outlier_filter.hpp>
#include <ostrakon/train/skipped_steps.hpp>
#include <ostrakon/train/trainer_settings.hpp>
#include <string>

namespace ostrakon::train {

/// What all ranks know of a step once its sums are added over them.
struct StepSums {
  double loss = 0.0;                   ///< mean over the global batch; NaN where some is not finite
  double grad_norm = 0.0;              ///< before clipping; NaN where it is not finite
  std::int64_t non_finite_losses = 0;  ///< terms of the loss that are not finite
  bool gradient_is_finite = true;
};

/// The sums of losses, then of squared gradients (step_sums integers, see
/// math/exact_sum.hpp), as doubles. `terms`: of the loss of a global batch; `loss_scale`: with
/// which gradients were computed.
StepSums read_sums(HostView<const std::int64_t*> sums, std::int64_t terms, double loss_scale);

/// Whether losses are scaled before backward: where fp16 is computed with or sent.
constexpr bool scales_loss(DType compute, DType reduce) {
  return compute == DType::fp16 || reduce == DType::fp16;
}

/// What becomes of a step.
struct Verdict {
  bool skip_update = false;      ///< nothing is to be updated
  double gradient_scale = 1.0;   ///< else: of gradients as they are updated with: clipping, and the
                                 ///< loss scale undone
  std::string skipped;           ///< why the update is skipped; empty where that is to be found out
  bool overflowed = false;       ///< skipped as the loss scale was too large, which is lower now
  bool needs_diagnosis = false;  ///< where the gradient is not finite: see judge_gradient
  std::string error;             ///< why the run has to end; empty: it continues
};

/// Decides from a step's sums whether its update is made, and how gradients are scaled. It keeps
/// what that depends on from step to step: the loss scale, the statistics of outliers and the
/// number of updates. It does not communicate: all ranks see the same sums and decide alike.
class StepGuard {
 public:
  /// `compute`: dtype of parameters and activations. `updates_early`: before sums are known.
  StepGuard(const TrainerSettings& settings, DType compute, bool updates_early);

  bool updates_early() const { return updates_early_; }

  /// What the loss of the next step is multiplied with before backward: 1 without fp16.
  double loss_scale() const;
  /// Updates that were made so far.
  std::int64_t updates() const { return updates_; }
  /// The steps since the last update.
  const SkippedSteps& skipped() const { return skipped_; }

  /// The verdict that holds until a step's sums are known: with early updates, which do not wait
  /// for them, the one that they are made with.
  Verdict before_sums() const;
  /// Judges step `step`, once a step. Changes the loss scale and the statistics of outliers.
  Verdict judge(std::int64_t step, const StepSums& sums);
  /// Where judge() says that it needs a diagnosis: continues with it, "the gradient of head is not
  /// finite ...".
  Verdict judge_gradient(std::int64_t step, const std::string& diagnosis) const;
  /// Says that the step was not an error.
  void finish(const Verdict& verdict);

  /// Why a run has to end after a validation with these sums; empty: it continues.
  std::string validation_error(std::int64_t step, const StepSums& sums) const;

  /// Writes its state into a checkpoint's progress, and takes it from there. restore() throws Error
  /// where it does not fit the settings.
  void save(checkpoint::Progress& progress) const;
  void restore(const checkpoint::Progress& progress);

 private:
  std::string loss_text(const StepSums& sums) const;
  std::string outlier_text(const optim::OutlierFilter::Verdict& verdict) const;
  std::string failure(const std::string& when, const std::string& what, bool of_loss) const;
  std::string changed_parameters() const;

  StabilitySettings settings_;
  double clip_norm_;
  std::int64_t step_terms_;
  const char* term_name_;
  DType compute_, reduce_;
  bool updates_early_;
  bool scales_loss_;
  optim::LossScale loss_scale_;
  std::optional<optim::OutlierFilter> outliers_;
  std::int64_t updates_ = 0;
  SkippedSteps skipped_;
};

}  // namespace ostrakon::train
