// SPDX-License-Identifier: Apache-2.0
// Products in 8 bits: they have the bits of one rank in every layout, and train as others do.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <string>
#include <utility>

#include "support/messages.hpp"
#include "trainer/choices.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_families.hpp"

namespace ostrakon::tests {
namespace {

/// Families with biases, tied tables, gates and delta nets, whose layers are all linear.
std::vector<SmallFamily> families() {
  std::vector<SmallFamily> chosen;
  for (const SmallFamily& family : small_families())
    for (const char* name : {"Qwen2.5", "GPT-2", "Phi", "Qwen3.5"})
      if (family.name == name) chosen.push_back(family);
  return chosen;
}

/// Sizes whose sums, and pieces of sums, are blocks of 32.
void make_blocks(config::Settings& settings) {
  settings.model.width = 64;
  settings.model.heads = settings.model.kv_heads = 4;
  settings.model.head_dim = 16;
  settings.model.ffn_width = 64;
  settings.tensor_grain = 2;
  settings.training.sequence_length = 128;
  settings.training.context_grain = 4;
}

config::Settings settings_of(const SmallFamily& family, math::ProductDType dtype) {
  config::Settings settings = in_pieces(small_llama(8));
  settings.model = family.model;
  settings.training.steps = 2;
  if (dtype == math::ProductDType::mxfp8) make_blocks(settings);
  if (!family.fits_context) settings.training.context_grain = 1;
  settings.precision.products.dtype = dtype;
  return settings;
}

/// Layouts in the rows of `table` have the bits of one rank, where they are to.
void compare_layouts(const std::vector<SmallFamily>& all, math::ProductDType dtype,
                     const char* table) {
  const int ranks = world_ranks();
  const auto is_valid = [&](const NamedRow& row) {
    const SmallFamily& family = all[static_cast<std::size_t>(row["family"])];
    const int together = (1 << row["tensor"]) * (1 << row["context"]) * (1 << row["pipeline"]);
    return together <= ranks && (row["context"] == 0 || family.fits_context) &&
           (row["chunks"] == 0 || row["pipeline"] == 1 || row["tensor"] == 1);
  };
  std::map<int, History> plain_runs;
  std::map<std::pair<int, int>, History> references;
  int rows = 0, equal_rows = 0;
  for (const NamedRow& row : covering_rows(table, is_valid)) {
    const SmallFamily& family = all[static_cast<std::size_t>(row["family"])];
    config::Settings settings = settings_of(family, dtype);
    model::ProductSettings& products = settings.precision.products;
    if (row["layers"] == 1) {
      products.fp8_layers = layers("all");
      products.fp8_gradients = math::Fp8Format::e4m3;
    }
    History& reference = references[{row["family"], row["layers"]}];
    if (reference.losses.empty()) {
      reference = reference_run(settings);
      History& plain = plain_runs[row["family"]];
      if (plain.losses.empty()) {
        config::Settings others = settings;
        others.precision.products = {};
        plain = reference_run(others);
      }
      for (std::size_t i = 0; i < plain.losses.size(); ++i) {
        EXPECT_NE(plain.losses[i], reference.losses[i]) << family.name;
        EXPECT_NEAR(plain.losses[i], reference.losses[i], 1e-2 * plain.losses[i]) << family.name;
        EXPECT_NEAR(plain.norms[i], reference.norms[i], 0.1 * plain.norms[i]) << family.name;
      }
    }
    settings.tensor = 1 << row["tensor"];
    settings.tensor_chunks = row["tensor"] == 1 ? 1 + row["chunks"] : 1;
    settings.context = 1 << row["context"];
    settings.pipeline = 1 << row["pipeline"];
    if (row["chunks"] == 1 && settings.pipeline > 1)
      settings.parallel.schedule = plan::ScheduleKind::zero_bubble;
    const int shard = ranks >> (row["tensor"] + row["context"] + row["pipeline"]);
    settings.shard_group =
        static_cast<int>(settings.tensor * settings.context) * (row["group"] == 0 ? shard : 1);
    apply_policy(row, settings);
    const std::string what = family.name + ": " + row.text();
    SCOPED_TRACE(what);
    const History run = train_history(settings, MPI_COMM_WORLD);
    ++rows;
    mesh::Mesh mesh(MPI_COMM_WORLD, 0, settings.shard_group, static_cast<int>(settings.pipeline));
    if (train::make_trainer(settings, mesh)
            .program(plan::Purpose::train)
            .plan.has_the_bits_of_one_rank()) {
      ++equal_rows;
      expect_same_bits(run, reference, what);
    } else {
      EXPECT_NEAR(run.losses.back(), reference.losses.back(), 2e-3 * reference.losses.back());
    }
  }
  EXPECT_GE(equal_rows, rows / 4);
  std::printf("%d layouts, %d with equal bits\n", rows, equal_rows);
}

TEST(Fp8, HasTheBitsOfOneRankInEveryLayout) {
  const std::vector<SmallFamily> all = families();
  ASSERT_EQ(all.size(), 4u);
  compare_layouts(all, math::ProductDType::fp8,
                  "family 4, tensor 2, context 2, pipeline 2, group 2, checkpointing 5, "
                  "host_activations 2, offload 4, sharding 4, blocks 2, streams 2, chunks 2, "
                  "layers 2");
}

TEST(Mxfp8, HasTheBitsOfOneRankInEveryLayout) {
  std::vector<SmallFamily> all = families();
  all.resize(2);  // others have sums of other lengths
  compare_layouts(all, math::ProductDType::mxfp8,
                  "family 2, tensor 2, context 2, pipeline 2, group 2, checkpointing 3, "
                  "host_activations 1, offload 1, sharding 4, blocks 2, streams 2, chunks 2, "
                  "layers 2");
}

TEST(Fp8, LayersAreThoseThatAreNamed) {
  config::Settings settings = small_llama(world_ranks());
  settings.model.layers = 3;
  settings.training.steps = 1;
  const auto loss = [&](math::ProductDType dtype, const char* pattern) {
    settings.precision.products.dtype = dtype;
    settings.precision.products.fp8_layers.reset();
    if (*pattern != '\0') settings.precision.products.fp8_layers = layers(pattern);
    return train_history(settings, MPI_COMM_WORLD).losses.front();
  };
  const double plain = loss(math::ProductDType::as_stored, "");
  EXPECT_EQ(loss(math::ProductDType::fp8, "none"), plain);
  EXPECT_EQ(loss(math::ProductDType::fp8, ""), loss(math::ProductDType::fp8, "1"));
  EXPECT_NE(loss(math::ProductDType::fp8, "1"), plain);
  EXPECT_NE(loss(math::ProductDType::fp8, "all"), loss(math::ProductDType::fp8, "1"));
}

TEST(Fp8, TrainsAsBf16Does) {
  config::Settings settings = small_llama(world_ranks());
  settings.model.layers = 4;
  settings.training.steps = 20;
  settings.precision.gather = DType::bf16;
  for (const auto dtype : {math::ProductDType::fp8, math::ProductDType::mxfp8}) {
    if (dtype == math::ProductDType::mxfp8) make_blocks(settings);
    settings.tensor_grain = settings.training.context_grain = 1;
    settings.precision.products.dtype = math::ProductDType::as_stored;
    const History plain = train_history(settings, MPI_COMM_WORLD);
    settings.precision.products.dtype = dtype;
    const History run = train_history(settings, MPI_COMM_WORLD);
    EXPECT_NE(run.losses.back(), plain.losses.back());
    EXPECT_LT(run.losses.back(), run.losses.front());
    EXPECT_NEAR(run.losses.back(), plain.losses.back(), 1e-2 * plain.losses.back());
  }
}

TEST(Mxfp8, RefusesSumsThatAreNoBlocks) {
  const auto refusal = [](const auto& change) {
    config::Settings settings = in_pieces(small_llama(world_ranks()));
    settings.precision.products.dtype = math::ProductDType::mxfp8;
    settings.precision.products.fp8_layers = layers("all");
    make_blocks(settings);
    change(settings);
    return testing::error_of([&] { train_history(settings, MPI_COMM_WORLD); });
  };
  EXPECT_HAS(refusal([](auto& s) { s.tensor_grain = 4; }),
             "expected multiples of 32 (model.tensor_grain divides them)");
  EXPECT_HAS(refusal([](auto& s) { s.training.context_grain = 8; }),
             "sums over 16 tokens; expected a multiple of 32 (training.context_grain divides");
}

}  // namespace
}  // namespace ostrakon::tests
