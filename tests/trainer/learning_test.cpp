// SPDX-License-Identifier: Apache-2.0
// Models learn what can be learned: a fixed batch by heart, a random process down to its entropy, a
// table by heart that a mixture of experts has more room for.
#include <gtest/gtest.h>

#include <ostrakon/math/random.hpp>

#include "trainer/small_runs.hpp"

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
  SmallRun run(settings);
  ASSERT_GT(run.trainer.model().parameter_count(), 10000000);
  FourSamples dataset(settings.training.sequence_length + 1, settings.model.vocabulary);
  double loss = 0.0;
  for (std::int64_t step = 1; step <= settings.training.steps; ++step)
    loss = run.trainer.step(dataset, step).loss;
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

/// Each token is a function of the two before it, a table of random tokens that a model learns by
/// heart: the more parameters, the more of it.
class TableOfPairs : public data::Dataset {
 public:
  TableOfPairs(std::int64_t length, std::int64_t vocabulary, std::uint64_t key)
      : Dataset(length), vocabulary_(static_cast<std::uint32_t>(vocabulary)), key_(key) {}
  void read(std::uint64_t index, std::int32_t* tokens) override {
    for (std::int64_t i = 0; i < length(); ++i) {
      const math::RandomBits random = math::philox(key_, index, static_cast<std::uint64_t>(i));
      // One of four is a random token, so that all pairs occur.
      const bool is_random = i < 2 || random.word[0] % 4 == 0;
      tokens[i] = is_random ? static_cast<std::int32_t>(random.word[1] % vocabulary_)
                            : entry(tokens[i - 2], tokens[i - 1]);
    }
  }
  std::uint64_t samples() const override { return std::uint64_t{1} << 32; }

 private:
  std::int32_t entry(std::int32_t first, std::int32_t second) const {
    const math::RandomBits random =
        math::philox(7, static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(second));
    return static_cast<std::int32_t>(random.word[0] % vocabulary_);
  }

  std::uint32_t vocabulary_;
  std::uint64_t key_;
};

struct Learned {
  double loss = 0.0;  // of validation
  std::vector<train::ExpertLoad> load;
};

Learned learn_pairs(const config::Settings& settings) {
  SmallRun run(settings);
  const std::int64_t length = settings.training.sequence_length + 1;
  TableOfPairs training(length, settings.model.vocabulary, 1);
  TableOfPairs validation(length, settings.model.vocabulary, 2);
  Learned learned;
  for (std::int64_t step = 1; step <= settings.training.steps; ++step)
    learned.load = run.trainer.step(training, step).expert_load;
  learned.loss = run.trainer.evaluate(validation, 16);
  return learned;
}

/// Two of eight experts, each half as wide as the dense MLP: of its flops for a token, but for the
/// router.
TEST(Learning, AMixtureLearnsMoreThanItsDenseTwin) {
  config::Settings dense = small_llama(4);
  dense.model.width = 32;
  dense.model.heads = dense.model.kv_heads = 2;
  dense.model.ffn_width = 64;
  dense.model.vocabulary = 64;
  dense.training.sequence_length = 64;
  dense.training.micro_batch_size = 8;
  dense.training.global_batch_size = 32;
  dense.training.steps = 800;
  dense.optimizer.learning_rate = 1e-2;
  dense.optimizer.weight_decay = 0.0;
  dense.schedule.warmup_steps = 20;
  const double dense_loss = learn_pairs(dense).loss;
  for (const auto balance : {model::RouterBalance::loss, model::RouterBalance::bias}) {
    config::Settings mixture = dense;
    mixture.model.experts.count = 8;
    mixture.model.experts.per_token = 2;
    mixture.model.experts.width = 32;
    mixture.model.experts.balance = balance;
    mixture.model.experts.balance_rate = 0.01;
    const Learned learned = learn_pairs(mixture);
    // Seeds make less than 0.1 of a difference: docs/experts.md.
    EXPECT_LT(learned.loss, dense_loss - 0.1) << name(balance);
    ASSERT_EQ(learned.load.size(), 2u);
    for (const train::ExpertLoad& load : learned.load) {
      EXPECT_GT(load.least, 0.5) << name(balance);
      EXPECT_LT(load.most, 2.0) << name(balance);
    }
  }
}

}  // namespace
