// SPDX-License-Identifier: Apache-2.0
// Calls that one kernel computes, in the form that kernels have here: no bit differs from calls
// that stay apart, and a block of a device takes fewer kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ostrakon/math/launch_count.hpp>

#include "model/model_run.hpp"
#include "support/covering.hpp"

namespace ostrakon::test {
namespace {

using Bits = std::map<std::string, std::vector<unsigned char>>;

/// What a step leaves behind.
template <class T>
Bits bits_of_step(ModelCase which, const model::Recompute& recompute, bool fuses) {
  which.leaf.kernels = math::kernel_form;
  which.leaf.fuses = fuses;
  ModelRun<T> run(which, recompute);
  run.forward();
  run.backward(compute_t<T>(0.5));
  run.expect_guards_intact();
  Bits all = {{"losses", bits(run.losses())}, {"gradient", bits(run.gradient.values())}};
  for (int u = 0; u < run.units(); ++u)
    all["gradients of unit " + std::to_string(u)] = bits(run.gradients[u].values());
  return all;
}

template <class T>
void expect_same_bits(const ModelCase& which, const model::Recompute& recompute) {
  const Bits joined = bits_of_step<T>(which, recompute, true);
  const Bits apart = bits_of_step<T>(which, recompute, false);
  for (const auto& [name, values] : apart) EXPECT_TRUE(joined.at(name) == values) << name;
}

/// Norms of heads that a device computes with the rotation behind them: by leaves, with weights of
/// each head, of layer norm, and where positions restart.
std::vector<ModelCase> cases_of_head_norms() {
  std::vector<ModelCase> cases(6, long_cases()[1]);
  for (ModelCase& which : cases) {
    which.name = "llama, norms of heads, long";
    which.settings.query_key_norm = model::QueryKeyNorm::head;
    which.settings.head_dim = 32;
    which.settings.ffn_width = 132;
    which.settings.vocabulary = 516;
    which.leaf = {2, 40};
  }
  cases[1].leaf = {2, 40, 1, 4, true};
  cases[2].settings.query_key_norm = model::QueryKeyNorm::each_head;
  cases[2].settings.norm_weight = math::NormWeight::one_plus;
  cases[3].settings.query_key_norm_kind = math::NormKind::layernorm;
  cases[3].leaf.tensor_grain = 2;
  // Several leaves, by which gradients of weights are summed.
  cases[4].leaf = cases[5].leaf = {2, 40, 1, 1, true};
  cases[5].leaf.tensor_grain = 2;
  return cases;
}

TEST(Fuse, ChangesNoBit) {
  std::vector<ModelCase> cases = model_cases();
  for (const std::vector<ModelCase>& more : {long_cases(), cases_of_head_norms()})
    cases.insert(cases.end(), more.begin(), more.end());
  const std::vector<model::Recompute> recomputes = recompute_choices();
  enum Factor { type, which, defers };
  const int count = static_cast<int>(cases.size());
  const auto any = [](const tests::Choices&) { return true; };
  int number = 0;
  for (const tests::Choices& row : tests::covering_rows({2, count, 2}, any)) {
    ModelCase one = cases[row[which]];
    // Experts' rows are multiplied by the host here, which takes workspaces that no device has.
    if (on_device && one.settings.experts.exist()) continue;
    one.leaf.defers_gradients = row[defers] == 1;
    const model::Recompute recompute = recomputes[number++ % recomputes.size()];
    SCOPED_TRACE(::testing::Message() << one.name << ", " << to_string(recompute) << ", type "
                                      << row[type] << ", defers " << row[defers]);
    if (row[type] == 0)
      expect_same_bits<float>(one, recompute);
    else
      expect_same_bits<bf16>(one, recompute);
    if (HasFailure()) return;
  }
}

// ---- launches -----------------------------------------------------------------------------------

/// The names of the kernels that block 1 of a model takes forward and backward, one a line. No
/// memory is behind the arrays.
std::vector<std::string> kernels_of_block(model::DecoderSettings settings, model::LeafShape leaf,
                                          bool fuses) {
  settings.layers = 1;
  leaf.kernels = math::kernel_form;
  leaf.fuses = fuses;
  const model::Decoder<bf16> decoder(settings, leaf, {});
  const plan::UnitDescription& unit = decoder.unit(1).description();
  const auto array = [](std::int64_t bytes) {
    auto* const nowhere = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 20);  // NOLINT
    return View<std::byte*>(nowhere, bytes);
  };
  model::UnitBuffers<bf16> b;
  b.parameters = view_as<bf16>(array(unit.parameter_elements * 2));
  b.parameter_gradients = view_as<float>(array(unit.parameter_elements * 4));
  b.input = b.output = b.gradient = view_as<bf16>(array(unit.output_bytes));
  b.saved = array(unit.saved_bytes);
  const math::LaunchCount count;
  const Exec exec;
  b.workspace = array(plan::workspace_bytes(unit.forward, 0));
  decoder.unit(1).forward(exec, b);
  b.workspace = array(plan::workspace_bytes(unit.backward, 0));
  decoder.unit(1).backward(exec, b, 1.0f, false);
  return {count.names().begin(), count.names().end()};
}

TEST(Fuse, TakesFewerKernelsOfADevice) {
  model::DecoderSettings gpt2;
  gpt2.norm = math::NormKind::layernorm;
  gpt2.positions = model::Positions::learned;
  gpt2.activation = model::Activation::gelu;
  gpt2.bias = true;
  gpt2.width = 768;
  gpt2.heads = gpt2.kv_heads = 12;
  gpt2.ffn_width = 3072;
  gpt2.vocabulary = 50257;
  model::DecoderSettings llama;
  llama.norm = math::NormKind::rmsnorm;
  llama.positions = model::Positions::rotary;
  llama.activation = model::Activation::swiglu;
  llama.width = 2048;
  llama.heads = 32;
  llama.kv_heads = 8;
  llama.ffn_width = 8192;
  llama.vocabulary = 32000;
  for (const auto& [settings, leaf] :
       {std::pair(llama, model::LeafShape{4, 2048}), std::pair(gpt2, model::LeafShape{16, 1024})}) {
    const std::vector<std::string> joined = kernels_of_block(settings, leaf, true);
    const std::vector<std::string> apart = kernels_of_block(settings, leaf, false);
    EXPECT_LE(joined.size(), apart.size());
    if (!on_device) continue;  // a host computes them one after the other
    EXPECT_LT(joined.size(), apart.size()) << ::testing::PrintToString(joined);
    EXPECT_LE(joined.size(), 34U) << ::testing::PrintToString(joined);
  }
}

TEST(Fuse, NormsHeadsAndRotatesThemInOneKernel) {
  model::DecoderSettings qwen3;
  qwen3.norm = math::NormKind::rmsnorm;
  qwen3.positions = model::Positions::rotary;
  qwen3.activation = model::Activation::swiglu;
  qwen3.query_key_norm = model::QueryKeyNorm::head;
  qwen3.width = 4096;
  qwen3.heads = 32;
  qwen3.kv_heads = 8;
  qwen3.head_dim = 128;
  qwen3.ffn_width = 12288;
  qwen3.vocabulary = 151936;
  for (const bool fuses : {false, true}) {
    const std::vector<std::string> names = kernels_of_block(qwen3, {1, 8192}, fuses);
    const auto count = [&](const std::string& begin) {
      return std::count_if(names.begin(), names.end(), [&](const std::string& name) {
        return name.compare(0, begin.size(), begin) == 0;
      });
    };
    const bool is_joint = fuses && on_device;
    EXPECT_EQ(count("norm_rotate"), is_joint ? 2 : 0) << ::testing::PrintToString(names);
    EXPECT_EQ(count("rotate"), is_joint ? 0 : 2) << ::testing::PrintToString(names);
    // Each norm has one, and three in backward.
    EXPECT_EQ(count("head_norm"), is_joint ? 0 : 8) << ::testing::PrintToString(names);
  }
}

}  // namespace
}  // namespace ostrakon::test
