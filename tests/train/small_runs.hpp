// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdint>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/train/trainer.hpp>
#include <vector>

namespace ostrakon::tests {

constexpr plan::Sharding all_shardings[] = {plan::Sharding::none, plan::Sharding::optimizer,
                                            plan::Sharding::gradients, plan::Sharding::full};

/// Sizes of shard groups: all ranks, and every smaller number that divides them.
inline std::vector<int> groups_of(int ranks) {
  std::vector<int> groups = {mesh::world_group};
  for (int group = 1; group < ranks; ++group)
    if (ranks % group == 0) groups.push_back(group);
  return groups;
}
inline std::vector<int> groups_of_world() {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return groups_of(ranks);
}

/// The first `ranks` ranks of the world; MPI_COMM_NULL on the others. Freed with the object.
class FirstRanks {
 public:
  explicit FirstRanks(int ranks) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &comm_);
  }
  ~FirstRanks() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  FirstRanks(const FirstRanks&) = delete;
  FirstRanks& operator=(const FirstRanks&) = delete;
  MPI_Comm comm() const { return comm_; }
  bool has_me() const { return comm_ != MPI_COMM_NULL; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// A GPT-2 of odd sizes on the synthetic data set.
inline config::Settings small_gpt2(std::int64_t leaves) {
  config::Settings settings;
  model::DecoderSettings& model = settings.model;
  model.norm = math::NormKind::layernorm;
  model.positions = model::Positions::learned;
  model.activation = model::Activation::gelu;
  model.layers = 2;
  model.width = 36;
  model.heads = 3;
  model.kv_heads = 3;
  model.ffn_width = 100;
  model.vocabulary = 61;
  model.bias = true;
  model.tie_embeddings = true;
  settings.data.dataset = data::DatasetKind::synthetic;
  settings.training.sequence_length = 24;
  settings.training.micro_batch_size = 2;
  settings.training.global_batch_size = 2 * leaves;
  settings.training.steps = 20;
  settings.optimizer.learning_rate = 3e-3;
  settings.schedule.warmup_steps = 5;
  return settings;
}

/// A Llama of odd sizes.
inline config::Settings small_llama(std::int64_t leaves) {
  config::Settings settings = small_gpt2(leaves);
  model::DecoderSettings& model = settings.model;
  model.norm = math::NormKind::rmsnorm;
  model.positions = model::Positions::rotary;
  model.activation = model::Activation::swiglu;
  model.width = 40;
  model.heads = 4;
  model.kv_heads = 2;
  model.bias = false;
  model.tie_embeddings = false;
  return settings;
}

/// What a run leaves behind step by step, to compare runs with.
struct History {
  std::vector<double> losses, norms;
  std::vector<std::uint64_t> digests;
  double validation_loss = 0.0;
};

/// Trains on all ranks of `comm` for settings.training.steps steps.
inline History train_history(const config::Settings& settings, MPI_Comm comm) {
  mesh::Mesh mesh(comm, static_cast<int>(settings.ranks_per_node), settings.shard_group);
  train::Trainer trainer(settings, mesh);
  trainer.require_same_plan();
  const auto open = [&](data::Split split) {
    return data::open_dataset(settings.data, split, settings.training.sequence_length,
                              settings.model.vocabulary, settings.training.seed, mesh.world());
  };
  const auto training = open(data::Split::training);
  const auto validation = open(data::Split::validation);
  runtime::start_counting_memory();
  const runtime::MemoryCount before = runtime::memory_count();
  trainer.allocate();
  trainer.initialize();
  History history;
  for (std::int64_t step = 1; step <= settings.training.steps; ++step) {
    const train::StepResult result = trainer.step(*training, step);
    history.losses.push_back(result.loss);
    history.norms.push_back(result.grad_norm);
    history.digests.push_back(trainer.state_digest());
  }
  history.validation_loss = trainer.evaluate(*validation, 2);
  const runtime::MemoryCount after = runtime::memory_count();
  EXPECT_EQ(after.bytes - before.bytes, trainer.planned_peak_bytes());
  EXPECT_EQ(after.allocations - before.allocations, 1) << "something but the arena was allocated";
  return history;
}

}  // namespace ostrakon::tests
