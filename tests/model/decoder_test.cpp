// SPDX-License-Identifier: Apache-2.0
// What decoders say of themselves: sizes, operations, parameters; and what they refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/model/decoder_model.hpp>

#include "model/model_run.hpp"
#include "support/messages.hpp"

namespace ostrakon::test {
namespace {

using model::Activation;
using model::Decoder;
using model::DecoderSettings;
using model::Positions;

DecoderSettings gpt2_124m() {
  DecoderSettings s;
  s.norm = math::NormKind::layernorm;
  s.positions = Positions::learned;
  s.activation = Activation::gelu;
  s.bias = true;
  s.tie_embeddings = true;
  s.layers = 12;
  s.width = 768;
  s.heads = s.kv_heads = 12;
  s.ffn_width = 3072;
  s.vocabulary = 50257;
  return s;
}

DecoderSettings llama3(std::int64_t layers, std::int64_t width, std::int64_t heads,
                       std::int64_t ffn_width) {
  DecoderSettings s;
  s.bias = false;
  s.tie_embeddings = false;
  s.layers = layers;
  s.width = width;
  s.heads = heads;
  s.kv_heads = 8;
  s.ffn_width = ffn_width;
  s.vocabulary = 128256;
  s.rotary.base = 500000.0;
  return s;
}

TEST(Decoder, CountsParametersOfPublishedModels) {
  EXPECT_EQ(Decoder<float>(gpt2_124m(), {1, 1024}).parameter_count(), 124439808);
  EXPECT_EQ(Decoder<float>(llama3(32, 4096, 32, 14336), {1, 8192}).parameter_count(), 8030261248);
  EXPECT_EQ(Decoder<float>(llama3(80, 8192, 64, 28672), {1, 8192}).parameter_count(), 70553706496);
  EXPECT_EQ(Decoder<float>(llama3(126, 16384, 128, 53248), {1, 8192}).parameter_count(),
            405853388800);
}

TEST(Decoder, DescribesItself) {
  const Decoder<float> decoder(gpt2_124m(), {2, 1024});
  const plan::ModelDescription description = decoder.description();
  const std::int64_t rows = 2048, width = 768;
  ASSERT_EQ(description.units.size(), 14u);
  EXPECT_EQ(description.batch_bytes, 2 * rows * 4);
  EXPECT_EQ(description.gradient_bytes, rows * width * 4);
  EXPECT_EQ(description.element_bytes, 4);
  EXPECT_EQ(description.master_bytes, 4);
  EXPECT_EQ(Decoder<double>(gpt2_124m(), {2, 1024}).description().element_bytes, 8);
  const plan::ModelDescription half = Decoder<bf16>(gpt2_124m(), {2, 1024}).description();
  EXPECT_EQ(half.element_bytes, 2);
  EXPECT_EQ(half.master_bytes, 4);
  EXPECT_EQ(half.gradient_bytes, rows * width * 2);
  EXPECT_EQ(half.units.back().output_bytes, rows * 4);

  const plan::UnitDescription& embedding = description.units.front();
  EXPECT_EQ(embedding.name, "embedding");
  EXPECT_EQ(embedding.output_bytes, rows * width * 4);
  EXPECT_FALSE(embedding.backward_reads_parameters);

  const plan::UnitDescription& block = description.units[12];
  EXPECT_EQ(block.name, "block.11");
  EXPECT_EQ(block.parameter_elements, 7087872);  // every one is a multiple of 64 long
  // norm statistics, qkv, attention, log-sum-exp, middle, up: nothing of tokens x tokens
  EXPECT_EQ(block.saved_bytes, 4 * rows * (4 + 3 * width + width + 12 + width + 3072));
  const std::int64_t products = 2 * rows * 12 * width * width;
  const std::int64_t scores = rows * 1024 * width;
  EXPECT_EQ(block.forward.front().flops, static_cast<double>(products + 2 * scores));
  EXPECT_EQ(block.backward.front().flops, static_cast<double>(2 * products + 5 * scores));

  const plan::UnitDescription& head = description.units.back();
  EXPECT_EQ(head.name, "head");
  EXPECT_EQ(head.tied_to, 0);
  EXPECT_EQ(head.output_bytes, rows * 4);
  EXPECT_EQ(head.saved_bytes, 0);
  EXPECT_FALSE(embedding.recomputes || head.recomputes);
  EXPECT_TRUE(block.recomputes);
  EXPECT_EQ(head.parameter_elements, 2 * width);
  EXPECT_EQ(head.forward.front().flops, static_cast<double>(2 * rows * width * 50257));
  // On a host far below the matrix of logits; on a device these rows fit at once.
  const std::int64_t logits = on_device ? 4 * rows * 50272 + 1 : 4 * rows * 50257 / 2;
  EXPECT_LT(head.backward.front().workspace_bytes, logits);
  EXPECT_EQ(Decoder<float>(llama3(2, 128, 8, 64), {1, 8}).description().units.back().tied_to, -1);
}

/// In a leaf whose rows are a multiple of the alignment, so that there are no gaps.
plan::UnitDescription describe_block(const ModelCase& family, const model::Recompute& recompute) {
  return model::Decoder<bf16>(family.settings, {2, 64}, recompute).unit(1).description();
}

TEST(Decoder, SavesLessWhereItRecomputes) {
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
    for (const model::Recompute& recompute : recompute_choices()) {
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

TEST(Decoder, KeepsOutputsInsteadOfComputingThemAgain) {
  const std::int64_t rows = 128;
  for (const ModelCase& family : {model_cases()[0], model_cases()[1]}) {
    const model::DecoderSettings& s = family.settings;
    const std::int64_t norms = 2 * (2 * rows * s.width), activations = 2 * rows * s.ffn_width;
    const std::int64_t up = s.norm == math::NormKind::rmsnorm ? 2 * activations : activations;
    const plan::UnitDescription all = describe_block(family, {});
    for (const model::Recompute& recompute : kept_choices()) {
      const plan::UnitDescription more = describe_block(family, recompute);
      const std::string name = family.name + ", " + to_string(recompute);
      EXPECT_EQ(more.saved_bytes, all.saved_bytes + (recompute.norm_outputs ? 0 : norms) +
                                      (recompute.activations ? 0 : activations))
          << name;
      EXPECT_EQ(more.backward.front().flops, all.backward.front().flops) << name;
      const plan::KernelWork work = more.backward.front().work, before = all.backward.front().work;
      // All three read their input and write their output.
      EXPECT_DOUBLE_EQ(before.row_bytes - work.row_bytes,
                       static_cast<double>((recompute.norm_outputs ? 0 : 2 * norms) +
                                           (recompute.activations ? 0 : up + activations)))
          << name;
      EXPECT_DOUBLE_EQ(before.activations - work.activations,
                       recompute.activations ? 0.0 : static_cast<double>(rows * s.ffn_width))
          << name;
    }
  }
}

// What simulated step times depend on, of a GPT-2 block.
TEST(Decoder, SaysWhatItsKernelsReadAndWrite) {
  const double rows = 2048, width = 768, bytes = 4;
  DecoderSettings settings = gpt2_124m();
  const auto work = [&](bool backward) {
    const plan::UnitDescription block = Decoder<float>(settings, {2, 1024}).description().units[1];
    return backward ? block.backward.front().work : block.forward.front().work;
  };
  const plan::KernelWork forward = work(false), backward = work(true);
  EXPECT_DOUBLE_EQ(forward.products, 4.0);
  EXPECT_DOUBLE_EQ(backward.products, 8.0);
  EXPECT_DOUBLE_EQ(forward.activations, rows * 4.0 * width);
  // Once again before the gradient of the second layer, and its derivative.
  EXPECT_DOUBLE_EQ(backward.activations, 2.0 * rows * 4.0 * width);
  settings.bias = false;
  // Outputs of all four layers, 3 + 1 + 4 + 1 widths, are read and written; gradients are read.
  EXPECT_DOUBLE_EQ(forward.row_bytes - work(false).row_bytes, rows * 9.0 * width * 2.0 * bytes);
  EXPECT_DOUBLE_EQ(backward.row_bytes - work(true).row_bytes, rows * 9.0 * width * bytes);
}

// All products but attention's are in 8 bits in a block whose linear layers multiply so, and its
// operands are rounded in further kernels.
TEST(Decoder, SaysWhichProductsHaveEightBits) {
  model::LeafShape leaf{2, 64};
  const DecoderSettings settings = llama3(3, 128, 8, 64);
  const auto all_units = [&] { return Decoder<float>(settings, leaf).description().units; };
  const std::vector<plan::UnitDescription> plain = all_units();
  leaf.products.dtype = math::ProductDType::fp8;
  const std::vector<plan::UnitDescription> units = all_units();
  ASSERT_EQ(units.size(), plain.size());
  for (std::size_t u = 0; u < units.size(); ++u)
    for (const auto passes : {&plan::UnitDescription::forward, &plan::UnitDescription::backward}) {
      const plan::Phase &phase = (units[u].*passes).front(),
                        &as_stored = (plain[u].*passes).front();
      const bool has_8_bits = u == 2;  // of three blocks behind the embedding, the second
      const double products = phase.flops - phase.work.attention_flops;
      EXPECT_DOUBLE_EQ(phase.work.flops_in_8_bits, has_8_bits ? products : 0.0) << u;
      EXPECT_DOUBLE_EQ(phase.work.in_8_bits_by_width + phase.work.products_by_width,
                       as_stored.work.products_by_width);
      EXPECT_DOUBLE_EQ(phase.flops, as_stored.flops) << u;
      EXPECT_EQ(phase.work.row_bytes > as_stored.work.row_bytes, has_8_bits) << u;
    }
}

// Experts are computed by a rank alone, or shared by ranks, and then a unit behind the block: 128
// rows of width 128, 2 of 4 SwiGLU experts of width 64 for each.
TEST(Decoder, SaysWhatKernelsOfExpertsReadAndWrite) {
  const double rows = 128, width = 128, all = 2 * rows, inner = 64, up = 2 * inner, bytes = 4;
  DecoderSettings settings = llama3(1, 128, 8, 64);
  const auto units = [&](int expert_ranks) {
    model::LeafShape leaf{2, 64};
    leaf.expert_ranks = expert_ranks;
    return Decoder<float>(settings, leaf).description().units;
  };
  const auto sum = [](const std::vector<plan::Phase>& phases) {
    plan::KernelWork all_phases;
    for (const plan::Phase& phase : phases) all_phases += phase.work;
    return all_phases;
  };
  const plan::UnitDescription dense = units(1)[1];
  settings.experts.count = 4;
  settings.experts.per_token = 2;
  settings.experts.width = 64;

  // Besides attention: norm and residual of the dense block, whose inner width is 64, too.
  const double dense_mlp = rows * (2 * width + (up + inner) + 2 * width);
  const plan::UnitDescription mixture = units(1)[1];
  EXPECT_DOUBLE_EQ(sum(mixture.forward).activations, all * inner);
  EXPECT_DOUBLE_EQ(sum(mixture.backward).activations, 2 * all * inner);
  // Norm, scores of 4 experts, copies, activation, their sum with what the block reads.
  const double alone = rows * 2 * width + rows * 2 * 4 + all * 2 * width + all * (up + inner) +
                       (all + 2 * rows) * width;
  EXPECT_DOUBLE_EQ(sum(mixture.forward).row_bytes - sum(dense.forward).row_bytes,
                   bytes * (alone - dense_mlp));

  const plan::UnitDescription shared = units(2)[2];
  EXPECT_DOUBLE_EQ(sum(shared.forward).activations, all * inner);
  EXPECT_DOUBLE_EQ(sum(shared.backward).activations, 2 * all * inner);
  EXPECT_DOUBLE_EQ(sum(shared.forward).products, sum(shared.backward).products * 2 / 5);
  const double copies = all * 2 * width, combine = (all + 2 * rows) * width;
  EXPECT_DOUBLE_EQ(sum(shared.forward).row_bytes,
                   bytes * (2 * copies + all * (up + inner) + combine));
  EXPECT_DOUBLE_EQ(
      sum(shared.backward).row_bytes,
      bytes * (3 * copies + 2.5 * all * (up + inner) + all * (3 * inner + 2 * width) + combine));
}

// Rows of embeddings and the weights of logits are no linear maps between hidden states.
TEST(Decoder, SaysWhichMatricesMuonMayTake) {
  for (const bool is_gpt2 : {false, true}) {
    const Decoder<float> decoder(is_gpt2 ? gpt2_124m() : llama3(2, 128, 8, 64), {1, 8});
    for (int u = 0; u < decoder.units(); ++u)
      for (const model::Parameter& parameter : decoder.unit(u).parameters()) {
        const bool is_outside = u == 0 || (u + 1 == decoder.units() && parameter.shape.size() == 2);
        EXPECT_EQ(parameter.orthogonalize, !is_outside) << parameter.full_name();
      }
  }
}

/// Forward and backward of a Llama: 2 m n k for every matrix product, the scores' for half of the
/// keys, backward with two products for each of forward's and with scores and logits once more.
double llama_flops(double rows, double tokens, double layers, double width, double heads,
                   double kv_heads, double ffn_width, double vocabulary) {
  const double head_width = width / heads;
  const double qkv = 2 * rows * width * (heads + 2 * kv_heads) * head_width;
  const double out = 2 * rows * width * width;
  const double feed_forward = 3 * 2 * rows * width * ffn_width;
  const double attend = 2 * rows * heads * head_width * tokens / 2;  // scores; also times values
  const double block = 3 * (qkv + out + feed_forward) + (2 + 4 + 1) * attend;
  return layers * block + 4 * 2 * rows * width * vocabulary;
}

TEST(Decoder, CountsFlopsOfLargeModels) {
  // The second one has more than a 64-bit integer holds.
  for (const model::LeafShape& leaf : {model::LeafShape{1, 8192}, {4096, 131072}}) {
    const Decoder<float> decoder(llama3(126, 16384, 128, 53248), leaf);
    double sum = 0;
    for (const plan::UnitDescription& unit : decoder.description().units) {
      EXPECT_GE(unit.forward.front().flops, 0.0) << unit.name;
      EXPECT_GE(unit.backward.front().flops, unit.forward.front().flops) << unit.name;
      sum += unit.forward.front().flops + unit.backward.front().flops;
    }
    ASSERT_TRUE(std::isfinite(sum));
    ASSERT_GT(sum, 0.0);
    const double expected =
        llama_flops(static_cast<double>(leaf.rows()), static_cast<double>(leaf.tokens), 126, 16384,
                    128, 8, 53248, 128256);
    EXPECT_NEAR(sum / expected, 1.0, 1e-12);
  }
}

TEST(Decoder, LaysOutParameters) {
  const Decoder<float> decoder(llama3(3, 24 * 8, 8, 19), {1, 8});
  std::int64_t end = 0;
  for (const model::Parameter& p : decoder.unit(1).parameters()) {
    EXPECT_EQ(p.offset % model::parameter_alignment, 0) << p.name;
    EXPECT_GE(p.offset, end) << p.name;
    EXPECT_LT(p.offset, end + model::parameter_alignment) << p.name;
    end = p.offset + p.elements();
    const bool projection = p.name == "attention.out.weight" || p.name == "mlp.down.weight";
    EXPECT_EQ(p.decays, p.shape.size() == 2) << p.name;
    if (p.shape.size() == 2)
      EXPECT_DOUBLE_EQ(p.deviation, projection ? 0.02 / std::sqrt(6.0) : 0.02) << p.name;
    else
      EXPECT_EQ(p.initializer, model::Initializer::ones) << p.name;
  }
  EXPECT_EQ(decoder.unit(1).description().parameter_elements % model::parameter_alignment, 0);
  EXPECT_EQ(decoder.unit(1).parameters()[1].name, "attention.qkv.weight");
  EXPECT_EQ(decoder.unit(1).parameters()[4].name, "mlp.gate_up.weight");
  EXPECT_EQ(decoder.unit(1).parameters()[4].shape, (std::vector<std::int64_t>{38, 192}));
}

TEST(Decoder, RefusesImpossibleShapes) {
  struct Refused {
    std::function<void(DecoderSettings&, model::LeafShape&)> change;
    std::string message;
  };
  for (const Refused& one : std::vector<Refused>{
           {[](auto&s, auto&) { s.width = 63; }, "model width 63 is not a multiple of heads 8"},
           {[](auto&s, auto&) { s.kv_heads = 3; }, "model heads 8 is not a multiple of kv_heads 3"},
           {[](auto&s, auto&) { s.width = 24; },
            "RoPE requires an even head dimension, but model width 24 over heads 8 gives the odd "
            "head width "
            "3"},
           {[](auto&s, auto&) { s.layers = 0; }, "model layers is 0, expected at least 1"},
           {[](auto&, auto&leaf) { leaf.tokens = 0; }, "model tokens is 0, expected at least 1"},
           {[](auto&s, auto&) { s.blocks_per_unit = -1; },
            "model blocks_per_unit is -1, expected at least 1, or 0 for automatic"}}) {
    DecoderSettings s = llama3(1, 64, 8, 16);
    model::LeafShape leaf{1, 4};
    one.change(s, leaf);
    EXPECT_EQ(testing::error_of([&] { Decoder<float> decoder(s, leaf); }), one.message);
    EXPECT_EQ(testing::error_of([&] { model::make_decoder(DType::bf16, s, leaf); }), one.message);
  }
}

// What decoding keeps of each token in a block: keys and values, or a latent and the keys of all
// heads; of the tokens that queries see, or with a window those that the rows of a call see.
TEST(Decoder, KeepsWhatLaterTokensSee) {
  const auto kept = [](const DecoderSettings& settings, std::int64_t tokens, std::int64_t at_once) {
    model::LeafShape leaf{1, tokens};
    leaf.decoded_rows = at_once;
    const Decoder<float> decoder(settings, leaf);
    std::vector<std::int64_t> bytes;
    for (int u = 1; u + 1 < decoder.units(); ++u)
      bytes.push_back(decoder.description().units[u].saved_bytes);
    return bytes;
  };
  using Bytes = std::vector<std::int64_t>;
  DecoderSettings s = llama3(2, 128, 8, 64);
  s.kv_heads = 2;
  EXPECT_EQ(kept(s, 96, 4), (Bytes{96 * 64 * 4, 96 * 64 * 4}));
  s.attention_window = 9;
  s.window_layers = *model::LayerPattern::parse("every 2nd");
  EXPECT_EQ(kept(s, 96, 4), (Bytes{96 * 64 * 4, (8 + 4) * 64 * 4}));
  // Where that is as long as a sequence, or longer, it is all of it.
  EXPECT_EQ(kept(s, 12, 4), (Bytes{12 * 64 * 4, 12 * 64 * 4}));
  EXPECT_EQ(kept(s, 11, 4), (Bytes{11 * 64 * 4, 11 * 64 * 4}));
  s.kv_heads = 8;
  s.latent = {0, 56, 8, 12};
  EXPECT_EQ(kept(s, 96, 4), (Bytes{96 * (56 + 8) * 4, (8 + 4) * (56 + 8) * 4}));

  DecoderSettings deepseek_v3 = llama3(1, 7168, 128, 18432);
  deepseek_v3.kv_heads = 128;
  deepseek_v3.head_dim = 192;
  deepseek_v3.latent = {1536, 512, 64, 128};
  EXPECT_EQ(kept(deepseek_v3, 32768, 256), (Bytes{32768 * 576 * 4}));

  // Each sequence has its own.
  model::LeafShape leaf{3, 96};
  leaf.decoded_rows = 4;
  EXPECT_EQ(Decoder<float>(s, leaf).description().units[1].saved_bytes, 3 * 96 * (56 + 8) * 4);
}

TEST(Decoder, RefusesImpossibleRuns) {
  const auto refused = [](const ModelRun<float>& run, const model::DecodedRuns* decoded) {
    return testing::error_of([&] {
      model::UnitBuffers<float> b = run.buffers(1);
      b.decoded = decoded;
      run.decoder.unit(1).forward(run.exec, b);
    });
  };
  const model::DecodedRuns one = {{0, 0, 7}};
  EXPECT_EQ(refused(ModelRun<float>(model_cases()[0]), &one),
            "a leaf of 3 x 7 that is not decoded: expected all rows");
  ModelCase which = model_cases()[0];
  which.leaf = {2, 7};
  which.leaf.decoded_rows = 4;
  const ModelRun<float> run(which);
  const std::string rows = " of 7 that are decoded: expected at most 4 of them";
  const std::string sequence = "; expected one run of each of 2 at most";
  for (const auto& [runs, message] : std::vector<std::pair<model::DecodedRuns, std::string>>{
           {{{0, 6, 2}}, "rows [6, 8)" + rows},
           {{{1, 3, 0}}, "rows [3, 3)" + rows},
           {{{0, -1, 3}}, "rows [-1, 2)" + rows},
           {{{0, 0, 5}}, "rows [0, 5)" + rows},
           {{{2, 0, 1}}, "a run of sequence 2" + sequence},
           {{{-1, 0, 1}}, "a run of sequence -1" + sequence},
           {{{1, 0, 1}, {1, 1, 1}}, "a run of sequence 1" + sequence},
           {{{0, 0, 4}, {1, 0, 2}}, "6 rows that are decoded: expected 1 to 5"},
           {{}, "0 rows that are decoded: expected 1 to 5"}})
    EXPECT_EQ(refused(run, &runs), message);
  EXPECT_EQ(refused(run, nullptr), "a leaf of 2 x 7 that is decoded: expected runs of rows");
}

}  // namespace
}  // namespace ostrakon::test
