// SPDX-License-Identifier: Apache-2.0
// Mixed precision, activation checkpointing and optimizers, each with the layouts and each other.
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/base/error.hpp>
#include <string>

#include "train/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

History alone(config::Settings settings) {
  settings.parallel.sharding = plan::Sharding::none;
  return train_history(settings, MPI_COMM_SELF);
}

config::Settings short_run(config::Settings settings, std::int64_t steps) {
  settings.training.steps = steps;
  settings.schedule.warmup_steps = 1;
  return settings;
}

constexpr model::Recompute recomputes[] = {
    {}, {true, false, false}, {false, true, false}, {false, false, true}, {true, true, true}};

TEST(Checkpointing, ChangesNoBit) {
  for (config::Settings settings : {short_run(small_gpt2(8), 3), short_run(small_llama(8), 3)}) {
    settings.model.layers = 3;
    const History reference = alone(settings);
    for (int every : {0, 1, 2})
      for (const model::Recompute& recompute : recomputes)
        for (const auto sharding : all_shardings) {
          settings.parallel.activation_checkpointing.every = every;
          settings.recompute = recompute;
          settings.parallel.sharding = sharding;
          const History run = train_history(settings, MPI_COMM_WORLD);
          EXPECT_EQ(run.losses, reference.losses);
          EXPECT_EQ(run.digests, reference.digests) << "every " << every;
        }
  }
}

TEST(Checkpointing, LeavesUnitsInputsAndOneUnitsActivations) {
  config::Settings settings = short_run(small_llama(8), 1);
  settings.model.layers = 8;
  mesh::Mesh mesh(MPI_COMM_SELF, 0);
  const auto activations = [&](int every) {
    settings.parallel.activation_checkpointing.every = every;
    const train::Trainer trainer(settings, mesh);
    const runtime::Program& program = trainer.program(plan::Purpose::train);
    std::int64_t most = 0;
    for (int a = 0; a < static_cast<int>(program.plan.actions.size()); ++a) {
      std::int64_t now = 0;
      for (const plan::Buffer& buffer : program.plan.buffers)
        if (buffer.category == plan::Category::activations && buffer.space == plan::Space::device &&
            buffer.first <= a && a <= buffer.last)
          now += buffer.bytes;
      most = std::max(most, now);
    }
    return most;
  };
  settings.parallel.activation_checkpointing.every = 0;
  const plan::ModelDescription model = train::describe(train::Trainer(settings, mesh).decoder());
  std::int64_t inputs = 2 * model.batch_bytes + model.gradient_bytes, largest = 0;
  for (const plan::UnitDescription& unit : model.units) {
    inputs += unit.output_bytes;
    largest = std::max(largest, unit.saved_bytes);
  }
  EXPECT_LE(activations(1), inputs + largest);
  EXPECT_GT(activations(0), inputs + 7 * largest);
  EXPECT_GT(activations(2), activations(1));
  EXPECT_LT(activations(2), activations(0));
}

config::Settings with_precision(config::Settings settings, Number gather, Number reduce) {
  settings.precision.gather = gather;
  settings.parallel.reduce = reduce;
  return settings;
}

// On one number of ranks 16-bit runs have the same bits with every strategy that reduces alike; and
// with gradients reduced in fp32, the same bits as one rank.
TEST(Precision, SixteenBitsHaveTheBitsOfOneRankWhereGradientsTravelInFull) {
  for (const Number number : {Number::bf16, Number::fp16})
    for (config::Settings settings : {short_run(small_gpt2(8), 3), short_run(small_llama(8), 3)}) {
      settings = with_precision(settings, number, Number::fp32);
      const History reference = alone(settings);
      for (const auto sharding : all_shardings)
        for (const auto over : {plan::OptimizerGroup::shard_group, plan::OptimizerGroup::world})
          for (int group : groups_of_world())
            for (const auto reshard :
                 {plan::Reshard::automatic, plan::Reshard::never, plan::Reshard::partly}) {
              settings.parallel.sharding = sharding;
              settings.parallel.shard_optimizer_over = over;
              settings.shard_group = group;
              settings.parallel.reshard_after_forward = {reshard, 2};
              settings.parallel.activation_checkpointing.every = group == 2 ? 1 : 0;
              const History run = train_history(settings, MPI_COMM_WORLD);
              EXPECT_EQ(run.losses, reference.losses)
                  << name(number) << " sharding " << static_cast<int>(sharding);
              EXPECT_EQ(run.digests, reference.digests)
                  << name(number) << " sharding " << static_cast<int>(sharding) << " group "
                  << group << " reshard " << reshard;
            }
    }
}

TEST(Precision, GradientsTravelInSixteenBitsAsAlikeOnAllStrategies) {
  for (const Number number : {Number::bf16, Number::fp16}) {
    config::Settings settings = with_precision(short_run(small_llama(8), 3), Number::bf16, number);
    settings.parallel.accumulation = plan::Accumulation::shard_each;
    History reference;
    for (const auto sharding : all_shardings)
      for (const auto reshard : {plan::Reshard::always, plan::Reshard::never}) {
        settings.parallel.sharding = sharding;
        settings.parallel.reshard_after_forward.kind = reshard;
        const History run = train_history(settings, MPI_COMM_WORLD);
        if (reference.losses.empty()) reference = run;
        EXPECT_EQ(run.losses, reference.losses);
        EXPECT_EQ(run.digests, reference.digests);
      }
  }
}

TEST(Precision, HalvesTheTrafficOfGathersAndReductions) {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks == 1) GTEST_SKIP() << "needs others";
  const config::Settings settings = short_run(small_llama(8), 1);
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  const auto sent = [&](Number gather, Number reduce) {
    const train::Trainer trainer(with_precision(settings, gather, reduce), mesh);
    return trainer.program(plan::Purpose::train).plan.bytes_sent();
  };
  const std::int64_t full = sent(Number::fp32, Number::fp32);
  EXPECT_EQ(2 * sent(Number::bf16, Number::bf16), full);
  EXPECT_LT(sent(Number::bf16, Number::fp32), full);
  EXPECT_EQ(sent(Number::bf16, Number::fp32) + sent(Number::fp32, Number::bf16),
            full + sent(Number::bf16, Number::bf16));
}

TEST(Precision, LearnsAlmostAsWellInSixteenBits) {
  for (config::Settings settings : {small_gpt2(8), small_llama(8)}) {
    settings.training.steps = 40;
    const History full = train_history(settings, MPI_COMM_WORLD);
    for (const Number gather : {Number::bf16, Number::fp16}) {
      const History half = train_history(with_precision(settings, gather, gather), MPI_COMM_WORLD);
      EXPECT_NEAR(half.validation_loss, full.validation_loss, 0.02 * full.validation_loss)
          << name(gather);
      EXPECT_NE(half.losses.back(), full.losses.back());
    }
  }
}

TEST(LossScale, ThatIsTooLargeRecovers) {
  config::Settings settings =
      with_precision(short_run(small_llama(8), 24), Number::fp16, Number::fp32);
  settings.precision.loss_scale.initial = settings.precision.loss_scale.largest = 16777216.0 * 64;
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  train::Trainer trainer(settings, mesh);
  const auto data =
      data::open_dataset(settings.data, data::Split::training, settings.training.sequence_length,
                         settings.model.vocabulary, settings.training.seed, mesh.world());
  trainer.allocate();
  trainer.initialize();
  int skipped = 0;
  double last = 0.0;
  for (std::int64_t step = 1; step <= settings.training.steps; ++step) {
    const std::uint64_t before = trainer.state_digest();
    const train::StepResult result = trainer.step(*data, step);
    if (!result.skipped.empty()) {
      ++skipped;
      EXPECT_EQ(trainer.state_digest(), before) << "a step that was left out";
    } else {
      EXPECT_NE(trainer.state_digest(), before);
      last = result.loss_scale;
    }
  }
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 20);
  EXPECT_GT(last, 0.0);
  EXPECT_LT(last, settings.precision.loss_scale.initial);
}

TEST(Optimizers, HaveTheSameBitsOnEveryLayoutAndLearn) {
  for (const auto kind :
       {optim::OptimizerKind::adamw, optim::OptimizerKind::sgd, optim::OptimizerKind::lion})
    for (const Number moments : {Number::fp32, Number::bf16}) {
      config::Settings settings = short_run(small_llama(8), 12);
      settings.optimizer.kind = kind;
      settings.parallel.moments.number = moments;
      if (kind == optim::OptimizerKind::sgd) settings.optimizer.learning_rate = 0.3;
      if (kind == optim::OptimizerKind::lion) settings.optimizer.learning_rate = 1e-3;
      const History reference = alone(settings);
      EXPECT_LT(reference.losses.back(), reference.losses.front());
      for (const auto sharding : all_shardings)
        for (int blocks : {1, 2}) {
          settings.parallel.sharding = sharding;
          settings.model.blocks_per_unit = blocks;
          const History run = train_history(settings, MPI_COMM_WORLD);
          EXPECT_EQ(run.digests, reference.digests)
              << static_cast<int>(kind) << " " << name(moments) << " sharding "
              << static_cast<int>(sharding);
        }
    }
}

/// Tokens that are all the same but for one sample, which one rank reads.
TEST(Stability, ANonFiniteGradientIsNamedAndSkippedOrStopped) {
  for (const bool skip : {false, true}) {
    config::Settings settings = short_run(small_llama(8), 4);
    settings.stability.skip_non_finite = skip;
    mesh::Mesh mesh(MPI_COMM_WORLD, 0);
    train::Trainer trainer(settings, mesh);
    const auto data =
        data::open_dataset(settings.data, data::Split::training, settings.training.sequence_length,
                           settings.model.vocabulary, settings.training.seed, mesh.world());
    trainer.allocate();
    trainer.initialize();
    const std::uint64_t before = trainer.state_digest();
    // One rank's gradient of one unit is spoilt in a step.
    trainer.spoil_gradient(1, mesh.world().size() - 1);
    try {
      const train::StepResult result = trainer.step(*data, 1);
      EXPECT_TRUE(skip);
      EXPECT_NE(result.skipped.find("block.0"), std::string::npos) << result.skipped;
      EXPECT_EQ(trainer.state_digest(), before);
      EXPECT_TRUE(trainer.step(*data, 2).skipped.empty());
    } catch (const AgreedError& error) {
      EXPECT_FALSE(skip);
      EXPECT_NE(std::string(error.what()).find("step 1: the gradient of block.0"),
                std::string::npos)
          << error.what();
      EXPECT_EQ(trainer.state_digest(), before);
    }
  }
}

}  // namespace
