// SPDX-License-Identifier: Apache-2.0
// Models learn what can be learned: a fixed batch by heart, a random process down to its entropy.
#include <gtest/gtest.h>

#include <ostrakon/math/random.hpp>

#include "train/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

class FourSamples : public data::Dataset {
 public:
  FourSamples(std::int64_t length, std::int64_t vocabulary)
      : Dataset(length), vocabulary_(static_cast<std::uint32_t>(vocabulary)) {}
  void read(std::uint64_t index, std::int32_t* tokens) override {
    for (std::int64_t i = 0; i < length(); ++i)
      tokens[i] = static_cast<std::int32_t>(
          math::philox(3, index % 4, static_cast<std::uint64_t>(i)).word[0] % vocabulary_);
  }
  std::uint64_t samples() const override { return 4; }

 private:
  std::uint32_t vocabulary_;
};

TEST(Learning, TenMillionParametersLearnABatchByHeart) {
  config::Settings settings = small_llama(4);
  settings.model.layers = 6;
  settings.model.width = 384;
  settings.model.heads = 6;
  settings.model.kv_heads = 6;
  settings.model.ffn_width = 1024;
  settings.model.vocabulary = 257;
  settings.training.sequence_length = 16;
  settings.training.micro_batch_size = 1;
  settings.training.global_batch_size = 4;
  settings.training.steps = 60;
  settings.optimizer.learning_rate = 1e-3;
  settings.optimizer.weight_decay = 0.0;
  settings.schedule.warmup_steps = 10;
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  train::Trainer trainer = train::make_trainer(settings, mesh);
  ASSERT_GT(trainer.model().parameter_count(), 10000000);
  FourSamples dataset(settings.training.sequence_length + 1, settings.model.vocabulary);
  trainer.allocate();
  trainer.initialize();
  double loss = 0.0;
  for (std::int64_t step = 1; step <= settings.training.steps; ++step)
    loss = trainer.step(dataset, step).loss;
  EXPECT_LT(loss, 0.05);
}

TEST(Learning, LossOnTheSyntheticProcessComesDownToItsEntropy) {
  config::Settings settings = small_gpt2(4);
  settings.model.layers = 1;
  settings.model.width = 64;
  settings.model.heads = settings.model.kv_heads = 2;
  settings.model.ffn_width = 128;
  settings.data.synthetic_noise = 0.3;
  settings.training.sequence_length = 64;
  settings.training.micro_batch_size = 8;
  settings.training.global_batch_size = 32;
  settings.training.steps = 400;
  settings.optimizer.learning_rate = 5e-3;
  settings.schedule.warmup_steps = 20;
  settings.schedule.final_fraction = 0.01;
  SmallRun run(settings);
  for (std::int64_t step = 1; step <= settings.training.steps; ++step) run.step(step);
  const double loss = run.trainer.evaluate(*run.validation, 16);
  EXPECT_NEAR(loss, *run.training->entropy(), 0.02 * *run.training->entropy());
}

}  // namespace
