// SPDX-License-Identifier: Apache-2.0
// Weights that are gathered in 8 bits are those that a rank would round after a gather, in every
// layout.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <ostrakon/math/fp8/blocks.hpp>
#include <string>
#include <utility>

#include "support/device_array.hpp"
#include "support/messages.hpp"
#include "trainer/choices.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_families.hpp"

namespace ostrakon::tests {
namespace {

/// Blocks of four layers, of which the second and the third have 8 bits.
config::Settings in_8_bits(config::Settings settings, math::ProductDType dtype) {
  settings.model.layers = 4;
  settings.training.steps = 2;
  settings.precision.gather = DType::bf16;
  settings.precision.products.dtype = dtype;
  settings.precision.products.fp8_gather = true;
  if (dtype == math::ProductDType::mxfp8) {
    settings.model.width = settings.model.ffn_width = 64;
    settings.model.heads = settings.model.kv_heads = 4;
    settings.training.sequence_length = 32;
  }
  return settings;
}

/// Values of a run's parameters by name; weights of layers with 8 bits rounded in blocks of 32, by
/// the kernels of products in 8 bits.
class RoundedMasters : public checkpoint::ParameterSource {
 public:
  RoundedMasters(train::Trainer& trainer, const model::ProductSettings& products,
                 std::int64_t layers) {
    trainer.visit_parameters([&](int u, View<const float*> trained, View<const float*> frozen) {
      for (const model::Parameter& parameter : trainer.model().parameters(u)) {
        std::vector<float>& values = values_[parameter.full_name()];
        values = trainer.values_of(u, parameter, trained, frozen);
        for (std::int64_t layer = 0; layer < layers; ++layer)
          if (parameter.shape.size() == 2 && products.are_8bit(layer, layers) &&
              parameter.owner == "block." + std::to_string(layer))
            round(values);
      }
    });
  }
  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>&, std::int64_t first, std::int64_t count,
            float* values) override {
    std::copy_n(values_.at(owner + "." + parameter).begin() + first, count, values);
  }
  void verify() override {}

 private:
  static void round(std::vector<float>& values) {
    std::vector<float> padded = values;
    padded.resize((values.size() + 31) / 32 * 32);
    const auto rows = static_cast<std::int64_t>(padded.size()) / 32;
    const test::DeviceArray<float> x(padded), y(static_cast<std::int64_t>(padded.size()));
    math::round_row_blocks<float>(Exec(), math::Fp8Format::e4m3, x.matrix(rows, 32),
                                  y.matrix(rows, 32));
    padded = y.host();
    std::copy_n(padded.begin(), values.size(), values.begin());
  }

  std::map<std::string, std::vector<float>> values_;
};

/// A step has the bits of one with weights that were rounded before, and gathered in 16 bits.
TEST(Fp8Gather, IsRoundingOfMasters) {
  for (const auto dtype : {math::ProductDType::fp8, math::ProductDType::mxfp8})
    for (const config::Settings& small : {small_gpt2(8), small_llama(8)}) {
      config::Settings settings = in_8_bits(small, dtype);
      SmallRun run(settings);
      RoundedMasters rounded(run.trainer, settings.precision.products, settings.model.layers);
      const double validated = run.trainer.evaluate(*run.validation, 1);
      const train::StepResult in_8 = run.step(1);
      settings.precision.products.fp8_gather = false;
      SmallRun other(settings);
      const train::StepResult not_rounded = other.step(1);
      SmallRun after(settings);
      after.trainer.initialize(&rounded);
      EXPECT_EQ(after.trainer.evaluate(*after.validation, 1), validated);
      const train::StepResult in_16 = after.step(1);
      EXPECT_EQ(in_8.loss, in_16.loss);
      EXPECT_EQ(in_8.grad_norm, in_16.grad_norm);
      EXPECT_NE(in_8.grad_norm, not_rounded.grad_norm);
      EXPECT_NEAR(in_8.loss, not_rounded.loss, 1e-2 * not_rounded.loss);
    }
}

/// Of one piece of each weight, of two pieces on one rank, or on two.
int tensor_ranks(const NamedRow& row) { return row["tensor"] == 2 ? 2 : 1; }

std::int64_t gathered_bytes(const plan::StepPlan& plan, int unit) {
  std::int64_t bytes = 0;
  for (const plan::Action& action : plan.actions)
    if (action.kind == plan::Kind::gather && action.unit == unit) bytes += plan.bytes_sent(action);
  return bytes;
}

TEST(Fp8Gather, HasTheBitsOfOneRankInEveryLayout) {
  const int ranks = world_ranks();
  const std::vector<config::Settings> small = {in_pieces(small_gpt2(8)), in_pieces(small_llama(8))};
  const auto is_valid = [&](const NamedRow& row) {
    return tensor_ranks(row) * (1 << row["context"]) * (1 << row["pipeline"]) <= ranks;
  };
  std::map<std::pair<int, int>, History> references;
  int rows = 0, equal_rows = 0;
  for (const NamedRow& row : covering_rows(
           "model 2, dtype 2, tensor 3, context 2, pipeline 2, group 2, nodes 2, checkpointing 3, "
           "reshard 5, prefetch 3, blocks 2, streams 2, frozen 2",
           is_valid)) {
    const auto dtype = row["dtype"] == 0 ? math::ProductDType::fp8 : math::ProductDType::mxfp8;
    config::Settings settings = in_8_bits(small[static_cast<std::size_t>(row["model"])], dtype);
    settings.tensor_grain = row["tensor"] == 0 ? 1 : 2;
    settings.training.context_grain = 4;
    settings.training.sequence_length = 128;
    settings.model.layers = 3;
    settings.precision.products.fp8_layers = layers("all but 0");
    if (row["frozen"] == 1) settings.optimizer.parameters = {{"block.1.mlp.*", true, {}, {}}};
    const auto grain = static_cast<int>(settings.tensor_grain);
    History& reference =
        references[{2 * row["model"] + row["frozen"], 2 * row["dtype"] + grain - 1}];
    if (reference.losses.empty()) reference = train_alone(settings);
    settings.tensor = tensor_ranks(row);
    settings.context = 1 << row["context"];
    settings.pipeline = 1 << row["pipeline"];
    const int shard = ranks / tensor_ranks(row) >> (row["context"] + row["pipeline"]);
    settings.shard_group =
        static_cast<int>(settings.tensor * settings.context) * (row["group"] == 0 ? shard : 1);
    if (row["nodes"] == 1 && settings.tensor == 1 && ranks == 4) {
      settings.ranks_per_node = 2;
      settings.parallel.hierarchical.kind = plan::Hierarchical::always;
    }
    apply_policy(row, settings);
    const std::string what = row.text();
    SCOPED_TRACE(what);
    const History run = train_history(settings, MPI_COMM_WORLD);
    ++rows;
    mesh::Mesh mesh(MPI_COMM_WORLD, static_cast<int>(settings.ranks_per_node), settings.shard_group,
                    static_cast<int>(settings.pipeline));
    const train::Trainer trainer = train::make_trainer(settings, mesh);
    const plan::StepPlan& plan = trainer.program(plan::Purpose::train).plan;
    if (!plan.has_the_bits_of_one_rank() || plan.layouts.cuts_16bit_products) continue;
    ++equal_rows;
    expect_same_bits(run, reference, what);
  }
  EXPECT_GE(equal_rows, rows / 4);
  std::printf("%d layouts, %d with equal bits\n", rows, equal_rows);
}

TEST(Fp8Gather, SendsLittleMoreThanAByteForAWeight) {
  config::Settings settings = in_8_bits(small_llama(world_ranks()), math::ProductDType::fp8);
  settings.model.width = 128;
  settings.model.ffn_width = 256;
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  const plan::StepPlan in_8 =
      train::make_trainer(settings, mesh).program(plan::Purpose::train).plan;
  settings.precision.products.fp8_gather = false;
  const plan::StepPlan in_16 =
      train::make_trainer(settings, mesh).program(plan::Purpose::train).plan;
  for (int u = 0; u < static_cast<int>(in_8.units.size()); ++u) {
    const bool has_8_bits = in_8.units[u].name == "block.1" || in_8.units[u].name == "block.2";
    if (has_8_bits)
      EXPECT_LE(static_cast<double>(gathered_bytes(in_8, u)),
                0.53 * static_cast<double>(gathered_bytes(in_16, u)));
    else
      EXPECT_EQ(gathered_bytes(in_8, u), gathered_bytes(in_16, u));
  }
}

}  // namespace
}  // namespace ostrakon::tests
