// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/step_guard.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/nearest.hpp>
#include <ostrakon/math/exact_sum.hpp>
#include <ostrakon/model/chain.hpp>
#include <ostrakon/optim/adamw.hpp>
#include <vector>

namespace ostrakon::train {
namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

optim::OutlierFilter::State filter_state(const checkpoint::Progress::Outliers& saved) {
  optim::OutlierFilter::State state;
  state.steps = saved.steps;
  state.loss = {saved.loss_mean, saved.loss_variance};
  state.gradient_norm = {saved.gradient_norm_mean, saved.gradient_norm_variance};
  return state;
}

}  // namespace

double mean_of(HostView<const std::int64_t*> sum, std::int64_t terms) {
  return math::exact_sum_non_finite(sum) > 0
             ? not_a_number
             : math::exact_sum_value(sum) / static_cast<double>(std::max<std::int64_t>(terms, 1));
}

StepSums read_sums(HostView<const std::int64_t*> sums, const StepTerms& terms, double loss_scale) {
  const auto losses = sums.range(0, math::exact_sum_limbs);
  const auto squares = sums.range(math::exact_sum_limbs, std::int64_t{2} * math::exact_sum_limbs);
  StepSums step;
  step.terms = terms;
  step.non_finite_losses = math::exact_sum_non_finite(losses);
  step.loss = mean_of(losses, terms.counted);
  step.gradient_is_finite = math::exact_sum_non_finite(squares) == 0;
  step.grad_norm = step.gradient_is_finite ? std::sqrt(math::exact_sum_value(squares)) /
                                                 loss_scale * terms.gradient_factor()
                                           : not_a_number;
  return step;
}

StepGuard::StepGuard(const StepSettings& settings, DType compute, bool updates_early)
    : stability_(settings.stability),
      clip_norm_(settings.optimizer.clip_norm),
      step_terms_(settings.step_terms()),
      term_name_(settings.loss.name),
      compute_dtype_(compute),
      reduce_dtype_(settings.policy.reduce),
      updates_early_(updates_early),
      scales_loss_(config::scales_loss(compute, settings.policy.reduce)),
      loss_scale_(settings.loss_scale) {
  if (stability_.outlier_threshold > 0.0)
    outliers_.emplace(
        optim::OutlierSettings{stability_.outlier_window, stability_.outlier_threshold});
}

double StepGuard::loss_scale() const { return scales_loss_ ? loss_scale_.value() : 1.0; }

StepDecision StepGuard::before_sums() const {
  StepDecision verdict;
  verdict.gradient_scale = 1.0 / loss_scale();
  return verdict;
}

StepDecision StepGuard::judge(std::int64_t step, const StepSums& sums) {
  const double scale = loss_scale();
  const bool loss_is_finite = sums.non_finite_losses == 0;
  StepDecision verdict = before_sums();
  // If only the scale is too large, the loss is finite and some gradient is not.
  if (scales_loss_ && loss_is_finite && loss_scale_.update(sums.gradient_is_finite) &&
      !sums.gradient_is_finite) {
    verdict.skip_update = verdict.overflowed = true;
    verdict.skipped =
        text("a gradient overflowed: the loss scale goes from ", static_cast<std::int64_t>(scale),
             " to ", static_cast<std::int64_t>(loss_scale_.value()));
    return verdict;
  }
  if (!loss_is_finite) {
    verdict.skip_update = true;
    if (stability_.skip_non_finite)
      verdict.skipped = loss_text(sums);
    else
      verdict.error = failure(text("step ", step), loss_text(sums) + changed_parameters(), true);
    return verdict;
  }
  if (!sums.gradient_is_finite) {
    verdict.skip_update = true;
    verdict.needs_diagnosis = true;
    return verdict;
  }
  if (updates_early_) return verdict;
  verdict.gradient_scale =
      optim::clip_coefficient(sums.grad_norm, clip_norm_) * sums.terms.gradient_factor() / scale;
  // A step in which nothing counts says nothing about what is usual.
  if (!outliers_ || sums.terms.counted == 0) return verdict;
  const optim::OutlierFilter::Verdict outlier = outliers_->judge(sums.loss, sums.grad_norm);
  verdict.skip_update = outlier.skip;
  if (outlier.skip) verdict.skipped = outlier_text(outlier);
  return verdict;
}

StepDecision StepGuard::judge_gradient(std::int64_t step, const std::string& diagnosis) const {
  StepDecision verdict;
  verdict.skip_update = true;
  // An early update can't be skipped.
  if (stability_.skip_non_finite && !updates_early_)
    verdict.skipped = diagnosis;
  else
    verdict.error = failure(text("step ", step), diagnosis + changed_parameters(), false);
  return verdict;
}

void StepGuard::finish(const StepDecision& verdict) {
  if (verdict.skip_update) return skipped_.add(verdict.skipped, verdict.overflowed);
  ++updates_;
  skipped_.clear();
}

std::string StepGuard::validation_error(std::int64_t step, const StepSums& sums) const {
  if (sums.non_finite_losses == 0 || stability_.skip_non_finite) return "";
  return failure(text("validation after step ", step), loss_text(sums), true);
}

std::string StepGuard::loss_text(const StepSums& sums) const {
  return text("the loss is not finite (", sums.non_finite_losses, " of ", step_terms_, " ",
              term_name_, ")");
}

std::string StepGuard::outlier_text(const optim::OutlierFilter::Verdict& verdict) const {
  const double threshold = stability_.outlier_threshold;
  std::vector<std::string> beyond;
  if (verdict.loss_score > threshold) beyond.push_back(text("the loss is ", verdict.loss_score));
  if (verdict.gradient_norm_score > threshold)
    beyond.push_back(text("the gradient norm is ", verdict.gradient_norm_score));
  return text("an outlier: ", config::join(beyond, " and ", " and "),
              " deviations above its mean, more than training.skip_outliers = ", threshold);
}

/// Returns the error message of a failed step, with advice. Before the first update no learning
/// rate helps.
std::string StepGuard::failure(const std::string& when, const std::string& what,
                               bool of_loss) const {
  std::vector<std::string> advice;
  if (updates_ > 0) advice.push_back("a lower optimizer.learning_rate");
  if (updates_ > 0 && of_loss) advice.push_back("a longer schedule.warmup_steps");
  if (of_loss && term_name_ == std::string(model::chain_losses))
    advice.push_back("check_gradients, which names a unit whose output is not finite");
  if (compute_dtype_ == DType::fp16)
    advice.push_back("precision.gather = bf16");
  else if (reduce_dtype_ == DType::fp16 && !of_loss)
    advice.push_back("precision.reduce = bf16");
  return text(when, ": ", what,
              advice.empty() ? "" : ". Try " + config::join(advice, ", ", " or "));
}

/// Returns a text on changed parameters after a failed step; "" if none has changed.
std::string StepGuard::changed_parameters() const {
  if (!updates_early_) return "";
  return "; parameters have changed, as updates on the host are overlapped with backward where "
         "optimizer.clip_norm = 0: weights are not written";
}

void StepGuard::save(checkpoint::Progress& progress) const {
  progress.updates = updates_;
  progress.skipped_in_a_row = skipped_.in_a_row();
  progress.loss_scale = loss_scale_.state().scale;
  progress.good_steps = loss_scale_.state().good_steps;
  if (!outliers_) return;
  const optim::OutlierFilter::State& state = outliers_->state();
  progress.outliers = {state.steps, state.loss.mean, state.loss.variance, state.gradient_norm.mean,
                       state.gradient_norm.variance};
}

void StepGuard::restore(const checkpoint::Progress& progress) {
  updates_ = progress.updates;
  // good_steps is 0 after a step that overflows.
  skipped_.restore(progress.skipped_in_a_row, scales_loss_ && progress.good_steps == 0);
  // Without fp16 there is nothing to scale, and other settings may not allow this scale.
  if (scales_loss_) loss_scale_.restore({progress.loss_scale, progress.good_steps});
  if (!outliers_) return;
  outliers_->restore(progress.outliers ? filter_state(*progress.outliers)
                                       : optim::OutlierFilter::State());
}

}  // namespace ostrakon::train
