// SPDX-License-Identifier: Apache-2.0
// How blocks are grouped into units changes descriptions; see bits_test.cpp for what is computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <ostrakon/model/array_packer.hpp>
#include <tuple>

#include "model/model_run.hpp"

namespace ostrakon::test {
namespace {

using model::blocks_of_units;
using Sizes = std::vector<std::int64_t>;

constexpr std::int64_t automatic = 0;

/// Even and uneven groups of six blocks, all in one, more than there are, and {2, 2, 1, 1}.
constexpr std::int64_t groupings[] = {2, 3, 4, 6, 100, automatic};

ModelCase grouped(ModelCase which, std::int64_t blocks_per_unit) {
  which.settings.blocks_per_unit = blocks_per_unit;
  which.name += ", blocks_per_unit " + std::to_string(blocks_per_unit);
  return which;
}

TEST(Grouping, ChangesNoParameter) {
  for (const ModelCase& which : deep_cases(6)) {
    const auto all = [](const ModelCase& one) {
      const model::Decoder<float> decoder(one.settings, one.leaf);
      std::vector<std::tuple<std::string, Sizes, model::Initializer, double, bool>> parameters;
      for (int u = 0; u < decoder.units(); ++u)
        for (const model::Parameter& p : decoder.unit(u).parameters())
          parameters.emplace_back(p.full_name(), p.shape, p.initializer, p.deviation, p.decays);
      return parameters;
    };
    const auto expected = all(which);
    EXPECT_EQ(std::get<0>(expected.front()), "embedding.token.weight");
    for (const std::int64_t blocks_per_unit : groupings)
      EXPECT_TRUE(all(grouped(which, blocks_per_unit)) == expected) << blocks_per_unit;
  }
}

TEST(Grouping, NamesUnitsByTheirBlocks) {
  const auto names = [](std::int64_t blocks_per_unit) {
    const ModelCase which = grouped(deep_cases(6)[0], blocks_per_unit);
    const model::Decoder<float> decoder(which.settings, which.leaf);
    std::vector<std::string> all;
    for (const plan::UnitDescription& unit : decoder.description().units) all.push_back(unit.name);
    return all;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(1), (Names{"embedding", "block.0", "block.1", "block.2", "block.3", "block.4",
                             "block.5", "head"}));
  EXPECT_EQ(names(4), (Names{"embedding", "block.0-3", "block.4-5", "head"}));
  EXPECT_EQ(names(5), (Names{"embedding", "block.0-4", "block.5", "head"}));
  EXPECT_EQ(names(automatic),
            (Names{"embedding", "block.0-1", "block.2-3", "block.4", "block.5", "head"}));
}

/// Outputs within stacks are saved and written again, and nothing else besides.
TEST(Grouping, DescribesUnitsOfSeveralBlocks) {
  for (ModelCase which : deep_cases(6))
    for (const model::Recompute& recompute : recompute_choices()) {
      which.leaf = {2, 64};  // rows are a multiple of the alignment: no gaps
      const auto describe = [&](std::int64_t blocks_per_unit) {
        const ModelCase one = grouped(which, blocks_per_unit);
        return model::Decoder<float>(one.settings, one.leaf, recompute).description();
      };
      const plan::ModelDescription single = describe(1);
      const plan::UnitDescription& block = single.units[1];
      for (const std::int64_t blocks_per_unit : groupings) {
        const plan::ModelDescription stacked = describe(blocks_per_unit);
        std::int64_t blocks = 0;
        for (std::size_t u = 1; u + 1 < stacked.units.size(); ++u) {
          const plan::UnitDescription& unit = stacked.units[u];
          const std::int64_t own = unit.parameter_elements / block.parameter_elements;
          blocks += own;
          const plan::Phase &forward = unit.forward.front(), &backward = unit.backward.front();
          const plan::Phase &one = block.forward.front(), &back = block.backward.front();
          const auto times = static_cast<double>(own);
          EXPECT_EQ(unit.parameter_elements, own * block.parameter_elements);
          EXPECT_EQ(unit.saved_bytes, own * block.saved_bytes + (own - 1) * block.output_bytes);
          EXPECT_EQ(unit.output_bytes, block.output_bytes);
          EXPECT_EQ(forward.flops, times * one.flops);
          EXPECT_EQ(forward.recompute_flops, (times - 1) * one.flops + one.recompute_flops);
          EXPECT_EQ(backward.flops, times * back.flops);
          EXPECT_EQ(forward.workspace_bytes, one.workspace_bytes);
          EXPECT_EQ(backward.workspace_bytes, back.workspace_bytes);
          EXPECT_TRUE(unit.recomputes && unit.backward_reads_parameters);
          EXPECT_EQ(unit.tied_to, -1);
        }
        EXPECT_EQ(blocks, which.settings.layers);
        EXPECT_EQ(stacked.gradient_bytes, single.gradient_bytes);
        EXPECT_EQ(stacked.units.back().tied_to, single.units.back().tied_to);
      }
    }
}

TEST(Grouping, AlignsParameters) {
  const ModelCase which = grouped(deep_cases(6)[1], 6);  // 18 rows of 24: all need gaps
  const model::Decoder<double> decoder(which.settings, which.leaf);
  const ModelCase alone = grouped(deep_cases(6)[1], 1);
  const model::Decoder<double> apart(alone.settings, alone.leaf);
  const plan::UnitDescription& one = apart.unit(1).description();
  const plan::UnitDescription& all = decoder.unit(1).description();

  EXPECT_EQ(all.parameter_elements, 6 * one.parameter_elements);
  const std::int64_t unit = model::parameter_alignment * sizeof(double);
  ASSERT_NE(one.output_bytes % unit, 0);
  ASSERT_NE(one.saved_bytes % unit, 0);
  EXPECT_EQ(all.saved_bytes,
            5 * (model::round_up(one.saved_bytes, unit) + model::round_up(one.output_bytes, unit)) +
                one.saved_bytes);
  std::int64_t end = 0;
  for (const model::Parameter& p : decoder.unit(1).parameters()) {
    EXPECT_EQ(p.offset, model::round_up(end, model::parameter_alignment)) << p.full_name();
    end = p.offset + p.elements();
  }
  EXPECT_EQ(all.parameter_elements, model::round_up(end, model::parameter_alignment));
}

TEST(BlocksOfUnits, TakesTheNumberAskedFor) {
  EXPECT_EQ(blocks_of_units(6, 1, 10), Sizes({1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(blocks_of_units(6, 2, 10), Sizes({2, 2, 2}));
  EXPECT_EQ(blocks_of_units(7, 3, 10), Sizes({3, 3, 1}));
  EXPECT_EQ(blocks_of_units(3, 3, 10), Sizes({3}));
  EXPECT_EQ(blocks_of_units(3, 100, 10), Sizes({3}));
  EXPECT_EQ(blocks_of_units(1, 1, 10), Sizes({1}));
}

TEST(BlocksOfUnits, ChoosesForEfficientGathersAndForOverlap) {
  // 12 blocks of GPT-2 124M: 5 would be enough for a gather, but then 2 units would remain.
  EXPECT_EQ(blocks_of_units(12, automatic, 7087872), Sizes({3, 3, 3, 3}));
  // 32 blocks of Llama 3 8B, each enough for itself.
  EXPECT_EQ(blocks_of_units(32, automatic, 218112000), Sizes(32, 1));
  EXPECT_EQ(blocks_of_units(8, automatic, 33'000'000), Sizes(8, 1));
  EXPECT_EQ(blocks_of_units(8, automatic, 32'999'999), Sizes({2, 2, 2, 2}));
  // Two are enough: 9 blocks make 4 such units, not 5.
  EXPECT_EQ(blocks_of_units(9, automatic, 20'000'000), Sizes({3, 2, 2, 2}));
  EXPECT_EQ(blocks_of_units(48, automatic, 7'000'000), Sizes({6, 6, 6, 5, 5, 5, 5, 5, 5}));
  // There are as many units as blocks, where those are few.
  EXPECT_EQ(blocks_of_units(1, automatic, 10), Sizes({1}));
  EXPECT_EQ(blocks_of_units(3, automatic, 10), Sizes({1, 1, 1}));
  EXPECT_EQ(blocks_of_units(6, automatic, 10), Sizes({2, 2, 1, 1}));
}

TEST(BlocksOfUnits, CoversAllBlocks) {
  for (std::int64_t layers = 1; layers <= 40; ++layers) {
    for (std::int64_t asked = 1; asked <= 12; ++asked) {
      const Sizes sizes = blocks_of_units(layers, asked, 10);
      const auto units = static_cast<std::int64_t>(sizes.size());
      ASSERT_EQ(units, (layers + asked - 1) / asked) << layers << " layers, " << asked;
      ASSERT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), layers);
      ASSERT_GE(sizes.back(), 1);
    }
  }
}

TEST(BlocksOfUnits, MakesAsManyLargeEnoughUnitsAsThereAre) {
  for (std::int64_t layers = 1; layers <= 40; ++layers) {
    for (const std::int64_t elements : {1, 5'000'000, 11'000'000, 20'000'000, 99'000'000}) {
      const Sizes sizes = blocks_of_units(layers, automatic, elements);
      const auto units = static_cast<std::int64_t>(sizes.size());
      const std::int64_t fewest = std::min<std::int64_t>(layers, 4);
      const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
      const std::string which = std::to_string(layers) + " of " + std::to_string(elements);
      ASSERT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), layers) << which;
      ASSERT_LE(*most - *least, 1) << which;
      ASSERT_GE(units, fewest) << which;
      ASSERT_TRUE(units == fewest || *least * elements >= 33'000'000) << which;
      // One more, and the smallest would be too small.
      ASSERT_TRUE(units == layers || layers / (units + 1) * elements < 33'000'000) << which;
    }
  }
}

}  // namespace
}  // namespace ostrakon::test
