// SPDX-License-Identifier: Apache-2.0
// Leaves that are sequences or pieces of them: the same bits however many a rank computes at once,
// and however many ranks share a sequence.
#include <gtest/gtest.h>

#include <ostrakon/saving/saver.hpp>
#include <string>

#include "trainer/choices.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

using config::Leaf;

/// Eight sequences of 32 tokens: GPT-2 and Llama, tied and untied.
std::vector<config::Settings> small_models(std::int64_t steps) {
  std::vector<config::Settings> all = {small_gpt2(8), small_llama(8), small_gpt2(8),
                                       small_llama(8)};
  all[2].model.tie_embeddings = false;
  all[3].model.tie_embeddings = true;
  for (config::Settings& settings : all) {
    settings.training.steps = steps;
    settings.training.sequence_length = 32;
    settings.training.global_batch_size = 8;
    settings.training.micro_batch_size = 1;
  }
  return all;
}

std::string shape(const config::Settings& settings) {
  return text(settings.model.positions == model::Positions::learned ? "GPT-2" : "Llama",
              settings.model.tie_embeddings ? ", tied" : ", untied");
}

void expect_near(const History& one, const History& other, const std::string& what) {
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(one.losses[i], other.losses[i], 2e-6 * one.losses[i]) << what << ", step " << i;
    EXPECT_NEAR(one.norms[i], other.norms[i], 2e-5 * one.norms[i]) << what << ", step " << i;
  }
}

TEST(Leaf, SequencesHaveTheSameBitsInMicroBatchesOfAnySize) {
  for (config::Settings settings : small_models(10)) {
    const History by_micro_batch = reference_run(settings);
    settings.training.leaf = Leaf::sequence;
    const History one = reference_run(settings);
    expect_near(one, by_micro_batch, shape(settings));
    for (const std::int64_t size : {1, 2, 4, 8}) {
      if (8 / size < world_ranks()) continue;
      config::Settings run = settings;
      run.training.micro_batch_size = size;
      for (const plan::Sharding sharding : {plan::Sharding::none, plan::Sharding::full}) {
        run.parallel.sharding = sharding;
        expect_same_bits(train_history(run, MPI_COMM_WORLD), one,
                         text(shape(run), ", ", size, " sequences, ", name(sharding)));
      }
    }
    settings.training.micro_batch_size = 2;
    settings.training.leaf = Leaf::micro_batch;
    EXPECT_NE(reference_run(settings).digests.back(), one.digests.back()) << "other sums";
  }
}

TEST(Leaf, PiecesHaveTheSameBitsAtEveryContext) {
  for (config::Settings settings : small_models(10)) {
    const History whole = reference_run(settings);
    settings.training.context_grain = 8;
    const History one = reference_run(settings);
    expect_near(one, whole, shape(settings));
    EXPECT_EQ(one.losses.front(), whole.losses.front()) << "forward has the same bits";
    for (std::int64_t context = 1; context <= world_ranks(); context *= 2) {
      config::Settings run = settings;
      run.context = context;
      if (world_ranks() % context != 0) continue;
      for (const plan::Sharding sharding : {plan::Sharding::none, plan::Sharding::full}) {
        run.parallel.sharding = sharding;
        expect_same_bits(train_history(run, MPI_COMM_WORLD), one,
                         text(shape(run), ", context ", context, ", ", name(sharding)));
      }
    }
    // Several sequences at once, each in pieces.
    config::Settings run = settings;
    run.training.leaf = Leaf::sequence;
    run.training.micro_batch_size = 2;
    expect_same_bits(train_history(run, MPI_COMM_WORLD), one, shape(run) + ", 2 sequences");
  }
}

/// Pairs of all settings that could change the order of sums, or where gradients are.
TEST(Leaf, EveryLayoutHasTheBitsOfOneRank) {
  const std::vector<config::Settings> models = small_models(3);
  std::vector<History> references;
  for (config::Settings settings : models) {
    settings.training.leaf = Leaf::sequence;
    settings.training.context_grain = 4;
    for (const std::int64_t sum_grain : {0, 4}) {
      settings.training.sum_grain = sum_grain;
      references.push_back(reference_run(settings));
    }
  }
  const int ranks = world_ranks();
  const auto possible = [&](const NamedRow& row) {
    const int share = 1 << row["context"], size = 1 << row["batch"];
    if (ranks % share != 0 || (share > 1 && size > 1)) return false;
    const int micro_batches = 8 / size * share / ranks;
    if (micro_batches == 0) return false;
    if (share > 1 && micro_batches > 1 && row["accumulation"] == 3) return false;
    if (row["group"] == 1 && (ranks < 2 || 2 % share != 0)) return false;
    return true;
  };
  int compared = 0;
  for (const NamedRow& row : covering_rows(
           "model 4, context 3, batch 3, sharding 4, group 2, offload 4, checkpointing 4, "
           "accumulation 4, grain 2",
           possible)) {
    config::Settings run = models[row["model"]];
    run.training.leaf = Leaf::sequence;
    run.training.context_grain = 4;
    run.training.sum_grain = 4 * row["grain"];
    run.context = std::int64_t{1} << row["context"];
    run.training.micro_batch_size = std::int64_t{1} << row["batch"];
    apply_policy(row, run);
    run.shard_group = row["group"] == 0 ? mesh::world_group : 2;
    const std::string what = shape(run) + ": " + row.text();
    SmallRun planned(run);
    if (!planned.trainer.program(plan::Purpose::train).plan.has_the_bits_of_one_rank()) continue;
    ++compared;
    expect_same_bits(train_history(run, MPI_COMM_WORLD),
                     references[2 * row["model"] + row["grain"]], what);
  }
  EXPECT_GE(compared, 10);
}

}  // namespace
}  // namespace ostrakon::tests
