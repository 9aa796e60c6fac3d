// SPDX-License-Identifier: Apache-2.0
// What is computed again instead of being saved has the same bits, whichever way it is chosen; and
// so have gradients of parameters that are computed later.
#include <gtest/gtest.h>

#include <ostrakon/model/packing.hpp>

#include "model/model_run.hpp"

namespace ostrakon::test {
namespace {

using model::Recompute;

/// All cases, and both families with sequences longer than a block of any kernel.
std::vector<ModelCase> all_cases() {
  std::vector<ModelCase> cases = model_cases();
  for (int i = 0; i < 2; ++i) {
    ModelCase which = cases[i];
    which.name += ", long";
    which.settings.width = 48;
    which.leaf = {2, 150};
    cases.push_back(which);
  }
  return cases;
}

/// What a training step leaves behind.
template <class T>
struct Step {
  std::vector<std::vector<unsigned char>> outputs, gradients;
  std::vector<unsigned char> losses, input_gradient;

  explicit Step(const ModelRun<T>& run)
      : losses(bits(run.losses())), input_gradient(bits(run.gradient.values())) {
    for (int u = 0; u < run.units(); ++u) {
      outputs.push_back(bits(run.outputs[u].values()));
      gradients.push_back(bits(run.gradients[u].values()));
    }
  }
};

template <class T>
void expect_same(const ModelRun<T>& run, const Step<T>& expected, const std::string& name) {
  const Step<T> found(run);
  run.expect_guards_intact();
  EXPECT_TRUE(found.losses == expected.losses) << name;
  EXPECT_TRUE(found.input_gradient == expected.input_gradient) << name;
  for (int u = 0; u < run.units(); ++u) {
    EXPECT_TRUE(found.outputs[u] == expected.outputs[u])
        << name << ": output of " << run.description.units[u].name;
    EXPECT_TRUE(found.gradients[u] == expected.gradients[u])
        << name << ": gradients of " << run.description.units[u].name;
  }
}

template <class T>
void expect_same_bits_recomputed() {
  for (const ModelCase& which : all_cases()) {
    ModelRun<T> plain(which);
    plain.forward();
    plain.backward(compute_t<T>(0.5));
    const Step<T> expected(plain);
    for (const compute_t<T> loss : plain.losses()) ASSERT_TRUE(loss == loss) << which.name;

    for (const Recompute& recompute : recompute_choices()) {
      const std::string name = which.name + ", " + to_string(recompute);
      ModelRun<T> selective(which, recompute);
      selective.forward();
      selective.backward(compute_t<T>(0.5));
      expect_same(selective, expected, name);

      ModelRun<T> whole(which, recompute);
      whole.forward();
      whole.recompute_and_backward(compute_t<T>(0.5));
      expect_same(whole, expected, name + ", and all that is saved");

      ModelCase later = which;
      later.leaf.defers_gradients = true;
      ModelRun<T> deferring(later, recompute);
      EXPECT_EQ(deferring.description.units[1].deferred_phases, 1) << name;
      deferring.forward();
      deferring.backward(compute_t<T>(0.5));
      expect_same(deferring, expected, name + ", gradients later");
    }
  }
}

TEST(Recompute, ChangesNoBitOfFloat) { expect_same_bits_recomputed<float>(); }
TEST(Recompute, ChangesNoBitOfDouble) { expect_same_bits_recomputed<double>(); }
TEST(Recompute, ChangesNoBitOf16BitNumbers) {
  expect_same_bits_recomputed<bf16>();
  expect_same_bits_recomputed<fp16>();
}

TEST(Recompute, ForwardWithoutOutputSavesTheSame) {
  for (const ModelCase& which : all_cases())
    for (const Recompute& recompute : recompute_choices()) {
      ModelRun<float> run(which, recompute);
      run.forward();
      for (int u = 0; u < run.units(); ++u) {
        const plan::UnitDescription& unit = run.description.units[u];
        const std::vector<unsigned char> before = bits(run.saved[u].values());
        run.recompute(u);
        EXPECT_TRUE(bits(run.saved[u].values()) == before)
            << which.name << ", " << to_string(recompute) << ": " << unit.name;
        EXPECT_EQ(unit.recomputes, unit.saved_bytes > 0) << unit.name;
        EXPECT_EQ(unit.recomputes, u > 0 && u < run.head()) << unit.name;
      }
    }
}

/// In a leaf whose rows are a multiple of the alignment, so that there are no gaps.
plan::UnitDescription describe_block(const ModelCase& family, const Recompute& recompute) {
  return model::Decoder<bf16>(family.settings, {2, 64}, recompute).unit(1).description();
}

TEST(Recompute, SavesLess) {
  const std::int64_t rows = 128;
  const double tokens = 64;
  for (const ModelCase& family : {model_cases()[0], model_cases()[1]}) {
    const model::DecoderSettings& s = family.settings;
    const bool llama = s.norm == math::NormKind::rmsnorm;
    const std::int64_t up_width = llama ? 2 * s.ffn_width : s.ffn_width;
    const std::int64_t qkv_width = (s.heads + 2 * s.kv_heads) * s.head_width();
    const std::int64_t attention = 2 * rows * s.width + 4 * rows * s.heads;
    const std::int64_t norms = 4 * rows * (llama ? 2 : 4);
    const std::int64_t mlp = 2 * rows * up_width;
    const auto product = [&](std::int64_t inputs, std::int64_t outputs) {
      return static_cast<double>(2 * rows * inputs * outputs);
    };
    const double scores = static_cast<double>(rows * s.width) * tokens;
    const double up = product(s.width, up_width);

    const plan::UnitDescription all = describe_block(family, {});
    EXPECT_EQ(all.saved_bytes, 2 * rows * (qkv_width + s.width) + attention + norms + mlp);
    for (const Recompute& recompute : recompute_choices()) {
      const plan::UnitDescription less = describe_block(family, recompute);
      const std::string name = family.name + ", " + to_string(recompute);
      EXPECT_EQ(less.saved_bytes, all.saved_bytes - (recompute.attention ? attention : 0) -
                                      (recompute.norms ? norms : 0) - (recompute.mlp ? mlp : 0))
          << name;
      EXPECT_EQ(less.forward.front().flops, all.forward.front().flops) << name;
      EXPECT_EQ(less.backward.front().flops, all.backward.front().flops +
                                                 (recompute.attention ? 2 * scores : 0.0) +
                                                 (recompute.mlp ? up : 0.0))
          << name;
      EXPECT_EQ(
          less.forward.front().recompute_flops,
          less.forward.front().flops - product(s.ffn_width, s.width) - (recompute.mlp ? up : 0.0))
          << name;
      EXPECT_EQ(less.output_bytes, all.output_bytes) << name;
      EXPECT_GE(less.forward.front().workspace_bytes, all.forward.front().workspace_bytes) << name;
      EXPECT_GE(less.backward.front().workspace_bytes, all.backward.front().workspace_bytes)
          << name;
    }
    EXPECT_GT(describe_block(family, {true, true, true}).backward.front().workspace_bytes,
              all.backward.front().workspace_bytes);
  }
}

TEST(Recompute, OfAStackIsThatOfItsUnits) {
  ModelCase which = model_cases()[1];
  which.leaf = {2, 64};
  which.settings.layers = 3;
  for (const Recompute& recompute : recompute_choices()) {
    const plan::UnitDescription block = describe_block(which, recompute);
    ModelCase stacked = which;
    stacked.settings.blocks_per_unit = 3;
    const plan::UnitDescription stack = describe_block(stacked, recompute);
    EXPECT_EQ(stack.saved_bytes, 3 * block.saved_bytes + 2 * block.output_bytes);
    EXPECT_EQ(stack.backward.front().flops, 3 * block.backward.front().flops);
    // Outputs between are written again, the last one is not.
    EXPECT_EQ(stack.forward.front().recompute_flops,
              2 * block.forward.front().flops + block.forward.front().recompute_flops);
    EXPECT_TRUE(stack.recomputes);
  }
}

}  // namespace
}  // namespace ostrakon::test
