// SPDX-License-Identifier: Apache-2.0
// What a decoder leaves to a library of attention, and what it refuses where that was asked for.
#include <gtest/gtest.h>

#include <ostrakon/model/decoder.hpp>
#include <ostrakon/plan/ir/phase.hpp>

#include "support/messages.hpp"

namespace ostrakon::test {
namespace {

using model::DecoderSettings;
using model::LeafShape;

/// Heads of 64 in a block.
DecoderSettings small() {
  DecoderSettings s;
  s.layers = 1;
  s.width = 256;
  s.heads = 4;
  s.kv_heads = 2;
  s.ffn_width = 64;
  s.vocabulary = 96;
  return s;
}

LeafShape for_device(math::LibraryUse use) {
  LeafShape leaf{1, 256};
  leaf.kernels = math::KernelForm::device_on_chip;
  leaf.attention = use;
  return leaf;
}

struct Case {
  std::string why;
  DecoderSettings settings = small();
  LeafShape leaf = for_device(math::LibraryUse::always);
};

TEST(AttentionByLibrary, IsRefusedWhereALibraryComputesNone) {
  std::vector<Case> cases = {{"kernels for cpu; expected nvidia"},
                             {"documents that are packed; expected data.documents = continue"},
                             {"parallel.context above 1; expected 1"},
                             {"training.context_grain above 1; expected 1"},
                             {"heads of 32 with values of 32; expected multiples of 8 from 64"},
                             {"capped scores; expected none"},
                             {"pairs of answers in a sequence; expected another training."}};
  cases[0].leaf.kernels = math::KernelForm::host;
  cases[1].leaf.has_documents = true;
  cases[2].leaf.context_ranks = 2;
  cases[3].leaf.grain = 2;
  cases[4].settings.heads = 8;
  cases[5].settings.attention_soft_cap = 30.0;
  cases[6].leaf.has_documents = cases[6].leaf.restarts_positions = true;
  cases[6].leaf.pair_beta = 0.1;
  for (const Case& one : cases) {
    const auto error = [&](math::LibraryUse use) {
      LeafShape leaf = one.leaf;
      leaf.attention = use;
      return testing::error_of([&] { model::Decoder<bf16>(one.settings, leaf); });
    };
    const std::string refusal = error(math::LibraryUse::always);
    EXPECT_TRUE(testing::contains(refusal, "runtime.attention = cudnn: ")) << refusal;
    EXPECT_TRUE(testing::contains(refusal, "attention: " + one.why)) << refusal;
    EXPECT_EQ(error(math::LibraryUse::automatic), "no error") << one.why;
  }
  const std::string in_fp32 = testing::error_of(
      [] { model::Decoder<float>(small(), for_device(math::LibraryUse::always)); });
  EXPECT_TRUE(testing::contains(in_fp32, "activations in fp32; expected bf16 or fp16")) << in_fp32;
}

// Own kernels on chip need no scores in backward, a library may.
TEST(AttentionByLibrary, HasItsWorkspacePlanned) {
  const auto bytes = [](math::LibraryUse use) {
    const model::Decoder<bf16> decoder(small(), for_device(use));
    std::int64_t most = 0;
    for (const plan::Phase& phase : decoder.unit(1).description().backward)
      most = std::max(most, phase.workspace_bytes);
    return most;
  };
  const std::int64_t scores = 2 * 4 * 256 * 256;
  EXPECT_EQ(bytes(math::LibraryUse::automatic), bytes(math::LibraryUse::never));
  EXPECT_GE(bytes(math::LibraryUse::always), scores);
  EXPECT_GT(bytes(math::LibraryUse::always), bytes(math::LibraryUse::never));
}

}  // namespace
}  // namespace ostrakon::test
