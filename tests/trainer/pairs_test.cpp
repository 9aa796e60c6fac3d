// SPDX-License-Identifier: Apache-2.0
// Everything that changes what a step computes or where its state is, each pair of choices in
// some run of five steps: its losses are those of one rank, its bytes those of its plan.
#include <gtest/gtest.h>

#include <cstdio>
#include <ostrakon/plan/ir/levels.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <string>

#include "trainer/choices.hpp"
#include "trainer/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

const std::string factors =
    "architecture 2, tied 2, precision 5, checkpointing 4, offload 4, "
    "host_activations 2, accumulation 4, clipping 2, frozen 6, groups 2, sharding 4, "
    "shard_group 3, reshard 5, optimizer 4, moments 2, non_finite 2, early 2, "
    "order 3, prefetch 3, reductions 3, blocks 2, streams 2, ranks 3, grain 3";
constexpr std::int64_t leaves = 8;

int ranks_of(const NamedRow& row) { return 1 << row["ranks"]; }

/// Whether updates overlap with backward, which is no choice of its own.
bool updates_early(const NamedRow& row) {
  const bool on_host = row["offload"] == 1 || row["offload"] == 3;
  const bool scales = row["precision"] == 2 || row["precision"] == 4;
  return on_host && row["clipping"] == 1 && row["non_finite"] == 0 && !scales;
}

/// Gradients that are rounded to be sent have the bits of other layouts of the same groups only.
bool rounds_gradients(const NamedRow& row) { return row["precision"] >= 3; }

/// What decides how gradients are summed.
plan::Policy sum_policy(const NamedRow& row) {
  plan::Policy policy;
  policy.leaves = leaves;
  policy.sum_grain = row["grain"] * 2;
  policy.shard_group = row["shard_group"] > 0 ? 2 : 0;
  policy.sharding = static_cast<plan::Sharding>(row["sharding"]);
  policy.offload = static_cast<plan::Offload>(row["offload"]);
  policy.accumulation = static_cast<plan::Accumulation>(row["accumulation"]);
  if (rounds_gradients(row)) policy.reduce = DType::bf16;
  return policy;
}

/// Not where a grain's sums differ from one rank's, or take leaves in ascending order.
bool sums_as_one_rank(const NamedRow& row) {
  const plan::Policy policy = sum_policy(row);
  const plan::Grid grid = plan::one_level(ranks_of(row), policy);
  const std::vector<plan::Span> spans = plan::sum_spans(grid, plan::accumulation_of(policy, grid));
  for (const plan::SpanSum& sum : plan::span_sums(spans, policy.sum_grain))
    if (sum.continues && row["order"] > 0) return false;
  return rounds_gradients(row) || plan::sums_as_one_rank(spans, policy.sum_grain);
}

bool is_valid(const NamedRow& row) {
  const bool has_groups = row["shard_group"] == 0 || ranks_of(row) > 2;
  // Without sharding there is nothing to divide over all ranks, and only groups of more than two
  // keep a half.
  const bool divides = row["sharding"] > 0 || row["shard_group"] < 2;
  const bool keeps = row["reshard"] != 3 ||
                     (row["sharding"] == 3 && row["shard_group"] == 0 && ranks_of(row) == 4);
  return has_groups && divides && keeps && (row["early"] == 1) == updates_early(row) &&
         sums_as_one_rank(row);
}

/// What the result may depend on.
config::Settings computed_settings(const NamedRow& row) {
  config::Settings settings = row["architecture"] == 0 ? small_gpt2(leaves) : small_llama(leaves);
  settings.training.sum_grain = sum_policy(row).sum_grain;
  settings.model.layers = 4;
  settings.model.tie_embeddings = row["tied"] == 1;
  settings.training.steps = 5;
  settings.schedule.warmup_steps = 2;
  const DType gathers[] = {DType::fp32, DType::bf16, DType::fp16, DType::bf16, DType::fp32};
  const DType reductions[] = {DType::fp32, DType::fp32, DType::fp32, DType::bf16, DType::fp16};
  settings.precision.gather = gathers[row["precision"]];
  settings.parallel.reduce = reductions[row["precision"]];
  settings.precision.loss_scale.initial = 1024.0;
  settings.optimizer.clip_norm = row["clipping"] == 0 ? 0.1 : 0.0;
  std::vector<optim::ParameterRule>& rules = settings.optimizer.parameters;
  const auto freeze = [&](const char* pattern) { rules.push_back({pattern, true, {}, {}}); };
  if (row["frozen"] == 1) freeze("embedding.*");
  if (row["frozen"] == 2) freeze("*.norm.*");
  if (row["frozen"] == 3) {
    freeze("embedding.token.*");
    freeze("block.0.*");
    freeze("block.2.attention.*");
  }
  if (row["frozen"] == 4) freeze("block.1.*");
  if (row["frozen"] == 5) {
    freeze("embedding.*");
    freeze("block.*");
  }
  if (row["groups"] == 1) {
    rules.push_back({"block.3.*", {}, 1e-3, {}});
    rules.push_back({"*.mlp.*", {}, {}, 0.02});
  }
  const optim::OptimizerKind kinds[] = {optim::OptimizerKind::adamw, optim::OptimizerKind::sgd,
                                        optim::OptimizerKind::lion, optim::OptimizerKind::muon};
  settings.optimizer.kind = kinds[row["optimizer"]];
  if (row["optimizer"] == 1) settings.optimizer.learning_rate = 0.1;
  if (row["optimizer"] == 2) settings.optimizer.learning_rate = 5e-4;
  settings.parallel.moments.dtype = row["moments"] == 0 ? DType::fp32 : DType::bf16;
  settings.stability.skip_non_finite = row["non_finite"] == 1;
  return settings;
}

void share(const NamedRow& row, config::Settings& settings) {
  if (row["shard_group"] > 0) settings.shard_group = 2;
  if (row["shard_group"] == 2) settings.parallel.shard_optimizer_over = plan::OptimizerGroup::world;
  settings.parallel.accumulation = static_cast<plan::Accumulation>(row["accumulation"]);
}

config::Settings all_settings(const NamedRow& row) {
  config::Settings settings = computed_settings(row);
  share(row, settings);
  apply_policy(row, settings);
  return settings;
}

/// The history of one rank with nothing special; or, where that has other bits, of ranks that share
/// nothing.
History reference_of(const NamedRow& row, MPI_Comm comm) {
  config::Settings settings = computed_settings(row);
  settings.parallel.sharding = plan::Sharding::none;
  if (!rounds_gradients(row)) return train_alone(settings, comm);
  share(row, settings);
  const plan::Policy policy = sum_policy(row);
  settings.parallel.accumulation =
      plan::accumulation_of(policy, plan::one_level(ranks_of(row), policy));
  return train_history(settings, comm);
}

TEST(Pairs, EveryTwoChoicesTogetherTrainAsOneRankWouldWithinTheirPlan) {
  const FirstRanks comms[] = {FirstRanks(1), FirstRanks(2), FirstRanks(4)};
  const std::vector<NamedRow> rows = covering_rows(factors, is_valid);
  EXPECT_GE(rows.size(), 25u);  // of two factors with five choices each
  for (const NamedRow& row : rows) {
    const FirstRanks& some = comms[row["ranks"]];
    if (!some.has_me()) continue;
    SCOPED_TRACE(row.text());
    const History reference = reference_of(row, some.comm());
    const History run = train_history(all_settings(row), some.comm());
    EXPECT_NE(reference.digests.back(), reference.digests.front()) << "nothing is trained";
    EXPECT_EQ(run.losses, reference.losses);
    EXPECT_EQ(run.norms, reference.norms);
    EXPECT_EQ(run.digests, reference.digests);
    EXPECT_EQ(run.validation_loss, reference.validation_loss);
  }
  std::printf("%zu rows\n", rows.size());
}

}  // namespace
