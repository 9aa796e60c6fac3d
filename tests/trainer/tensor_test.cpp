// SPDX-License-Identifier: Apache-2.0
// Units that tensor ranks compute together: the same bits on any number of them, with context,
// sharding and replicas, and with everything else.
#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <string>

#include "support/messages.hpp"
#include "trainer/choices.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

std::vector<config::Settings> models(std::int64_t steps) {
  std::vector<config::Settings> all = {in_pieces(small_gpt2(8)), in_pieces(small_llama(8)),
                                       in_pieces(small_gpt2(8)), in_pieces(small_llama(8))};
  all[1].model.heads = 16;  // of 3 columns would be odd
  all[1].model.width = 64;
  all[2].model.tie_embeddings = false;
  all[3].model.tie_embeddings = true;
  for (const std::size_t m : {2, 3}) {
    all[m].model.head_dim = 16;
    all[m].model.query_key_norm = model::QueryKeyNorm::head;
  }
  all.push_back(all[1]);
  with_scores(all.back().model);
  for (config::Settings& settings : all) settings.training.steps = steps;
  return all;
}

std::string shape(const config::Settings& settings) {
  return text(settings.model.positions == model::Positions::learned ? "GPT-2" : "Llama",
              settings.model.tie_embeddings ? ", tied" : ", untied",
              settings.model.query_key_norm != model::QueryKeyNorm::none
                  ? ", norms of queries and keys"
                  : "",
              settings.model.attention_sinks ? ", scores" : "");
}

/// How ranks are divided: their product is the number of ranks.
struct Division {
  int tensor, context, shard, replicas;
  int chunks = 1;  // in which tensor ranks exchange rows

  config::Settings apply(config::Settings settings) const {
    settings.tensor = tensor;
    settings.tensor_chunks = tensor > 1 ? chunks : 1;
    settings.context = context;
    settings.shard_group = tensor * context * shard;
    return settings;
  }
  std::string text() const {
    return ostrakon::text("tensor ", tensor, ", context ", context, ", shard ", shard,
                          ", replicas ", replicas, ", chunks ", chunks);
  }
};

std::vector<Division> divisions(int ranks) {
  std::vector<Division> all;
  for (int tensor = 1; tensor <= std::min(ranks, 8); tensor *= 2)
    for (int context = 1; tensor * context <= ranks && context <= 8; context *= 2)
      for (int shard = 1; tensor * context * shard <= ranks; shard *= 2)
        if (ranks / (tensor * context) <= 8)  // sequences
          all.push_back(
              {tensor, context, shard, ranks / (tensor * context * shard), 1 << all.size() % 3});
  return all;
}

bool is_near(double a, double b, double part) { return std::abs(a - b) <= part * std::abs(b); }

/// Checks as train_history does: bytes as planned, nothing allocated.
void expect_bits_of_one_rank(const config::Settings& settings, const Division& division,
                             const History& one) {
  const std::string what = text(shape(settings), ": ", division.text());
  expect_same_bits(train_history(division.apply(settings), MPI_COMM_WORLD), one, what);
}

TEST(Tensor, PiecesChangeSumsAloneAndLittle) {
  if (world_ranks() > 1) GTEST_SKIP() << "on one rank";
  for (config::Settings settings : models(10)) {
    settings.training.context_grain = 1;
    const History pieces = reference_run(settings);
    settings.tensor_grain = 1;
    const History whole = reference_run(settings);
    EXPECT_NE(pieces.digests.back(), whole.digests.back()) << "other sums";
    for (std::size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_TRUE(is_near(pieces.losses[i], whole.losses[i], 2e-6)) << shape(settings) << i;
      EXPECT_TRUE(is_near(pieces.norms[i], whole.norms[i], 2e-5)) << shape(settings) << i;
    }
  }
}

TEST(Tensor, EveryDivisionOfTheRanksHasTheBitsOfOneRank) {
  const int ranks = world_ranks();
  if (ranks == 3) GTEST_SKIP() << "no power of two";
  const std::vector<config::Settings> all = models(ranks > 1 ? 3 : 10);
  std::size_t next = 0;
  std::vector<History> one(all.size());
  for (std::size_t m = 0; m < all.size(); ++m) one[m] = reference_run(all[m]);
  for (const Division& division : divisions(ranks)) {
    // Every model with two ranks; with more, one after the other.
    for (std::size_t m = 0; m < all.size(); ++m)
      if (ranks <= 2 || m == next % all.size()) expect_bits_of_one_rank(all[m], division, one[m]);
    ++next;
  }
}

/// Products of rows by whole weights, and keys of all heads that pieces have gradients of.
TEST(Tensor, LatentAttentionHasTheBitsOfOneRank) {
  const int ranks = world_ranks();
  if (ranks == 3) GTEST_SKIP() << "no power of two";
  config::Settings settings = in_pieces(small_llama(8));
  settings.model.width = 64;
  settings.model.heads = 16;
  with_latents(settings.model);
  settings.training.steps = 3;
  const History one = reference_run(settings);
  std::vector<Division> all = divisions(ranks);
  if (ranks == 2) all.push_back({2, 1, 1, 1, 4});
  for (const Division& division : all) expect_bits_of_one_rank(settings, division, one);
}

/// On 2, 4, 8 and 16 ranks, every model: runs when it is asked for.
TEST(Tensor, DISABLED_EveryDivisionOfAnyNumberOfRanksHasTheBitsOfOneRank) {
  for (int ranks = 2; ranks <= world_ranks(); ranks *= 2) {
    const WorldGroup group(ranks);
    int next = 0;
    for (const config::Settings& settings : models(10)) {
      const History one = reference_run(settings);
      int n = 0;
      for (const Division& division : divisions(ranks)) {
        if (ranks == 16 && n++ % 3 != 0) continue;
        if (next++ % group.groups() != group.index()) continue;
        expect_same_bits(train_history(division.apply(settings), group.comm()), one,
                         text(shape(settings), ": ", division.text()));
      }
    }
  }
}

TEST(Tensor, AllElseHasTheBitsOfOneRankWithIt) {
  const int ranks = world_ranks();
  if (ranks == 3) GTEST_SKIP() << "no power of two";
  const std::vector<config::Settings> all = models(2);
  const std::string factors =
      "model 5, tensor 3, context 2, group 2, sharding 4, offload 4, "
      "host_activations 2, checkpointing 5, reshard 3, blocks 2, streams 2, "
      "accumulation 3, optimizer 3, frozen 3, precision 3, sequences 2, grain 2, "
      "chunks 3";
  const auto is_valid = [&](const NamedRow& row) {
    const int together = (1 << row["tensor"]) * (1 << row["context"]);
    return together <= ranks && (row["sequences"] == 0 || row["context"] == 0) &&
           (row["context"] == 0 || row["accumulation"] != 2);
  };
  for (const NamedRow& row : covering_rows(factors, is_valid)) {
    config::Settings settings = all[static_cast<std::size_t>(row["model"])];
    plan::PolicyChoices& policy = settings.parallel;
    settings.model.blocks_per_unit = 1 + row["blocks"];
    settings.precision.gather = static_cast<DType>(row["precision"]);
    settings.precision.loss_scale.initial = 1024.0;
    if (row["optimizer"] == 1) settings.optimizer.kind = optim::OptimizerKind::muon;
    if (row["optimizer"] == 2) settings.optimizer.kind = optim::OptimizerKind::lion;
    policy.moments.dtype = row["optimizer"] == 1 ? DType::bf16 : DType::fp32;
    if (row["frozen"] == 1) settings.optimizer.parameters = {{"embedding.*", true, {}, {}}};
    if (row["frozen"] == 2)
      settings.optimizer.parameters = {{"block.0.*norm.weight", true, {}, {}}};
    if (row["sequences"] == 1) {
      settings.training.context_grain = 1;
      settings.training.leaf = config::Leaf::sequence;
    }
    settings.training.sum_grain = row["grain"] == 0 ? 0 : 4;
    const History one = reference_run(settings);
    const Division division{1 << row["tensor"], 1 << row["context"],
                            row["group"] == 0 ? ranks >> (row["tensor"] + row["context"]) : 1, 0,
                            1 << row["chunks"]};
    config::Settings run = division.apply(settings);
    apply_policy(row, run);
    if (row["sequences"] == 1) run.training.micro_batch_size = 2;
    const std::string what = shape(run) + ": " + row.text();
    if (8 / run.training.micro_batch_size * run.context * run.tensor < ranks) continue;
    const History history = train_history(run, MPI_COMM_WORLD);
    mesh::Mesh mesh(MPI_COMM_WORLD, 0, run.shard_group);
    const bool equal = train::make_trainer(run, mesh)
                           .program(plan::Purpose::train)
                           .plan.has_the_bits_of_one_rank();
    if (equal && row["precision"] == 0)
      expect_same_bits(history, one, what);
    else
      EXPECT_TRUE(is_near(history.losses.back(), one.losses.back(), 1e-3)) << what;
  }
}

TEST(Tensor, ThreeRanksAgreeToRoundingAndSaySo) {
  if (world_ranks() != 3) GTEST_SKIP() << "on three ranks";
  config::Settings settings = small_gpt2(8);  // 3 heads, of 12
  settings.model.ffn_width = 99;
  settings.training.steps = 10;
  const History one = reference_run(settings);
  settings.tensor = 3;
  const History run = train_history(settings, MPI_COMM_WORLD);
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_TRUE(is_near(run.losses[i], one.losses[i], 2e-6)) << i;
    EXPECT_TRUE(is_near(run.norms[i], one.norms[i], 2e-5)) << i;
  }
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  const train::Trainer trainer = train::make_trainer(settings, mesh);
  EXPECT_EQ(plan::describe_sums(trainer.program(plan::Purpose::train).plan),
            "equal to 1 rank up to rounding");
}

/// A block sends vectors of width, and rows of it, for each micro-batch; of norms of queries and
/// keys gradients of each leaf.
TEST(Tensor, TrafficIsRowsAndVectors) {
  const int ranks = world_ranks();
  if (ranks == 1 || ranks == 3) GTEST_SKIP() << "divides by two";
  struct Case {
    int every, chunks, leaves;
    bool has_head_norms;
  };
  for (const auto& [every, chunks, leaves, has_head_norms] :
       {Case{0, 1, 1, false}, Case{1, 1, 1, false}, Case{0, 4, 1, false}, Case{1, 4, 1, false},
        Case{0, 1, 1, true}, Case{1, 4, 4, true}}) {
    config::Settings settings = in_pieces(small_llama(8));
    settings.tensor_chunks = chunks;
    settings.model.heads = 16;
    settings.model.width = 64;
    settings.model.head_dim = 8;
    settings.model.query_key_norm =
        has_head_norms ? model::QueryKeyNorm::head : model::QueryKeyNorm::none;
    settings.training.context_grain = leaves;
    settings.parallel.activation_checkpointing.every = every;
    settings.tensor = ranks;
    SmallRun run(settings);
    run.step(1);
    const plan::StepPlan& plan = run.trainer.program(plan::Purpose::train).plan;
    const plan::Span all{plan::Axis::tensor, ranks};
    EXPECT_EQ(run.trainer.bytes_sent(all), bytes_sent(plan, all));
    const std::int64_t width = settings.model.width, rows = settings.training.sequence_length;
    const std::int64_t heads = has_head_norms ? 2 * settings.model.head_width() : 0;
    const std::int64_t vectors = 2 * width + heads, matrix = rows * width;
    const std::int64_t sums = 2 * width + leaves * heads;
    // Gathers in forward: vectors, two of rows, two sums of rows; again but the last sum. In
    // backward four gathers of rows, two sums, and the sum of vectors.
    const std::int64_t block =
        (vectors + 4 * matrix) + every * (vectors + 3 * matrix) + (4 * matrix + 2 * matrix + sums);
    const std::int64_t embedding = 2 * matrix;
    const std::int64_t head = width + matrix + 8 * 3 * rows + matrix + width;
    const std::int64_t floats = settings.model.layers * block + embedding + head;
    std::int64_t exchanged = 0;
    for (const plan::Action& action : plan.actions)
      if (action.kind == plan::Kind::exchange) exchanged += plan.bytes_sent(action);
    EXPECT_EQ(exchanged, plan.grid.micro_batches() * floats * 4 / ranks * (ranks - 1));
  }
}

/// A rank has its part of state and of what is saved for backward, but for vectors. Peaks have also
/// whole rows, which are gathered.
TEST(Tensor, MemoryOfARankIsItsPart) {
  const int ranks = world_ranks();
  if (ranks == 1 || ranks == 3) GTEST_SKIP() << "divides by two";
  config::Settings settings = in_pieces(small_gpt2(8));
  settings.training.context_grain = 1;
  struct Bytes {
    std::int64_t state = 0, saved = 0, peak = 0;
  };
  const auto bytes = [&](MPI_Comm comm) {
    mesh::Mesh mesh(comm);
    const train::Trainer trainer = train::make_trainer(settings, mesh);
    Bytes found;
    found.peak = trainer.planned_peak_bytes();
    for (const plan::Buffer& buffer : trainer.program(plan::Purpose::train).plan.buffers) {
      if (buffer.persistent && !buffer.flats.empty()) found.state += buffer.bytes;
      if (buffer.name == "block.0 saved") found.saved = buffer.bytes;
    }
    return found;
  };
  const Bytes whole = bytes(MPI_COMM_SELF);
  settings.tensor = ranks;
  const Bytes part = bytes(MPI_COMM_WORLD);
  EXPECT_EQ(part.state, whole.state / ranks);
  const std::int64_t vectors = 16 * settings.model.width * 4;
  EXPECT_LE(part.saved, whole.saved / ranks + vectors);
  EXPECT_LT(part.peak, whole.peak / ranks * 2);
}

TEST(Tensor, WhatCannotBeIsRefused) {
  const int ranks = world_ranks();
  config::Settings settings = small_gpt2(8);
  settings.tensor = 5;
  EXPECT_HAS(refusal(settings), "heads 3 can't be cut into 5 pieces");
  settings = in_pieces(small_gpt2(8));
  settings.tensor = 8;
  if (ranks < 8) {
    EXPECT_HAS(refusal(settings), "parallel.tensor = 8 does not divide the");
  }
  settings.tensor_chunks = 3;
  settings.tensor = 2;
  EXPECT_HAS(refusal(settings), "the 64 rows of a tensor rank can't be cut into 3 chunks");
  settings.tensor_chunks = 1;
  settings.tensor_grain = 4;
  settings.tensor = 3;
  EXPECT_HAS(refusal(settings), "a tensor grain of 4 can't be divided over 3 ranks");
}

}  // namespace
}  // namespace ostrakon::tests
