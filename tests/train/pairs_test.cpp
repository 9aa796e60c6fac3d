// SPDX-License-Identifier: Apache-2.0
// Everything that changes what a step computes or where its state is, each pair of choices in
// some run of five steps: its losses are those of one rank, its bytes those of its plan.
#include <gtest/gtest.h>

#include <cstdio>
#include <ostrakon/plan/ir/levels.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <string>

#include "support/covering.hpp"
#include "train/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

enum Factor {
  architecture,
  tied,
  precision,
  checkpointing,
  offload,
  activations,
  accumulation,
  clipping,
  frozen,
  groups,
  sharding,
  shard_group,
  reshard,
  optimizer,
  moments,
  non_finite,
  early,
  leaf_order,
  prefetch,
  reductions,
  blocks,
  streams,
  ranks,
  grain,
  factors
};
const std::vector<int> choices_of = {2, 2, 5, 4, 4, 2, 4, 2, 6, 2, 4, 3,
                                     5, 4, 2, 2, 2, 3, 3, 3, 2, 2, 3, 3};
constexpr std::int64_t leaves = 8;
const char* const names[factors] = {
    "architecture", "tied",       "precision", "checkpointing", "offload",  "activations",
    "accumulation", "clipping",   "frozen",    "groups",        "sharding", "shard group",
    "reshard",      "optimizer",  "moments",   "non-finite",    "early",    "leaf order",
    "prefetch",     "reductions", "blocks",    "streams",       "ranks",    "grain"};

int ranks_of(const Choices& row) { return 1 << row[ranks]; }

/// Whether updates overlap with backward, which is no choice of its own.
bool updates_early(const Choices& row) {
  const bool on_host = row[offload] == 1 || row[offload] == 3;
  const bool scales = row[precision] == 2 || row[precision] == 4;
  return on_host && row[clipping] == 1 && row[non_finite] == 0 && !scales;
}

/// Gradients that are rounded to be sent have the bits of other layouts of the same groups only.
bool rounds_gradients(const Choices& row) { return row[precision] >= 3; }

/// What decides how gradients are summed.
plan::Policy sum_policy(const Choices& row) {
  plan::Policy policy;
  policy.leaves = leaves;
  policy.sum_grain = row[grain] * 2;
  policy.shard_group = row[shard_group] > 0 ? 2 : 0;
  policy.sharding = static_cast<plan::Sharding>(row[sharding]);
  policy.offload = static_cast<plan::Offload>(row[offload]);
  policy.accumulation = static_cast<plan::Accumulation>(row[accumulation]);
  if (rounds_gradients(row)) policy.reduce = DType::bf16;
  return policy;
}

/// Not where a grain's sums differ from one rank's, or take leaves in ascending order.
bool sums_as_one_rank(const Choices& row) {
  const plan::Policy policy = sum_policy(row);
  const plan::Grid grid = plan::one_level(ranks_of(row), policy);
  const std::vector<plan::Span> spans = plan::sum_spans(grid, plan::accumulation_of(policy, grid));
  for (const plan::SpanSum& sum : plan::span_sums(spans, policy.sum_grain))
    if (sum.continues && row[leaf_order] > 0) return false;
  return rounds_gradients(row) || plan::sums_as_one_rank(spans, policy.sum_grain);
}

bool is_valid(const Choices& row) {
  const bool has_groups = row[shard_group] == 0 || ranks_of(row) > 2;
  // Without sharding there is nothing to divide over all ranks, and only groups of more than two
  // keep a half.
  const bool divides = row[sharding] > 0 || row[shard_group] < 2;
  const bool keeps =
      row[reshard] != 3 || (row[sharding] == 3 && row[shard_group] == 0 && ranks_of(row) == 4);
  return has_groups && divides && keeps && (row[early] == 1) == updates_early(row) &&
         sums_as_one_rank(row);
}

/// What the result may depend on.
config::Settings computed_settings(const Choices& row) {
  config::Settings settings = row[architecture] == 0 ? small_gpt2(leaves) : small_llama(leaves);
  settings.training.sum_grain = sum_policy(row).sum_grain;
  settings.model.layers = 4;
  settings.model.tie_embeddings = row[tied] == 1;
  settings.training.steps = 5;
  settings.schedule.warmup_steps = 2;
  const DType gathers[] = {DType::fp32, DType::bf16, DType::fp16, DType::bf16, DType::fp32};
  const DType reductions[] = {DType::fp32, DType::fp32, DType::fp32, DType::bf16, DType::fp16};
  settings.precision.gather = gathers[row[precision]];
  settings.parallel.reduce = reductions[row[precision]];
  settings.precision.loss_scale.initial = 1024.0;
  settings.optimizer.clip_norm = row[clipping] == 0 ? 0.1 : 0.0;
  std::vector<optim::ParameterRule>& rules = settings.optimizer.parameters;
  const auto freeze = [&](const char* pattern) { rules.push_back({pattern, true, {}, {}}); };
  if (row[frozen] == 1) freeze("embedding.*");
  if (row[frozen] == 2) freeze("*.norm.*");
  if (row[frozen] == 3) {
    freeze("embedding.token.*");
    freeze("block.0.*");
    freeze("block.2.attention.*");
  }
  if (row[frozen] == 4) freeze("block.1.*");
  if (row[frozen] == 5) {
    freeze("embedding.*");
    freeze("block.*");
  }
  if (row[groups] == 1) {
    rules.push_back({"block.3.*", {}, 1e-3, {}});
    rules.push_back({"*.mlp.*", {}, {}, 0.02});
  }
  const optim::OptimizerKind kinds[] = {optim::OptimizerKind::adamw, optim::OptimizerKind::sgd,
                                        optim::OptimizerKind::lion, optim::OptimizerKind::muon};
  settings.optimizer.kind = kinds[row[optimizer]];
  if (row[optimizer] == 1) settings.optimizer.learning_rate = 0.1;
  if (row[optimizer] == 2) settings.optimizer.learning_rate = 5e-4;
  settings.parallel.moments.dtype = row[moments] == 0 ? DType::fp32 : DType::bf16;
  settings.stability.skip_non_finite = row[non_finite] == 1;
  return settings;
}

void share(const Choices& row, config::Settings& settings) {
  if (row[shard_group] > 0) settings.shard_group = 2;
  if (row[shard_group] == 2) settings.parallel.shard_optimizer_over = plan::OptimizerGroup::world;
  settings.parallel.accumulation = static_cast<plan::Accumulation>(row[accumulation]);
}

config::Settings all_settings(const Choices& row) {
  config::Settings settings = computed_settings(row);
  share(row, settings);
  plan::PolicyChoices& policy = settings.parallel;
  policy.activation_checkpointing.every = row[checkpointing] == 3 ? 0 : row[checkpointing];
  if (row[checkpointing] == 3) settings.recompute = {true, true, true};
  policy.offload = static_cast<plan::Offload>(row[offload]);
  policy.offload_activations = row[activations] == 1;
  policy.sharding = static_cast<plan::Sharding>(row[sharding]);
  policy.reshard_after_forward.kind = static_cast<plan::Reshard::Kind>(row[reshard]);
  policy.reshard_after_forward.ranks = 2;
  policy.leaf_order = static_cast<plan::LeafOrder>(row[leaf_order]);
  policy.forward_prefetch.depth = policy.backward_prefetch.depth = row[prefetch];
  policy.in_flight_reductions = row[reductions];
  settings.model.blocks_per_unit = 1 + row[blocks];
  settings.runtime.streams = row[streams] == 0 ? config::StreamsChoice::in_plan_order : on_threads;
  return settings;
}

/// The history of one rank with nothing special; or, where that has other bits, of ranks that share
/// nothing.
History reference_of(const Choices& row, MPI_Comm comm) {
  config::Settings settings = computed_settings(row);
  settings.parallel.sharding = plan::Sharding::none;
  if (!rounds_gradients(row)) return train_alone(settings, comm);
  share(row, settings);
  const plan::Policy policy = sum_policy(row);
  settings.parallel.accumulation =
      plan::accumulation_of(policy, plan::one_level(ranks_of(row), policy));
  return train_history(settings, comm);
}

std::string describe(const Choices& row) {
  std::string text;
  for (int f = 0; f < factors; ++f)
    text += (f > 0 ? ", " : "") + std::string(names[f]) + " " + std::to_string(row[f]);
  return text;
}

TEST(Pairs, EveryTwoChoicesTogetherTrainAsOneRankWouldWithinTheirPlan) {
  const FirstRanks comms[] = {FirstRanks(1), FirstRanks(2), FirstRanks(4)};
  const std::vector<Choices> rows = covering_rows(choices_of, is_valid);
  EXPECT_GE(rows.size(), 25u);  // of two factors with five choices each
  for (const Choices& row : rows) {
    const FirstRanks& some = comms[row[ranks]];
    if (!some.has_me()) continue;
    SCOPED_TRACE(describe(row));
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
