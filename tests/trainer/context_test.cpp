// SPDX-License-Identifier: Apache-2.0
// Sequences that neighbouring ranks share: losses as on one rank, the same bits on any number of
// groups of such ranks.
#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/saving/saver.hpp>
#include <string>

#include "support/messages.hpp"
#include "trainer/choices.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

config::Settings in_parts(config::Settings settings, std::int64_t context) {
  settings.context = context;
  return settings;
}

std::vector<config::Settings> models() {
  std::vector<config::Settings> all = {small_gpt2(8), small_llama(8), small_gpt2(8)};
  all[1].model.tie_embeddings = true;
  all[2].model.tie_embeddings = false;
  all.push_back(small_llama(8));
  with_scores(all.back().model);
  all.push_back(small_llama(8));
  with_latents(all.back().model);
  for (config::Settings& settings : all) settings.training.steps = 10;
  return all;
}

TEST(Context, LossesAreThoseOfOneRank) {
  for (const config::Settings& settings : models()) {
    const History one = reference_run(settings);
    for (const int context : {2, 3, 4}) {
      const FirstRanks some(context);
      const int ranks = world_ranks();
      if (context > ranks || !some.has_me()) continue;
      const History run = train_history(in_parts(settings, context), some.comm());
      // Attention looks at the same keys in the same order: forward has the same bits.
      EXPECT_EQ(run.losses.front(), one.losses.front()) << context;
      for (std::size_t i = 0; i < one.losses.size(); ++i) {
        EXPECT_NEAR(run.losses[i], one.losses[i], 2e-6 * one.losses[i]) << context << ", " << i;
        EXPECT_NEAR(run.norms[i], one.norms[i], 2e-5 * one.norms[i]) << context << ", " << i;
      }
      EXPECT_NEAR(run.validation_loss, one.validation_loss, 2e-6 * one.validation_loss);
      EXPECT_NE(run.digests.back(), one.digests.back()) << "sums have another order";
    }
  }
}

/// On each pair of ranks for itself.
class Pairs {
 public:
  Pairs() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &comm_);
  }
  ~Pairs() { MPI_Comm_free(&comm_); }
  Pairs(const Pairs&) = delete;
  Pairs& operator=(const Pairs&) = delete;
  MPI_Comm comm() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

TEST(Context, EveryLayoutOfTheSameContextHasTheSameBits) {
  const int ranks = world_ranks();
  if (ranks % 2 != 0) GTEST_SKIP() << "takes pairs";
  const Pairs pair;
  for (config::Settings settings : models()) {
    settings = in_parts(settings, 2);
    settings.training.steps = 4;
    config::Settings plain = settings;
    plain.parallel.sharding = plan::Sharding::none;
    const History reference = train_history(plain, pair.comm());
    for (const NamedRow& row :
         covering_rows("sharding 4, group 2, offload 4, checkpointing 4, reshard 3, blocks 2, "
                       "streams 2, host_activations 2")) {
      config::Settings one = settings;
      apply_policy(row, one);
      one.shard_group = row["group"] == 0 ? mesh::world_group : 2;
      expect_same_bits(train_history(one, MPI_COMM_WORLD), reference, row.text());
    }
  }
}

/// Each rank sums its parts of all sequences before ranks are summed, once in a step: up to
/// rounding the sums of one rank, whether or not its leaves are the parts, and the same bits with
/// everything that is not said to change sums.
TEST(Context, MicroBatchesMayBeSummedBeforeRanks) {
  if (world_ranks() % 2 != 0) GTEST_SKIP() << "takes pairs";
  for (config::Settings settings : models()) {
    settings.training.steps = 3;
    const History one = reference_run(settings);
    settings = in_parts(settings, 2);
    settings.parallel.accumulation = plan::Accumulation::reduce_last;
    config::Settings plain = settings;
    plain.parallel.sharding = plan::Sharding::none;
    const History reference = train_history(plain, MPI_COMM_WORLD);
    EXPECT_EQ(reference.losses.front(), one.losses.front());
    for (std::size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(reference.losses[i], one.losses[i], 2e-6 * one.losses[i]) << i;
      EXPECT_NEAR(reference.norms[i], one.norms[i], 2e-5 * one.norms[i]) << i;
    }
    EXPECT_NEAR(reference.validation_loss, one.validation_loss, 2e-6 * one.validation_loss);
    EXPECT_NEAR(reference.half_batch_loss, one.half_batch_loss, 2e-6 * one.half_batch_loss);
    for (const NamedRow& row :
         covering_rows("sharding 4, offload 4, checkpointing 4, reshard 3, order 3, streams 2")) {
      config::Settings run = settings;
      apply_policy(row, run);
      expect_same_bits(train_history(run, MPI_COMM_WORLD), reference, row.text());
    }
    // The bits of one rank in parts are those of the other order.
    config::Settings pieces = settings;
    pieces.training.context_grain = 2;
    pieces.training.micro_batch_size = 1;
    pieces.parallel.accumulation = plan::Accumulation::automatic;
    const History in_order = train_history(pieces, MPI_COMM_WORLD);
    pieces.parallel.accumulation = plan::Accumulation::reduce_last;
    const History last = train_history(pieces, MPI_COMM_WORLD);
    EXPECT_EQ(last.losses.front(), in_order.losses.front());
    EXPECT_NEAR(last.losses.back(), in_order.losses.back(), 2e-6 * in_order.losses.back());
    EXPECT_NE(last.digests.back(), in_order.digests.back()) << "nothing is summed otherwise";
  }
}

TEST(Context, OtherNumbersHaveTheSameBitsOnEveryLayout) {
  const int ranks = world_ranks();
  if (ranks % 2 != 0) GTEST_SKIP() << "takes pairs";
  const Pairs pair;
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    config::Settings settings = in_parts(small_llama(8), 2);
    settings.training.steps = 3;
    settings.precision.gather = dtype;
    settings.precision.loss_scale.initial = 1024.0;
    const History whole = train_alone(in_parts(settings, 1));
    const History reference = train_history(settings, pair.comm());
    EXPECT_NEAR(reference.losses.back(), whole.losses.back(), 1e-2 * whole.losses.back());
    expect_same_bits(train_history(settings, MPI_COMM_WORLD), reference, name(dtype));
  }
  config::Settings settings = in_parts(small_llama(8), 2);
  settings.training.steps = 3;
  settings.optimizer.kind = optim::OptimizerKind::muon;
  settings.optimizer.parameters = {{"block.0.*", true, {}, {}}};
  settings.training.sum_grain = 2;
  expect_same_bits(train_history(settings, MPI_COMM_WORLD), train_history(settings, pair.comm()),
                   "muon, frozen, a grain");
}

/// Each block gathers keys and values in forward, in a forward that is recomputed and in backward,
/// and sums their gradients.
TEST(Context, TrafficIsKeysValuesAndTheirGradients) {
  const int ranks = world_ranks();
  if (ranks == 1) GTEST_SKIP() << "shares nothing";
  for (const int every : {0, 1}) {
    config::Settings settings = in_parts(small_llama(8), ranks);
    settings.parallel.activation_checkpointing.every = every;
    settings.training.steps = 2;
    if (settings.training.sequence_length % (2 * ranks) != 0) continue;
    SmallRun run(settings);
    run.step(1);
    const plan::StepPlan& plan = run.trainer.program(plan::Purpose::train).plan;
    std::int64_t bytes = 0;
    for (const plan::Action& action : plan.actions)
      if (action.kind == plan::Kind::exchange) bytes += plan.bytes_sent(action);
    const model::DecoderSettings& model = settings.model;
    const std::int64_t sequences = settings.training.micro_batch_size;
    const std::int64_t floats = sequences * settings.training.sequence_length * 2 * model.kv_heads *
                                model.head_width() / ranks * (ranks - 1);
    const plan::Span all{plan::Axis::shard, ranks};
    EXPECT_EQ(run.trainer.bytes_sent(all), bytes_sent(plan, all));
    EXPECT_EQ(bytes, plan.grid.micro_batches() * model.layers * (3 + every) * floats * 4);
  }
}

TEST(Context, WhatCannotBeIsRefused) {
  const int ranks = world_ranks();
  config::Settings settings = in_parts(small_gpt2(8), 5);
  EXPECT_HAS(refusal(settings), "can't be divided into 5 parts");
  if (ranks == 1) {
    EXPECT_HAS(refusal(in_parts(small_gpt2(8), 2)), "parallel.context = 2 does not divide");
  }
}

/// Whole samples only.
class Whole : public data::SampleSource {
 public:
  std::int64_t sample_bytes() const override { return 2 * 24 * 4; }
  void fill(std::uint64_t, std::int64_t count, void* batch) override {
    std::fill_n(static_cast<char*>(batch), count * sample_bytes(), '\0');
  }
};

TEST(Context, SamplesWithoutPartsAreRefusedInTheStep) {
  const int ranks = world_ranks();
  if (ranks != 2) GTEST_SKIP() << "takes two ranks";
  SmallRun run(in_parts(small_gpt2(8), 2));
  const std::uint64_t before = run.trainer.state_digest();
  Whole samples;
  const std::string message = testing::error_of([&] { run.trainer.step(samples, 1); });
  EXPECT_HAS(message, "samples are asked for in 2 parts");
  EXPECT_EQ(run.trainer.state_digest(), before);
}

}  // namespace
}  // namespace ostrakon::tests
