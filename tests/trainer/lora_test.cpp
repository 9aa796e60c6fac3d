// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters, and frozen parameters without masters: the bits of one rank in every layout,
// within the plan's bytes. What is computed: tests/transformers/adapters_test.cpp.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "trainer/choices.hpp"
#include "trainer/comparison.hpp"

namespace ostrakon::tests {
namespace {

/// A small model with adapters of some of its layers, or of all.
config::Settings with_adapters(config::Settings settings, bool has_all) {
  settings.training.steps = 4;
  model::LoraSettings& lora = settings.model.lora;
  lora.rank = 3;
  lora.alpha = 6.0;
  if (!has_all) return settings;
  for (const model::AdaptableLayer& one : model::adaptable_layers)
    if (math::is_gated(settings.model.activation) || one.layer != std::string("mlp.gate"))
      lora.layers.insert(one.layer);
  return settings;
}

TEST(Lora, EveryLayoutHasTheBitsOfOneRank) {
  const std::vector<NamedRow> rows = covering_rows(
      "model 2, all 2, precision 2, masters 2, sharding 4, offload 4, checkpointing 4, "
      "host_activations 2, reshard 3, order 3, streams 2, optimizer 2");
  std::map<std::pair<int, int>, History> references;
  for (const NamedRow& row : rows) {
    config::Settings settings =
        with_adapters(row["model"] == 0 ? small_llama(8) : small_gpt2(8), row["all"] == 1);
    if (row["precision"] == 1) settings.precision.gather = DType::bf16;
    if (row["optimizer"] == 1) settings.optimizer.kind = optim::OptimizerKind::muon;
    const auto [known, is_new] = references.try_emplace(
        {2 * row["model"] + row["all"], 2 * row["precision"] + row["optimizer"]}, History());
    if (is_new) known->second = reference_run(settings);
    settings.parallel.frozen_without_masters = row["masters"] == 1;
    apply_policy(row, settings);
    History run = train_history(settings, MPI_COMM_WORLD);
    // Frozen parameters are in the digest where they have masters.
    if (row["masters"] == 1 && row["precision"] == 1) run.digests = known->second.digests;
    expect_same_bits(run, known->second, row.text());
  }
  std::printf("%zu rows\n", rows.size());
}

TEST(Lora, ContextAndPipelineRanksTrainAdapters) {
  const int ranks = world_ranks();
  config::Settings settings = with_adapters(small_llama(8), true);
  settings.training.micro_batch_size = 1;
  settings.training.context_grain = 4;
  settings.training.sequence_length = 32;
  const History reference = reference_run(settings);
  config::Settings parts = settings;
  parts.context = ranks;
  if (ranks <= 4) expect_same_bits(train_history(parts, MPI_COMM_WORLD), reference, "context");
  if (ranks == 1 || ranks > 4) return;
  config::Settings stages = settings;
  stages.model.layers = 4;
  const History of_one = reference_run(stages);
  for (const plan::ScheduleKind kind :
       {plan::ScheduleKind::one_forward_one_backward, plan::ScheduleKind::zero_bubble}) {
    stages.pipeline = 2;
    stages.parallel.schedule = kind;
    expect_same_bits(train_history(stages, MPI_COMM_WORLD), of_one, plan::name(kind));
  }
}

/// A frozen parameter takes two bytes, and has no moments or gradients.
TEST(Lora, FrozenParametersWithoutMastersTakeTwoBytes) {
  config::Settings settings = with_adapters(small_llama(8), false);
  settings.precision.gather = DType::bf16;
  settings.parallel.sharding = plan::Sharding::none;
  settings.parallel.frozen_without_masters = true;
  SmallRun run(settings);
  const plan::StepPlan& plan = run.trainer.program(plan::Purpose::train).plan;
  std::int64_t kept = 0, frozen = 0, trained = 0;
  for (const plan::Buffer& buffer : plan.buffers)
    if (buffer.persistent && !buffer.flats.empty()) kept += buffer.bytes;
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    frozen += plan.padded(plan.frozen(u));
    trained += plan.padded(plan.trained(u));
  }
  EXPECT_GT(frozen, 10 * trained);
  // A trained one has a copy, a master and two moments.
  EXPECT_EQ(kept, 2 * frozen + (2 + 4 + 4 + 4) * trained);
}

}  // namespace
}  // namespace ostrakon::tests
