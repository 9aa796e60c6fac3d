// SPDX-License-Identifier: Apache-2.0
// How blocks are grouped into units changes descriptions, and nothing that is computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <ostrakon/model/block.hpp>
#include <ostrakon/model/packing.hpp>
#include <set>
#include <stdexcept>

#include "model/model_run.hpp"

namespace ostrakon::test {
namespace {

using model::blocks_of_units;
using Sizes = std::vector<std::int64_t>;

constexpr std::int64_t automatic = 0;

/// Even and uneven groups of six blocks, all in one, more than there are, and {2, 2, 1, 1}.
constexpr std::int64_t groupings[] = {2, 3, 4, 6, 100, automatic};

/// A tied GPT-2 and an untied Llama of six blocks.
std::vector<ModelCase> deep_cases() {
  std::vector<ModelCase> cases = model_cases();
  cases.resize(2);
  for (ModelCase& which : cases) which.settings.layers = 6;
  return cases;
}

ModelCase grouped(ModelCase which, std::int64_t blocks_per_unit) {
  which.settings.blocks_per_unit = blocks_per_unit;
  which.name += ", blocks_per_unit " + std::to_string(blocks_per_unit);
  return which;
}

/// What lies in the flat arrays of all units, by the parameters' full names.
template <class T, class A>
std::map<std::string, std::vector<A>> by_name(const ModelRun<T>& run,
                                              const std::vector<GuardedArray<A>>& flats) {
  std::map<std::string, std::vector<A>> values;
  for (int u = 0; u < run.units(); ++u) {
    const std::vector<A> flat = flats[u].values();
    for (const model::Parameter& p : run.decoder.unit(u).parameters()) {
      const auto begin = flat.begin() + p.offset;
      EXPECT_TRUE(values.emplace(p.full_name(), std::vector<A>(begin, begin + p.elements())).second)
          << p.full_name() << " is there twice";
    }
  }
  return values;
}

template <class T>
void expect_same_bits_stacked() {
  for (const ModelCase& which : deep_cases()) {
    ModelRun<T> single(which);
    single.forward();
    const auto losses = single.losses();
    single.backward(compute_t<T>(0.5));
    const auto gradients = by_name(single, single.gradients);
    for (const auto& [name, values] : gradients)
      ASSERT_TRUE(std::all_of(values.begin(), values.end(), [](auto v) { return v == v; })) << name;

    for (const std::int64_t blocks_per_unit : groupings) {
      const ModelCase stacked_case = grouped(which, blocks_per_unit);
      ModelRun<T> stacked(stacked_case);
      ASSERT_LT(stacked.units(), single.units()) << stacked_case.name;
      ASSERT_EQ(by_name(stacked, stacked.parameters), by_name(single, single.parameters));
      stacked.forward();
      EXPECT_EQ(stacked.losses(), losses) << stacked_case.name;
      stacked.backward(compute_t<T>(0.5));
      stacked.expect_guards_intact();
      EXPECT_EQ(stacked.losses(), single.losses()) << stacked_case.name << ": losses of backward";
      EXPECT_TRUE(by_name(stacked, stacked.gradients) == gradients) << stacked_case.name;
    }
  }
}

TEST(Grouping, ChangesNoBit) {
  expect_same_bits_stacked<float>();
  expect_same_bits_stacked<double>();
  expect_same_bits_stacked<bf16>();
  expect_same_bits_stacked<fp16>();
}

TEST(Grouping, ChangesNoBitOfDecoding) {
  for (ModelCase which : deep_cases()) {
    which.leaf = {1, 13};
    const ModelRun<float> tokens(which);
    const std::vector<float> expected = decoded_outputs(which, tokens).back();
    for (const std::int64_t blocks_per_unit : groupings)
      EXPECT_EQ(decoded_outputs(grouped(which, blocks_per_unit), tokens).back(), expected)
          << which.name << ", " << blocks_per_unit;
  }
}

TEST(Grouping, ChangesNoParameter) {
  for (const ModelCase& which : deep_cases()) {
    const auto all = [](const model::Decoder<float>& decoder) {
      std::vector<model::Parameter> parameters;
      for (int u = 0; u < decoder.units(); ++u)
        for (const model::Parameter& p : decoder.unit(u).parameters()) parameters.push_back(p);
      return parameters;
    };
    const model::Decoder<float> single(which.settings, which.leaf);
    const std::vector<model::Parameter> expected = all(single);
    for (const std::int64_t blocks_per_unit : groupings) {
      const ModelCase stacked_case = grouped(which, blocks_per_unit);
      const model::Decoder<float> stacked(stacked_case.settings, stacked_case.leaf);
      EXPECT_EQ(stacked.parameter_count(), single.parameter_count()) << stacked_case.name;
      const std::vector<model::Parameter> found = all(stacked);
      ASSERT_EQ(found.size(), expected.size()) << stacked_case.name;
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].full_name(), expected[i].full_name()) << stacked_case.name;
        EXPECT_EQ(found[i].shape, expected[i].shape) << found[i].full_name();
        EXPECT_EQ(found[i].initializer, expected[i].initializer) << found[i].full_name();
        EXPECT_EQ(found[i].deviation, expected[i].deviation) << found[i].full_name();
        EXPECT_EQ(found[i].decays, expected[i].decays) << found[i].full_name();
      }
    }
  }
}

TEST(Grouping, ParametersHaveFullNames) {
  const ModelCase which = grouped(deep_cases()[1], 4);
  const model::Decoder<float> decoder(which.settings, which.leaf);
  std::set<std::string> names;
  for (int u = 0; u < decoder.units(); ++u)
    for (const model::Parameter& p : decoder.unit(u).parameters()) names.insert(p.full_name());
  EXPECT_EQ(names.size(), 1u + 6 * 6 + 2);
  for (const char* name :
       {"embedding.token.weight", "block.0.attention.qkv.weight", "block.3.mlp.gate_up.weight",
        "block.5.mlp.down.weight", "head.norm.weight", "head.output.weight"})
    EXPECT_EQ(names.count(name), 1u) << name;
}

TEST(Grouping, NamesUnitsByTheirBlocks) {
  const auto names = [](std::int64_t blocks_per_unit) {
    const ModelCase which = grouped(deep_cases()[0], blocks_per_unit);
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

/// Everything but the head's and the embedding's: of the blocks alone.
plan::UnitDescription sum_of_blocks(const plan::ModelDescription& model) {
  plan::UnitDescription sum;
  for (std::size_t u = 1; u + 1 < model.units.size(); ++u) {
    sum.parameter_elements += model.units[u].parameter_elements;
    sum.saved_bytes += model.units[u].saved_bytes;
    sum.output_bytes += model.units[u].output_bytes;
    sum.forward.front().flops += model.units[u].forward.front().flops;
    sum.backward.front().flops += model.units[u].backward.front().flops;
  }
  return sum;
}

TEST(Grouping, DescribesUnitsOfSeveralBlocks) {
  ModelCase which = deep_cases()[0];
  which.leaf = {2, 64};  // rows are a multiple of the alignment: no gaps
  const auto describe = [&](std::int64_t blocks_per_unit) {
    const ModelCase all = grouped(which, blocks_per_unit);
    return model::Decoder<float>(all.settings, all.leaf).description();
  };
  const plan::ModelDescription single = describe(1);
  const plan::UnitDescription& block = single.units[1];
  const plan::UnitDescription expected = sum_of_blocks(single);
  for (const std::int64_t blocks_per_unit : groupings) {
    const plan::ModelDescription stacked = describe(blocks_per_unit);
    const plan::UnitDescription sum = sum_of_blocks(stacked);
    EXPECT_EQ(sum.parameter_elements, expected.parameter_elements);
    EXPECT_EQ(sum.saved_bytes + sum.output_bytes, expected.saved_bytes + expected.output_bytes)
        << "outputs within stacks are saved, and nothing else besides";
    EXPECT_EQ(sum.forward.front().flops, expected.forward.front().flops);
    EXPECT_EQ(sum.backward.front().flops, expected.backward.front().flops);
    for (std::size_t u = 1; u + 1 < stacked.units.size(); ++u) {
      EXPECT_EQ(stacked.units[u].output_bytes, block.output_bytes);
      EXPECT_EQ(stacked.units[u].forward.front().workspace_bytes,
                block.forward.front().workspace_bytes);
      EXPECT_EQ(stacked.units[u].backward.front().workspace_bytes,
                block.backward.front().workspace_bytes);
      EXPECT_TRUE(stacked.units[u].backward_reads_parameters);
      EXPECT_EQ(stacked.units[u].tied_to, -1);
    }
    EXPECT_EQ(stacked.gradient_bytes, single.gradient_bytes);
    EXPECT_EQ(stacked.units.back().tied_to, single.units.back().tied_to);
  }
}

TEST(Grouping, AlignsParameters) {
  const ModelCase which = grouped(deep_cases()[1], 6);  // 18 rows of 24: all need gaps
  const model::Decoder<double> decoder(which.settings, which.leaf);
  const auto block = model::BlockMaker<double>(which.settings, which.leaf).make(0);
  const plan::UnitDescription& one = block->description();
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
  // As many units as there are blocks, where those are few.
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
