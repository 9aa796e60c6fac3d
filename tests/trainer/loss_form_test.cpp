// SPDX-License-Identifier: Apache-2.0
// Training with label smoothing and a z-loss: the same bits in every layout, and evaluations
// without them.
#include <gtest/gtest.h>

#include <string>

#include "trainer/choices.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

config::Settings smoothed(config::Settings settings) {
  settings.training.label_smoothing = 0.1;
  settings.training.z_loss = 0.01;
  settings.training.steps = 3;
  settings.schedule.warmup_steps = 1;
  settings.parallel.sharding = plan::Sharding::none;
  return settings;
}

void expect_same(const config::Settings& settings, const History& reference,
                 const std::string& what) {
  const History run = train_history(settings, MPI_COMM_WORLD);
  EXPECT_EQ(run.losses, reference.losses) << what;
  EXPECT_EQ(run.digests, reference.digests) << what;
  EXPECT_EQ(run.validation_loss, reference.validation_loss) << what;
}

TEST(LossForm, HasTheSameBitsInEveryLayout) {
  for (config::Settings settings : {smoothed(small_gpt2(8)), smoothed(small_llama(8))}) {
    const History reference = train_alone(settings);
    for (const auto sharding : all_shardings) {
      settings.parallel.sharding = sharding;
      expect_same(settings, reference, text("sharding ", static_cast<int>(sharding)));
    }
  }
}

TEST(LossForm, HasTheSameBitsHoweverRanksDivideAStep) {
  const int ranks = world_ranks();
  for (const bool tied : {false, true}) {
    config::Settings settings = smoothed(in_pieces(small_llama(8)));
    settings.model.tie_embeddings = tied;
    settings.model.logit_soft_cap = tied ? 5.0 : 0.0;
    const History reference = train_alone(settings);
    for (int divided = 1; divided <= ranks; divided *= 2)
      for (const auto dimension :
           {&config::Settings::tensor, &config::Settings::context, &config::Settings::pipeline}) {
        config::Settings other = settings;
        other.*dimension = divided;
        if (dimension == &config::Settings::pipeline && divided > other.model.layers) continue;
        expect_same(other, reference, text(divided, " ranks"));
      }
  }
}

TEST(LossForm, IsOfTrainingAlone) {
  for (config::Settings settings : {small_gpt2(8), in_pieces(small_llama(8))}) {
    const auto losses = [&](double smoothing, double z_loss) {
      settings.training.label_smoothing = smoothing;
      settings.training.z_loss = z_loss;
      SmallRun run(settings);
      const double validation = run.trainer.evaluate(*run.validation, 1);
      return std::pair(run.step(1).loss, validation);
    };
    const auto plain = losses(0.0, 0.0), smooth = losses(0.2, 0.0), both = losses(0.2, 0.1);
    EXPECT_EQ(smooth.second, plain.second);
    EXPECT_EQ(both.second, plain.second);
    EXPECT_NE(smooth.first, plain.first);
    // The log of the sum of e^logit is about that of the vocabulary before the first step.
    const double log_words = std::log(static_cast<double>(settings.model.vocabulary));
    EXPECT_NEAR(both.first - smooth.first, 0.1 * log_words * log_words, 0.05);
  }
}

/// Rows of further tokens have the same form.
TEST(LossForm, IsOfFurtherTokensToo) {
  config::Settings settings = smoothed(small_llama(8));
  settings.model.multi_token_depth = 1;
  const History reference = train_alone(settings);
  settings.training.z_loss = 0.0;
  const History other = train_alone(settings);
  EXPECT_GT(reference.further.front(), other.further.front() + 0.1);
  settings.training.z_loss = 0.01;
  settings.parallel.sharding = plan::Sharding::full;
  expect_same(settings, reference, "multi-token prediction");
}

}  // namespace
}  // namespace ostrakon::tests
