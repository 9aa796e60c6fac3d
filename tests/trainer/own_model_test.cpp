// SPDX-License-Identifier: Apache-2.0
// A chain of units of one's own, trained with plain settings, without a deck.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <cstdint>
#include <ostrakon/base/error.hpp>
#include <ostrakon/training.hpp>
#include <utility>
#include <vector>

#include "model/small_chain.hpp"
#include "support/scratch_folder.hpp"
#include "support/shared_folder.hpp"
#include "trainer/own_model_runs.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

TEST(OwnModel, LearnsWithPlainSettings) {
  EXPECT_LT(reference().losses.back(), 0.9 * reference().losses.front());
}

// The loss is a mean over rows: computed by hand before the first update.
TEST(OwnModel, LossIsTheMeanOfItsTerms) {
  TrainerSettings settings = plain_settings();
  settings.optimizer.learning_rate = 0.0;
  ChainRun run(settings, MPI_COMM_SELF);
  Trainer& trainer = run.trainer;
  std::vector<std::vector<float>> values(4);
  trainer.visit_parameters([&](int unit, View<const float*> trained, View<const float*>) {
    if (unit == 1 || unit == 2)
      values[unit].assign(trained.data(), trained.range(0, small_width).data() + small_width);
  });
  SmallSamples samples;
  std::vector<float> batch(static_cast<std::size_t>(8 * small_all));
  samples.fill(0, 8 * small_rows, batch.data());
  double sum = 0.0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto j = i % static_cast<std::size_t>(small_width);
    const double first = std::tanh(values[1][j] * batch[i]);
    const double y = std::tanh(values[2][j] * first) - 0.3;
    sum += y * y;
  }
  EXPECT_NEAR(trainer.step(samples, 1).loss, sum / (8 * small_rows), 1e-5);
}

TEST(OwnModel, HasTheBitsOfOneRankWithAnyStrategy) {
  for (const auto sharding : all_shardings)
    for (const int every : {0, 1})
      for (const auto offload : {plan::Offload::none, plan::Offload::all}) {
        TrainerSettings settings = plain_settings();
        settings.policy.sharding = sharding;
        settings.policy.activation_checkpointing.every = every;
        settings.policy.offload = offload;
        settings.policy.offload_activations = offload == plan::Offload::all;
        const Trained trained = train_chain(settings, small_chain<float>(), MPI_COMM_WORLD);
        EXPECT_EQ(trained.losses, reference().losses);
        EXPECT_EQ(trained.digest, reference().digest);
        const Trained tied =
            train_chain(settings, tied_chain<float>(), MPI_COMM_WORLD, SmallTokens());
        EXPECT_EQ(tied.losses, tied_reference().losses);
        EXPECT_EQ(tied.digest, tied_reference().digest);
      }
}

#if defined(OSTRAKON_CHECK_VIEWS)
TEST(OwnModelDeathTest, AnIndexOutsideOfAnOutputNamesTheAction) {
  if (has_device) GTEST_SKIP() << "a device gives no names";
  Mesh mesh(MPI_COMM_SELF);
  ostrakon::Units<float> units;
  units.add("source", [](Builder<float>& b) { return b.floats(small_width); });
  units.add("overrun", [](Builder<float>& b, Value x) {
    Operation<float> own = bend<float>(x, {});
    own.forward = [](const OperationForward<float>& call) { call.output(small_rows, 0) = 1.0f; };
    return b.apply(own);
  });
  units.add("squares", [](Builder<float>& b, Value x) { return b.losses(squares<float>(x)); });
  Chain<float> chain(units, {small_rows, SmallSamples().sample_bytes()});
  Trainer trainer(make_model(std::move(chain)), plain_settings(), mesh);
  trainer.allocate();
  trainer.initialize();
  EXPECT_DEATH(train_steps(trainer, 1, 1),
               "index \\(2, 0\\) is outside of a view of buffer '.*' with extents \\(2, 5\\), "
               "made for forward\\(overrun, micro-batch 0\\)");
}
#endif

TEST(OwnModel, TrainsInSixteenBits) {
  ChainRun<bf16> run;
  const Trained trained = train_steps(run.trainer, 1, plain_settings().steps);
  for (std::size_t i = 0; i < trained.losses.size(); ++i)
    EXPECT_NEAR(trained.losses[i], reference().losses[i], 0.02 * reference().losses[i]);
}

TEST(OwnModel, SettingsThatFollowFromOthersAreSetByTheTrainer) {
  Mesh mesh(MPI_COMM_WORLD);
  const auto made = [&](const TrainerSettings& settings) {
    return Trainer(make_model(small_chain<float>()), settings, mesh).policy();
  };
  TrainerSettings settings = plain_settings();
  EXPECT_EQ(made(settings).leaves, 8);
  EXPECT_EQ(made(settings).moment_count, 2);
  EXPECT_FALSE(made(settings).early_updates);
  settings.optimizer.kind = OptimizerKind::sgd;
  EXPECT_EQ(made(settings).moment_count, 1);
  settings.optimizer.momentum = 0.0;
  EXPECT_EQ(made(settings).moment_count, 0);
  // On the host, without clipping and skipped steps.
  settings.policy.offload = plan::Offload::all;
  EXPECT_FALSE(made(settings).early_updates);
  settings.optimizer.clip_norm = 0.0;
  EXPECT_TRUE(made(settings).early_updates);
  settings.stability.skip_non_finite = true;
  EXPECT_FALSE(made(settings).early_updates);
  settings.stability.skip_non_finite = false;
  settings.policy.reduce = DType::fp16;
  EXPECT_FALSE(made(settings).early_updates);
  settings.policy.reduce = DType::fp32;
  settings.early_updates = false;
  EXPECT_FALSE(made(settings).early_updates);
}

TEST(OwnModel, WhatRanksHaveDifferentlyIsRefused) {
  Mesh mesh(MPI_COMM_WORLD);
  const int ranks = mesh.world().size();
  if (ranks == 1) GTEST_SKIP() << "needs others";
  const bool is_other = mesh.world().rank() == ranks - 1;
  TrainerSettings settings = plain_settings();
  const auto refusal = [&](Chain<float> chain) {
    try {
      Trainer(make_model(std::move(chain)), settings, mesh);
    } catch (const CollectiveError& error) {
      const std::string message = error.what();
      return message.substr(0, message.find(" on rank "));
    }
    return std::string("no error");
  };
  if (is_other) settings.optimizer.learning_rate = 0.5;
  EXPECT_EQ(refusal(small_chain<float>()),
            "ranks have different settings: the optimizer.learning_rate is 0.5");
  settings = plain_settings();
  BendKind frozen;
  frozen.is_frozen = is_other;
  EXPECT_EQ(refusal(small_chain<float>({}, frozen)),
            "ranks have different models: the parameter bend.1.shift is 5, zeros, frozen");
  ostrakon::Units<float> units;
  units.add("source", [](Builder<float>& b) { return b.floats(small_width); });
  if (is_other) units.add("cap", [](Builder<float>& b, Value x) { return b.soft_cap(x, 2.0); });
  units.add("squares", [](Builder<float>& b, Value x) { return b.losses(squares<float>(x)); });
  const std::string of_plans = refusal({units, {small_rows, SmallSamples().sample_bytes()}});
  EXPECT_EQ(of_plans.rfind("ranks have made different plans: the plan of ", 0), 0u) << of_plans;
}

/// Samples of another size than the model reads.
class Larger : public SmallSamples {
 public:
  std::int64_t sample_bytes() const override { return 24; }
};

TEST(OwnModel, SamplesOfAnotherSizeAreRefused) {
  ChainRun run;
  Larger samples;
  EXPECT_EQ(testing::error_of([&] { run.trainer.step(samples, 1); }),
            "a leaf of 2 samples of 24 bytes has 48 bytes; the model reads leaves of 40");
  // So that one message is shown, not one of each rank.
  EXPECT_THROW(run.trainer.evaluate(samples, 1), CollectiveError);
}

/// Samples that are one leaf again and again.
class OneLeaf : public SmallSamples {
 public:
  explicit OneLeaf(std::uint64_t leaf) : leaf_(leaf) {}
  void fill(std::uint64_t first, std::int64_t count, void* batch) override {
    auto* const values = static_cast<char*>(batch);
    for (std::int64_t i = 0; i < count; ++i)
      SmallSamples::fill(leaf_ * small_rows + (first + static_cast<std::uint64_t>(i)) % small_rows,
                         1, values + i * sample_bytes());
  }

 private:
  std::uint64_t leaf_;
};

TEST(OwnModel, FewSamplesCountOnceWhereTheyAreWholeLeaves) {
  ChainRun run;
  SmallSamples samples;
  double sum = 0.0;
  for (std::int64_t leaves = 1; leaves <= 8; ++leaves) {
    OneLeaf one(static_cast<std::uint64_t>(leaves - 1));
    sum += run.trainer.evaluate(one, 1);
    const double mean = sum / static_cast<double>(leaves);
    EXPECT_NEAR(run.trainer.evaluate_samples(samples, leaves * small_rows), mean, 1e-6 * mean);
  }
}

/// Samples that make one loss of the first step infinite.
class Infinite : public SmallSamples {
 public:
  void fill(std::uint64_t first, std::int64_t count, void* batch) override {
    SmallSamples::fill(first, count, batch);
    if (first == 0) *static_cast<float*>(batch) = std::nanf("");
  }
};

TEST(OwnModel, LossesThatAreNotFiniteAreCounted) {
  ChainRun run;
  Infinite samples;
  const std::string message = testing::error_of([&] { run.trainer.step(samples, 1); });
  EXPECT_HAS(message, "the loss is not finite (1 of 16 losses)");
}

TEST(OwnModel, GradientsThatAreNotFiniteAreFoundWhereTheyAre) {
  ChainRun run;
  SmallSamples samples;
  run.trainer.inject_nonfinite(2, run.mesh.world().size() - 1);
  const std::string message = testing::error_of([&] { run.trainer.step(samples, 1); });
  EXPECT_HAS(message, "the gradient of bend.1 is not finite");
}

}  // namespace
}  // namespace ostrakon::tests
