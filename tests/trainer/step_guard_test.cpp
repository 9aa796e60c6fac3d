// SPDX-License-Identifier: Apache-2.0
// What becomes of a step, from made-up sums: no ranks, no arrays.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/exact_sum.hpp>
#include <ostrakon/model/chain.hpp>
#include <ostrakon/trainer/dispatch_dtype.hpp>
#include <ostrakon/trainer/step_guard.hpp>
#include <string>
#include <vector>

#include "support/messages.hpp"

namespace ostrakon::train {
namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// A step of 2 x 8 tokens without clipping.
StepSettings settings_of_tests() {
  StepSettings settings;
  settings.global_batch_size = 2;
  settings.loss = {1, 8, "tokens"};
  settings.optimizer.clip_norm = 0.0;
  return settings;
}

StepSums good_sums(double loss = 2.0, double norm = 4.0) { return {loss, norm, 0, true}; }
StepSums bad_loss() { return {not_a_number, 1.0, 3, true}; }
StepSums bad_gradient() { return {2.0, not_a_number, 0, false}; }

TEST(StepGuard, ReadsSumsOfLossesAndSquares) {
  std::vector<std::int64_t> sums(step_sums);
  const auto losses = host_view(sums).range(0, math::exact_sum_limbs);
  const auto squares = host_view(sums).range(math::exact_sum_limbs, 2 * math::exact_sum_limbs);
  const auto add = [](const std::vector<float>& roots, HostView<std::int64_t*> sum) {
    math::add_squares<float, OnHost>(math::CallingThread(), host_view(roots), sum);
  };
  add({1.0f, 3.0f}, losses);   // 1 + 9
  add({6.0f, 8.0f}, squares);  // 36 + 64
  StepSums step = read_sums(host_view(sums), {4, 4}, 5.0);
  EXPECT_EQ(step.loss, 2.5);
  EXPECT_EQ(step.grad_norm, 2.0);
  EXPECT_EQ(step.non_finite_losses, 0);
  const StepSums some = read_sums(host_view(sums), {4, 1}, 5.0);
  EXPECT_EQ(some.loss, 10.0);
  EXPECT_EQ(some.grad_norm, 8.0);
  EXPECT_TRUE(step.gradient_is_finite);

  const std::vector<float> infinite = {std::numeric_limits<float>::infinity()};
  add(infinite, squares);
  step = read_sums(host_view(sums), {4, 4}, 5.0);
  EXPECT_EQ(step.loss, 2.5);
  EXPECT_FALSE(step.gradient_is_finite);
  EXPECT_TRUE(std::isnan(step.grad_norm));

  add(infinite, losses);
  add(infinite, losses);
  step = read_sums(host_view(sums), {4, 4}, 5.0);
  EXPECT_EQ(step.non_finite_losses, 2);
  EXPECT_TRUE(std::isnan(step.loss));
}

TEST(StepGuard, ClipsTheNormAndCountsUpdates) {
  StepSettings settings = settings_of_tests();
  settings.optimizer.clip_norm = 1.0;
  StepGuard guard(settings, DType::fp32, false);
  EXPECT_EQ(guard.loss_scale(), 1.0);
  EXPECT_EQ(guard.before_sums().gradient_scale, 1.0);
  const StepDecision clipped = guard.judge(1, good_sums(2.0, 4.0));
  EXPECT_FALSE(clipped.skip_update);
  EXPECT_NEAR(clipped.gradient_scale, 0.25, 1e-6);
  EXPECT_EQ(guard.judge(1, good_sums(2.0, 0.5)).gradient_scale, 1.0);
  EXPECT_EQ(guard.updates(), 0);
  guard.finish(clipped);
  EXPECT_EQ(guard.updates(), 1);
  StepDecision skipped;
  skipped.skip_update = true;
  guard.finish(skipped);
  guard.finish(skipped);
  EXPECT_EQ(guard.updates(), 1);
  checkpoint::Progress progress;
  guard.save(progress);
  EXPECT_EQ(progress.skipped_in_a_row, 2);
  guard.finish(clipped);
  guard.restore(progress);
  guard.finish(skipped);
  guard.save(progress);
  EXPECT_EQ(progress.updates, 1);
  EXPECT_EQ(progress.skipped_in_a_row, 3);
  EXPECT_EQ(guard.skipped().in_a_row(), 3);
}

TEST(StepGuard, ScalesGradientsToTheMeanOverTermsThatCount) {
  StepSettings settings = settings_of_tests();
  StepSums sums = good_sums(2.0, 4.0);
  sums.terms = {16, 5};
  EXPECT_EQ(StepGuard(settings, DType::fp32, false).judge(1, sums).gradient_scale, 16.0 / 5.0);
  settings.optimizer.clip_norm = 1.0;  // the norm is that of the mean
  EXPECT_NEAR(StepGuard(settings, DType::fp32, false).judge(1, sums).gradient_scale, 0.8, 1e-6);
  // Nothing counts: that is no outlier, and no part of what is usual.
  settings.stability.outlier_threshold = 3.0;
  settings.stability.outlier_window = 16;
  StepGuard guard(settings, DType::fp32, false);
  sums = good_sums(0.0, 0.0);
  sums.terms.counted = 0;
  for (int step = 1; step <= 40; ++step) {
    const StepDecision verdict = guard.judge(step, sums);
    EXPECT_EQ(verdict.gradient_scale, 1.0);
    EXPECT_FALSE(verdict.skip_update);
  }
  EXPECT_FALSE(guard.judge(41, good_sums()).skip_update);
}

// The last steps of a run are skipped as parameters are ruined, or as the loss scale was too large:
// a process that resumes knows which, from the scale's count of good steps.
TEST(StepGuard, KnowsWhySkippedStepsBeforeItsCheckpointWere) {
  StepSettings settings = settings_of_tests();
  settings.stability.skip_non_finite = true;
  checkpoint::Progress progress;
  progress.skipped_in_a_row = 3;
  progress.loss_scale = 8.0;
  progress.good_steps = 0;
  StepGuard half(settings, DType::fp16, false), full(settings, DType::fp32, false);
  half.restore(progress);
  EXPECT_EQ(half.skipped().problem(9), "");
  full.restore(progress);
  EXPECT_EQ(full.skipped().problem(9), "the last 3 steps were skipped");
  full.finish(full.judge(4, bad_loss()));
  EXPECT_EQ(full.skipped().problem(9),
            "the last 4 steps were skipped: the loss is not finite (3 of 16 tokens)");
}

TEST(StepGuard, HalvesALossScaleWithWhichGradientsOverflow) {
  StepSettings settings = settings_of_tests();
  settings.loss_scale = {8.0, 2.0, 16.0, 2};
  StepGuard guard(settings, DType::fp16, false);
  EXPECT_EQ(guard.loss_scale(), 8.0);
  EXPECT_EQ(guard.before_sums().gradient_scale, 0.125);
  for (const char* expected : {"a gradient overflowed: the loss scale goes from 8 to 4",
                               "a gradient overflowed: the loss scale goes from 4 to 2"}) {
    const StepDecision verdict = guard.judge(1, bad_gradient());
    EXPECT_TRUE(verdict.skip_update && verdict.overflowed);
    EXPECT_FALSE(verdict.needs_diagnosis);
    EXPECT_EQ(verdict.skipped, expected);
    EXPECT_EQ(verdict.error, "");
  }
  // The smallest scale is not to blame.
  EXPECT_TRUE(guard.judge(1, bad_gradient()).needs_diagnosis);
  EXPECT_EQ(guard.loss_scale(), 2.0);
  // Gradients were computed with the scale before it grew.
  EXPECT_EQ(guard.judge(2, good_sums()).gradient_scale, 0.5);
  EXPECT_EQ(guard.judge(3, good_sums()).gradient_scale, 0.5);
  EXPECT_EQ(guard.loss_scale(), 4.0);
  // Only 16-bit dtypes with few exponents are scaled; also those that are only sent.
  EXPECT_EQ(StepGuard(settings, DType::bf16, false).loss_scale(), 1.0);
  settings.policy.reduce = DType::fp16;
  EXPECT_EQ(StepGuard(settings, DType::fp32, false).loss_scale(), 8.0);
}

TEST(StepGuard, EndsOrSkipsAStepWhoseLossIsNotFinite) {
  StepSettings settings = settings_of_tests();
  StepGuard guard(settings, DType::fp32, false);
  EXPECT_EQ(guard.judge(7, bad_loss()).error, "step 7: the loss is not finite (3 of 16 tokens)");
  guard.finish(guard.judge(8, good_sums()));
  EXPECT_EQ(guard.judge(9, bad_loss()).error,
            "step 9: the loss is not finite (3 of 16 tokens). Try a lower "
            "optimizer.learning_rate or a longer schedule.warmup_steps");
  EXPECT_EQ(guard.validation_error(9, good_sums()), "");
  EXPECT_EQ(guard.validation_error(9, bad_loss()).rfind("validation after step 9: the loss", 0),
            0u);

  StepSettings own = settings;
  own.loss.name = model::chain_losses;
  EXPECT_EQ(StepGuard(own, DType::fp32, false).judge(7, bad_loss()).error,
            "step 7: the loss is not finite (3 of 16 losses). Try check_gradients, which names a "
            "unit whose output is not finite");

  settings.stability.skip_non_finite = true;
  StepGuard skips(settings, DType::fp32, false);
  const StepDecision verdict = skips.judge(7, bad_loss());
  EXPECT_TRUE(verdict.skip_update);
  EXPECT_EQ(verdict.skipped, "the loss is not finite (3 of 16 tokens)");
  EXPECT_EQ(verdict.error, "");
  EXPECT_EQ(skips.validation_error(7, bad_loss()), "");
}

TEST(StepGuard, AsksForADiagnosisOfAGradientThatIsNotFinite) {
  StepSettings settings = settings_of_tests();
  StepGuard guard(settings, DType::fp16, false);
  StepDecision verdict = guard.judge_gradient(5, "the gradient of head is bad");
  EXPECT_EQ(verdict.error, "step 5: the gradient of head is bad. Try precision.gather = bf16");
  StepGuard of_fp32(settings, DType::fp32, false);
  verdict = of_fp32.judge(5, bad_gradient());
  EXPECT_TRUE(verdict.skip_update && verdict.needs_diagnosis);
  EXPECT_EQ(verdict.error + verdict.skipped, "");
  EXPECT_EQ(of_fp32.judge_gradient(5, "bad").error, "step 5: bad");

  settings.policy.reduce = DType::fp16;
  EXPECT_EQ(StepGuard(settings, DType::fp32, false).judge_gradient(5, "bad").error,
            "step 5: bad. Try precision.reduce = bf16");
  settings.stability.skip_non_finite = true;
  verdict = StepGuard(settings, DType::fp32, false).judge_gradient(5, "bad");
  EXPECT_TRUE(verdict.skip_update);
  EXPECT_EQ(verdict.skipped, "bad");
  EXPECT_EQ(verdict.error, "");
}

TEST(StepGuard, WithEarlyUpdatesClipsNothingAndSaysThatParametersHaveChanged) {
  StepSettings settings = settings_of_tests();
  StepGuard guard(settings, DType::fp32, true);
  EXPECT_EQ(guard.before_sums().gradient_scale, 1.0);
  EXPECT_EQ(guard.judge(1, good_sums(2.0, 100.0)).gradient_scale, 1.0);
  for (const std::string& error :
       {guard.judge(1, bad_loss()).error, guard.judge_gradient(1, "bad").error})
    EXPECT_HAS(error,
               "; parameters have changed, as updates on the host are overlapped with backward");
  EXPECT_TRUE(guard.judge(1, bad_gradient()).needs_diagnosis);
}

TEST(StepGuard, SkipsOutliersAndSaysWhatIsOne) {
  StepSettings settings = settings_of_tests();
  settings.stability.outlier_threshold = 3.0;
  settings.stability.outlier_window = 4;
  StepGuard guard(settings, DType::fp32, false);
  for (int step = 1; step <= 4; ++step)
    EXPECT_FALSE(guard.judge(step, good_sums(2.0 + 0.01 * (step % 2), 4.0)).skip_update);
  const StepDecision verdict = guard.judge(5, good_sums(2.0, 400.0));
  EXPECT_TRUE(verdict.skip_update);
  EXPECT_EQ(verdict.skipped.rfind("an outlier: the gradient norm is ", 0), 0u) << verdict.skipped;
  EXPECT_LACKS(verdict.skipped, "the loss");
  EXPECT_HAS(verdict.skipped, "more than training.skip_outliers = 3");
  EXPECT_HAS(guard.judge(6, good_sums(200.0, 4.0)).skipped, "the loss is ");
}

TEST(StepGuard, ContinuesWhereItWasSaved) {
  StepSettings settings = settings_of_tests();
  settings.loss_scale = {8.0, 1.0, 64.0, 3};
  settings.stability.outlier_threshold = 3.0;
  settings.stability.outlier_window = 4;
  StepGuard guard(settings, DType::fp16, false);
  for (int step = 1; step <= 5; ++step)
    guard.finish(guard.judge(step, good_sums(2.0 + 0.1 * step, 4.0 - 0.2 * step)));
  checkpoint::Progress progress;
  guard.save(progress);
  EXPECT_EQ(progress.updates, 5);
  EXPECT_EQ(progress.loss_scale, 16.0);
  EXPECT_EQ(progress.good_steps, 2);

  StepGuard other(settings, DType::fp16, false);
  other.restore(progress);
  for (const StepSums& sums : {good_sums(2.6, 2.9), good_sums(9.0, 3.0), bad_gradient(),
                               good_sums(2.5, 3.0), good_sums(2.5, 3.0), good_sums(2.5, 3.0)}) {
    const StepDecision expected = guard.judge(6, sums), verdict = other.judge(6, sums);
    EXPECT_EQ(verdict.skip_update, expected.skip_update);
    EXPECT_EQ(verdict.skipped, expected.skipped);
    EXPECT_EQ(verdict.gradient_scale, expected.gradient_scale);
    EXPECT_EQ(other.loss_scale(), guard.loss_scale());
  }
  EXPECT_EQ(other.updates(), 5);

  // A scale that the settings don't allow is refused where it is used, and else of no interest.
  progress.loss_scale = 1024.0;
  EXPECT_THROW(StepGuard(settings, DType::fp16, false).restore(progress), Error);
  EXPECT_NO_THROW(StepGuard(settings, DType::fp32, false).restore(progress));
}

}  // namespace
}  // namespace ostrakon::train
