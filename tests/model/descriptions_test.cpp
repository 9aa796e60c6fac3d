// SPDX-License-Identifier: Apache-2.0
// Pins what is derived of a unit's graph: bytes, operations, phases and exchanges of units in all
// divisions.

#include <gtest/gtest.h>

#include <ostrakon/base/hash.hpp>
#include <ostrakon/plan/ir/phase.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "model/golden_file.hpp"
#include "model/model_run.hpp"

namespace ostrakon::test {
namespace {

std::uint64_t hash_of(const std::string& text) {
  Hasher hasher;
  hasher.add(text);
  return hasher.value();
}

/// All that phases say, for a hash.
void write_phases(std::ostream& out, const plan::Phases& phases) {
  for (const plan::Phase& phase : phases) {
    const plan::KernelWork& work = phase.work;
    out << phase.workspace_bytes << ' ' << phase.flops << ' ' << phase.recompute_flops << ' '
        << work.products_by_width << ' ' << work.attention_by_width << ' ' << work.row_bytes << ' '
        << work.row_kernels << ' ' << work.activations << ' ' << phase.keeps_workspace
        << phase.writes_output << phase.recomputes;
    for (int read : phase.reads) out << " reads " << read;
    if (phase.then)
      out << ' ' << plan::name(phase.then->kind) << ' ' << phase.then->span.ranks << ' '
          << phase.then->whole_bytes();
    out << '\n';
  }
}

std::int64_t most_workspace(const plan::Phases& phases) {
  std::int64_t most = 0;
  for (const plan::Phase& phase : phases) most = std::max(most, phase.workspace_bytes);
  return most;
}

void write_unit(std::ostream& out, const plan::UnitDescription& unit) {
  std::ostringstream details;
  details << unit.parameter_elements << ' ' << unit.output_bytes << ' ' << unit.deferral.phases
          << '\n';
  for (const plan::Phases* phases :
       {&unit.forward, &unit.backward, &unit.deferral.backward_at_once})
    write_phases(details, *phases);
  out << "  " << unit.name << ": saved " << unit.saved_bytes << ", deferred " << unit.deferral.bytes
      << "; forward " << most_workspace(unit.forward) << " bytes in " << unit.forward.size()
      << ", backward " << most_workspace(unit.backward) << " bytes in " << unit.backward.size()
      << "; flops " << plan::flops(unit.forward) << " and " << plan::flops(unit.backward) << "; "
      << std::hex << hash_of(details.str()) << std::dec << '\n';
}

template <class T>
void write_model(std::ostream& out, const ModelCase& which, const std::string& division,
                 const model::Recompute& recompute) {
  out << which.name << ", " << division << ", " << sizeof(T) << " bytes"
      << ", " << to_string(recompute) << '\n';
  const model::Decoder<T> decoder(which.settings, which.leaf, recompute);
  // One block stands for all.
  for (int u : {0, 1, decoder.units() - 1}) write_unit(out, decoder.unit(u).description());
}

struct NamedLeaf {
  std::string name;
  model::LeafShape leaf;
};

std::vector<NamedLeaf> divisions() {
  std::vector<NamedLeaf> all = {
      {"whole", {2, 16}}, {"leaves", {2, 16, 1, 4, true}}, {"parts", {1, 16, 2, 4}}};
  const auto add = [&](const std::string& name, auto change) {
    all.push_back({name, {2, 16}});
    change(all.back().leaf);
  };
  add("deferring", [](auto& leaf) { leaf.defers_gradients = true; });
  add("decoding", [](auto& leaf) {
    leaf.batch = 1;
    leaf.decoded_rows = 4;
  });
  add("tensor", [](auto& leaf) { leaf.tensor_ranks = 2; });
  add("pieces", [](auto& leaf) { leaf.tensor_grain = 2; });
  add("pieces on ranks, chunks, deferring", [](auto& leaf) {
    leaf.tensor_ranks = 2;
    leaf.tensor_grain = 4;
    leaf.tensor_chunks = 2;
    leaf.defers_gradients = true;
  });
  add("tensor, parts", [](auto& leaf) {
    leaf.tensor_ranks = leaf.context_ranks = 2;
    leaf.grain = 2;
    leaf.batch = 1;
  });
  return all;
}

std::vector<ModelCase> models() {
  const auto sized = [](model::DecoderSettings settings) {
    settings.width = 64;
    settings.heads = settings.kv_heads = 4;
    settings.ffn_width = 256;
    settings.vocabulary = 96;
    return settings;
  };
  const model::DecoderSettings gpt2 = sized(model_cases()[0].settings);
  const model::DecoderSettings llama = sized(model_cases()[1].settings);
  model::DecoderSettings stacked = llama;
  stacked.blocks_per_unit = 2;
  model::DecoderSettings qwen3 = llama;
  qwen3.query_key_norm = model::QueryKeyNorm::head;
  model::DecoderSettings experts = llama;
  experts.experts = {8, 2, 1, 64};
  return {{"gpt2", gpt2, {}},
          {"llama", llama, {}},
          {"llama, 2 blocks a unit", stacked, {}},
          {"qwen3", qwen3, {}},
          {"experts", experts, {}}};
}

TEST(Descriptions, AreThoseOfBefore) {
  std::ostringstream found;
  for (ModelCase which : models())
    for (const NamedLeaf& division : divisions()) {
      which.leaf = division.leaf;
      if (which.settings.experts.exist()) which.leaf.expert_ranks = which.leaf.tensor_ranks;
      // Those of a device, whatever this build runs on.
      which.leaf.kernels = math::KernelForm::device;
      write_model<float>(found, which, division.name, {});
      write_model<bf16>(found, which, division.name, {true, true, true});
    }
  expect_lines_of("descriptions.txt", found.str());
}

/// What is kept is that of calls apart, and workspaces grow by an eighth at most, and by what
/// alignment adds.
TEST(Descriptions, TakeLittleMoreMemoryWhereCallsAreFused) {
  int fewer_kernels = 0;
  for (ModelCase which : models())
    for (const NamedLeaf& division : divisions()) {
      SCOPED_TRACE(which.name + ", " + division.name);
      which.leaf = division.leaf;
      if (which.settings.experts.exist()) which.leaf.expert_ranks = which.leaf.tensor_ranks;
      which.leaf.kernels = math::KernelForm::device;
      which.leaf.fuses = false;
      const model::Decoder<bf16> apart(which.settings, which.leaf, {});
      which.leaf.fuses = true;
      const model::Decoder<bf16> fused(which.settings, which.leaf, {});
      for (int u = 0; u < apart.units(); ++u) {
        const plan::UnitDescription &a = apart.unit(u).description(),
                                    &f = fused.unit(u).description();
        EXPECT_LE(f.saved_bytes, a.saved_bytes) << u;
        EXPECT_LE(f.deferral.bytes, a.deferral.bytes) << u;
        EXPECT_LE(most_workspace(f.forward), most_workspace(a.forward) * 9 / 8 + 1024) << u;
        EXPECT_LE(most_workspace(f.backward), most_workspace(a.backward) * 9 / 8 + 1024) << u;
        EXPECT_EQ(plan::flops(f.backward), plan::flops(a.backward)) << u;
        const auto kernels = [](const plan::Phases& phases) {
          double sum = 0.0;
          for (const plan::Phase& phase : phases) sum += phase.work.row_kernels;
          return sum;
        };
        fewer_kernels += kernels(f.backward) < kernels(a.backward);
      }
    }
  EXPECT_GT(fewer_kernels, 50);
}

}  // namespace
}  // namespace ostrakon::test
