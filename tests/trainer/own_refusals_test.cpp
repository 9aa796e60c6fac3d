// SPDX-License-Identifier: Apache-2.0
// What a Trainer of a chain of units refuses: settings, and calls in a wrong order.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/training.hpp>
#include <string>

#include "model/small_chain.hpp"
#include "support/scratch_folder.hpp"
#include "support/shared_folder.hpp"
#include "trainer/own_model_runs.hpp"

namespace ostrakon::tests {
namespace {

TEST(OwnModel, SettingsThatContradictTheModelAreRefused) {
  Mesh mesh(MPI_COMM_WORLD);
  TrainerSettings settings = plain_settings();
  settings.micro_batch_size = 4;
  const auto make = [&] { return Trainer(make_model(small_chain<float>()), settings, mesh); };
  EXPECT_EQ(testing::error_of(make),
            "the model is made for leaves of 2 samples, but micro_batch_size is 4");
  settings.micro_batch_size = 3;
  EXPECT_EQ(testing::error_of(make),
            "global_batch_size is 16; expected a multiple of micro_batch_size, which is 3");
}

TEST(OwnModel, SettingsThatCannotBeAreRefused) {
  Mesh mesh(MPI_COMM_WORLD);
  const auto refusal = [&](const std::function<void(TrainerSettings&)>& change) {
    TrainerSettings settings = plain_settings();
    change(settings);
    return testing::error_of([&] { Trainer(make_model(small_chain<float>()), settings, mesh); });
  };
  using Settings = TrainerSettings;
  EXPECT_EQ(refusal([](Settings&) {}), "no error");
  EXPECT_EQ(refusal([](Settings& all) {
              all.policy.chunks = 0;
            }).rfind("policy.chunks is 0; expected", 0),
            0u);
  EXPECT_EQ(refusal([](Settings& all) { all.optimizer.learning_rate = std::nan(""); }),
            "optimizer.learning_rate is nan; expected a number from 0 to 1e30");
  EXPECT_EQ(refusal([](Settings& all) { all.optimizer.clip_norm = -1.0; }),
            "optimizer.clip_norm is -1; expected a number from 0 to 1e30");
  EXPECT_EQ(refusal([](Settings& all) { all.optimizer.beta2 = 1.0; }),
            "optimizer.beta2 is 1; expected a number >= 0 and < 1");
  EXPECT_EQ(refusal([](Settings& all) { all.steps = 0; }), "steps is 0; expected an integer >= 1");
  EXPECT_EQ(refusal([](Settings& all) { all.schedule.final_fraction = 2.0; }),
            "schedule.final_fraction is 2; expected a number from 0 to 1");
  EXPECT_EQ(refusal([](Settings& all) { all.stability.outlier_threshold = -3.0; }),
            "stability.outlier_threshold is -3; expected a number >= 0");
  EXPECT_EQ(refusal([](Settings& all) { all.loss_scale.initial = 3.0; }),
            "loss_scale.initial is 3; expected a power of two");
  EXPECT_EQ(refusal([](Settings& all) { all.policy.moments.dtype = DType::fp16; }),
            "policy.moments.dtype is fp16; expected fp32 or bf16");
  EXPECT_EQ(
      refusal([](Settings& all) { all.policy.sharding = static_cast<Sharding>(17); }).substr(0, 28),
      "policy.sharding is 17; expec");
  EXPECT_EQ(refusal([](Settings& all) { all.policy.activation_checkpointing.every = -1; }),
            "policy.activation_checkpointing.every is -1; expected at least 0");
  // Decks can't say this.
  EXPECT_EQ(refusal([](Settings& all) {
              all.policy.in_flight_gathers = {2, 1 << 20};
            }),
            "no error");
  EXPECT_HAS(refusal([](Settings& all) { all.steps = all.global_batch_size = 1LL << 40; }),
             "expected at most 9007199254740991 samples in all steps");
  optim::ParameterRule rule;
  rule.pattern = "bend.*";
  rule.learning_rate = -1.0;
  EXPECT_EQ(refusal([&](Settings& all) {
              all.optimizer.parameters = {rule};
            }).rfind("optimizer.parameters: ", 0),
            0u);
  rule.learning_rate.reset();
  rule.frozen = true;
  EXPECT_EQ(refusal([&](Settings& all) { all.optimizer.parameters = {rule}; }),
            "optimizer.parameters freezes bend.0.scale, which the model trains; expected it to be "
            "frozen where the model is made");
  rule.pattern = "bends.*";
  for (const bool is_frozen : {true, false}) {
    rule.frozen = is_frozen;
    EXPECT_EQ(refusal([&](Settings& all) { all.optimizer.parameters = {rule}; }),
              "optimizer.parameters: the pattern 'bends.*' matches no parameter of the model, the "
              "first of which is bend.0.scale");
  }
}

TEST(OwnModel, CallsInAWrongOrderAreRefused) {
  Mesh mesh(MPI_COMM_WORLD);
  Trainer trainer(make_model(small_chain<float>()), plain_settings(), mesh);
  SmallSamples samples;
  const testing::SharedFolder folder;
  CheckpointOptions options;
  options.folder = folder.path();
  Checkpoints checkpoints(options, mesh, trainer, samples);
  const auto step = [&](std::int64_t number) {
    return testing::error_of([&] { trainer.step(samples, number); });
  };
  const auto evaluate = [&](std::int64_t batches) {
    return testing::error_of([&] { trainer.evaluate(samples, batches); });
  };
  const auto save = [&] { return testing::error_of([&] { checkpoints.save(); }); };
  const std::string late = " was called before Trainer::allocate; expected it after";
  EXPECT_EQ(step(1), "Trainer::step" + late);
  EXPECT_EQ(evaluate(1), "Trainer::evaluate" + late);
  EXPECT_EQ(save(), "Checkpoints::save" + late);
  EXPECT_EQ(testing::error_of([&] { trainer.initialize(); }), "Trainer::initialize" + late);
  // Other ranks may be elsewhere.
  try {
    trainer.state_digest();
  } catch (const CollectiveError&) {
    ADD_FAILURE() << "nothing was agreed on";
  } catch (const Error&) {
  }
  trainer.allocate();
  EXPECT_EQ(testing::error_of([&] { trainer.allocate(); }),
            "Trainer::allocate was called twice; expected one call");
  const std::string unset =
      " was called before the parameters have values; expected Trainer::initialize, or a "
      "checkpoint to resume from, before";
  EXPECT_EQ(step(1), "Trainer::step" + unset);
  EXPECT_EQ(evaluate(1), "Trainer::evaluate" + unset);
  EXPECT_EQ(save(), "Checkpoints::save" + unset);
  trainer.initialize();
  EXPECT_EQ(step(0), "Trainer::step was called with step 0; expected step 1: one after the other");
  EXPECT_EQ(evaluate(0), "evaluation of 0 batches; expected 1 or more");
  EXPECT_EQ(step(1), "no error");
  for (const std::int64_t other : {1, 3})
    EXPECT_EQ(step(other), text("Trainer::step was called with step ", other,
                                "; expected step 2: one after the other"));
  EXPECT_EQ(evaluate(1), "no error");
  EXPECT_EQ(save(), "no error");
}

}  // namespace
}  // namespace ostrakon::tests
