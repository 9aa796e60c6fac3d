// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/run/run_data.hpp>

#include "support/scratch_folder.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

using train::Validation;

/// Has that many samples of one token.
class Samples : public data::Dataset {
 public:
  explicit Samples(std::uint64_t samples, std::int64_t length = 2)
      : Dataset(length), samples_(samples) {}
  void read(std::uint64_t, std::int32_t* tokens) override {
    std::fill(tokens, tokens + length(), 0);
  }
  std::uint64_t samples() const override { return samples_; }
  std::optional<double> bytes_per_token() const override { return 4.0; }

 private:
  std::uint64_t samples_;
};

const model::LossTerms per_token = {2, 2 * 8, "tokens"};

config::TrainingSettings every_third() {
  config::TrainingSettings training;
  training.validate_every = 3;
  training.validation_batches = 4;
  training.global_batch_size = 10;
  return training;
}

TEST(Validation, IsNeverDueWithoutData) {
  EXPECT_FALSE(Validation().has_data());
  EXPECT_FALSE(Validation().is_due({3, true, false}));
  EXPECT_FALSE(Validation(nullptr, every_third(), per_token).is_due({3, true, false}));
}

TEST(Validation, IsDueEveryNthStepAndAtTheEnd) {
  const Validation validation(std::make_unique<Samples>(100), every_third(), per_token);
  EXPECT_TRUE(validation.has_data());
  EXPECT_FALSE(validation.is_due({2, false, false}));
  EXPECT_TRUE(validation.is_due({3, false, false}));
  EXPECT_TRUE(validation.is_due({4, true, false}));
  EXPECT_FALSE(validation.is_due({4, true, true}));  // the run is resumed later
  EXPECT_TRUE(validation.is_due({6, true, true}));
}

TEST(Validation, TakesWholeBatchesButAtLeastOne) {
  const auto described = [](std::uint64_t samples) {
    return Validation(std::make_unique<Samples>(samples), every_third(), per_token).describe();
  };
  EXPECT_EQ(described(100), "  validation             40 of 100 samples every 3 steps\n");
  EXPECT_EQ(described(29), "  validation             20 of 29 samples every 3 steps\n");
  EXPECT_EQ(described(7),
            "  validation             7 of 7 samples every 3 steps\n"
            "                         fewer than a global batch: each counts once\n");
}

TEST(Validation, SamplesWithoutLossesOfTheirOwnAreRefusedAtOnce) {
  const auto refusal = [](std::uint64_t samples) {
    const model::LossTerms pairs = {2, 1, "losses"};
    return testing::error_of(
        [&] { Validation(std::make_unique<Samples>(samples), every_third(), pairs); });
  };
  EXPECT_EQ(refusal(7),
            "the mean loss of 7 samples, fewer than a global batch: the model has 1 losses for the "
            "2 samples of a leaf, not equally many for each; expected a multiple of 2 samples, "
            "which is micro_batch_size");
  EXPECT_EQ(refusal(6), "no error");
  EXPECT_EQ(refusal(17), "no error");  // of which a batch is whole
}

/// Samples of different tokens, which begin again after the last one.
class FewSamples : public Samples {
 public:
  using Samples::Samples;
  void read(std::uint64_t index, std::int32_t* tokens) override {
    for (std::int64_t i = 0; i < length(); ++i)
      tokens[i] = static_cast<std::int32_t>(
          (index % samples() * 7 + static_cast<std::uint64_t>(i * i)) % 20);
  }
};

/// Gives the same sample again and again.
class OneSample : public FewSamples {
 public:
  OneSample(std::uint64_t which, std::int64_t length) : FewSamples(100, length), which_(which) {}
  void read(std::uint64_t, std::int32_t* tokens) override { FewSamples::read(which_, tokens); }

 private:
  std::uint64_t which_;
};

TEST(Validation, CountsEachSampleOnceWhereTheyDoNotFillABatch) {
  config::Settings settings = small_gpt2(2);
  ASSERT_GE(settings.training.global_batch_size, 4);
  settings.training.validate_every = 1;
  const std::int64_t batch = settings.training.global_batch_size;
  const std::int64_t length = settings.training.sequence_length + 1;
  for (const std::int64_t micro_batch : {std::int64_t{1}, std::int64_t{2}}) {
    settings.training.micro_batch_size = micro_batch;
    SmallRun run(settings);
    double sum = 0.0;
    for (std::int64_t count = 1; count <= batch + 1; ++count) {
      if (count <= batch) {
        OneSample one(static_cast<std::uint64_t>(count - 1), length);
        sum += run.trainer.evaluate(one, 1);
      }
      const auto samples = static_cast<std::uint64_t>(count);
      Validation validation(std::make_unique<FewSamples>(samples, length), settings.training,
                            per_token);
      const double loss = validation.measure(run.trainer, 1).validation_loss;
      const double counted = static_cast<double>(std::min(count, batch));
      EXPECT_NEAR(loss, sum / counted, 1e-6 * loss) << count << " of " << batch;
      // Bits are those of a whole batch where there is one.
      FewSamples few(samples, length);
      if (count >= batch) {
        EXPECT_EQ(loss, run.trainer.evaluate(few, 1));
      }
    }
  }
}

/// Leaves the first target of each sample out.
class AllButTheFirst : public Samples {
 public:
  using Samples::Samples;
  void fill_part(std::uint64_t first, std::int64_t count, const data::SamplePart& part,
                 void* batch) override {
    Samples::fill_part(first, count, part, batch);
    const std::int64_t tokens = length() - 1;
    for (std::int64_t s = 0; s < count; ++s)
      static_cast<std::int32_t*>(batch)[(count + s) * tokens] = -1;
  }
};

/// The bytes of all tokens are known, not those of the tokens that count.
TEST(Validation, OfSomeTargetsSaysHowManyAndNoBitsPerByte) {
  config::Settings settings = small_gpt2(2);
  SmallRun run(settings);
  settings.training.validate_every = 1;
  const std::int64_t length = settings.training.sequence_length + 1;
  for (const std::uint64_t samples : {3, 100}) {
    Validation validation(std::make_unique<AllButTheFirst>(samples, length), settings.training,
                          per_token);
    const train::ValidationMetrics metrics = validation.measure(run.trainer, 5);
    const std::int64_t used =
        samples == 3 ? 3
                     : settings.training.validation_batches * settings.training.global_batch_size;
    EXPECT_EQ(metrics.counted_tokens, std::min<std::int64_t>(used, 100) * (length - 2));
    EXPECT_FALSE(metrics.bits_per_byte);
  }
}

TEST(Validation, MeasuresTheLossOfItsData) {
  config::Settings settings = small_gpt2(2);
  SmallRun run(settings);
  settings.training.validate_every = 1;
  settings.training.validation_batches = 1;
  const std::int64_t length = settings.training.sequence_length + 1;
  Samples samples(100, length);
  const double loss = run.trainer.evaluate(samples, 1);
  Validation validation(std::make_unique<Samples>(100, length), settings.training, per_token);
  const train::ValidationMetrics metrics = validation.measure(run.trainer, 5);
  EXPECT_EQ(metrics.step, 5);
  EXPECT_EQ(metrics.validation_loss, loss);
  EXPECT_EQ(metrics.bits_per_byte, loss / std::log(2.0) / 4.0);
  EXPECT_FALSE(metrics.counted_tokens);
}

}  // namespace
}  // namespace ostrakon::tests
