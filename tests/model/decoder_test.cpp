// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <ostrakon/base/error.hpp>

#include "model/model_run.hpp"
#include "model/reference_decoder.hpp"

namespace ostrakon::test {
namespace {

using model::Activation;
using model::Decoder;
using model::DecoderSettings;
using model::Positions;

/// Of each row of a leaf, its row in the order of positions.
std::vector<std::int64_t> row_order(const model::LeafShape& leaf) {
  std::vector<std::int64_t> order;
  for (std::int64_t s = 0; s < leaf.batch; ++s)
    for (std::int64_t r = 0; r < leaf.tokens; ++r)
      order.push_back(s * leaf.tokens + leaf.sequence().position(0, r));
  return order;
}

/// Row r is row order[r] of `values`.
std::vector<double> rows_in(const std::vector<std::int64_t>& order,
                            const std::vector<double>& values) {
  const std::size_t columns = values.size() / order.size();
  std::vector<double> sorted;
  for (const std::int64_t row : order) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * columns);
    sorted.insert(sorted.end(), begin, begin + static_cast<std::ptrdiff_t>(columns));
  }
  return sorted;
}

template <class T>
reference::Result<double> run_reference(const ModelRun<T>& run, const ModelCase& which) {
  const DecoderSettings& s = which.settings;
  const auto parameters = [&](const std::string& owner, const std::string& name) {
    std::vector<double> values;
    for (int u = 0; u < run.units(); ++u) {
      for (const model::Parameter& p : run.decoder.unit(u).parameters()) {
        if (p.owner != owner || p.name != name) continue;
        const std::vector<T> flat = run.parameters[u].values();
        values.assign(flat.begin() + p.offset, flat.begin() + p.offset + p.elements());
      }
    }
    EXPECT_FALSE(values.empty()) << which.name << ": no parameter " << name << " in " << owner;
    return values;
  };
  const reference::Settings settings{
      s.norm == math::NormKind::layernorm,
      s.positions == Positions::learned,
      s.activation == Activation::gelu,
      s.bias,
      s.tie_embeddings,
      static_cast<int>(s.layers),
      static_cast<int>(s.width),
      static_cast<int>(s.heads),
      static_cast<int>(s.kv_heads),
      static_cast<int>(s.ffn_width),
      static_cast<int>(s.vocabulary),
      static_cast<int>(which.leaf.batch),
      static_cast<int>(which.leaf.tokens),
      s.norm_epsilon,
      s.rotary_base,
      {static_cast<int>(s.experts.count), static_cast<int>(s.experts.per_token),
       static_cast<int>(s.experts.shared), static_cast<int>(s.experts.width),
       s.experts.score == math::RouterScore::sigmoid, s.experts.normalize, s.experts.scale,
       static_cast<int>(s.experts.groups), static_cast<int>(s.experts.groups_per_token)},
      static_cast<int>(s.own_head_width),
      s.query_key_norm,
      s.mlp_bias()};
  // It takes rows in the order of positions, and returns them so.
  const std::vector<std::int64_t> order = row_order(which.leaf);
  std::vector<std::int32_t> tokens(order.size()), targets(order.size());
  for (std::size_t r = 0; r < order.size(); ++r) {
    tokens[order[r]] = run.token_ids[r];
    targets[order[r]] = run.target_ids[r];
  }
  reference::Result<double> result =
      reference::Decoder<double>(settings, parameters).run(tokens, targets);
  for (std::vector<double>& hidden : result.hidden) hidden = rows_in(order, hidden);
  result.logits = rows_in(order, result.logits);
  result.losses = rows_in(order, result.losses);
  return result;
}

/// The largest difference, relative to the largest value.
template <class A, class B>
double relative_error(const std::vector<A>& found, const std::vector<B>& expected) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double difference = std::abs(static_cast<double>(found[i] - expected[i]));
    if (std::isnan(difference)) return difference;
    error = std::max(error, difference);
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
  }
  return error / largest;
}

/// A GPT-2 and a Llama of some size: longer than a block of any kernel.
std::vector<ModelCase> long_cases() {
  std::vector<ModelCase> cases = model_cases();
  ModelCase gpt2 = cases[0], llama = cases[1];
  for (ModelCase* which : {&gpt2, &llama}) {
    which->name += ", long";
    which->settings.width = 96;
    which->settings.ffn_width = 131;
    which->settings.vocabulary = 517;
    which->settings.initializer_deviation = 0.1;
    which->leaf = {2, 150};
  }
  return {gpt2, llama};
}

template <class T>
void expect_forward_agrees(const ModelCase& which, double tolerance) {
  ModelRun<T> run(which);
  run.forward();
  run.expect_guards_intact();
  const reference::Result<double> expected = run_reference(run, which);
  std::size_t computed = 0;  // the embedding, then blocks
  for (int u = 0; u < run.head(); ++u) {
    computed += owners(run.decoder.unit(u)).size();
    EXPECT_LE(relative_error(run.outputs[u].values(), expected.hidden[computed - 1]), tolerance)
        << which.name << ": output of " << run.description.units[u].name;
  }
  EXPECT_EQ(computed, expected.hidden.size()) << which.name;
  EXPECT_LE(relative_error(run.outputs[run.head()].values(), expected.losses), tolerance)
      << which.name << ": losses";
}

TEST(Decoder, ForwardAgreesWithPlainLoops) {
  for (const ModelCase& which : model_cases()) {
    expect_forward_agrees<float>(which, 1e-5);
    expect_forward_agrees<double>(which, 1e-12);
  }
}

TEST(Decoder, LongForwardAgreesWithPlainLoops) {
  for (const ModelCase& which : long_cases()) expect_forward_agrees<float>(which, 1e-5);
}

TEST(Decoder, BackwardComputesTheLossesOfForward) {
  for (const ModelCase& which : model_cases()) {
    ModelRun<double> run(which);
    run.forward();
    const std::vector<double> losses = run.outputs[run.head()].values();
    run.outputs[run.head()].assign_unwritten();
    run.backward(1.0);
    EXPECT_LE(relative_error(run.outputs[run.head()].values(), losses), 1e-14) << which.name;
    run.expect_guards_intact();
  }
}

TEST(Decoder, BackwardLeavesAlignmentGapsAlone) {
  for (const ModelCase& which : model_cases()) {
    ModelRun<float> run(which);
    run.forward();
    run.backward(1.0f);
    for (int u = 0; u < run.units(); ++u) {
      const std::vector<float> flat = run.gradients[u].values();
      std::vector<bool> written(flat.size(), run.opened(u));  // a tied head's gaps are zeros
      for (const model::Parameter& p : run.decoder.unit(u).parameters())
        std::fill_n(written.begin() + p.offset, p.elements(), true);
      for (std::size_t i = 0; i < flat.size(); ++i)
        ASSERT_EQ(std::isnan(flat[i]), !written[i])
            << which.name << ": gradient " << i << " of " << run.description.units[u].name;
    }
  }
}

TEST(Decoder, SameInputsGiveSameBits) {
  for (const ModelCase& which : long_cases()) {
    ModelRun<float> first(which), second(which);
    for (ModelRun<float>* run : {&first, &second}) {
      run->forward();
      run->backward(0.5f);
    }
    const auto written = [](const model::Unit<float>& unit, std::vector<float> flat) {
      std::vector<float> values;
      for (const model::Parameter& p : unit.parameters())
        values.insert(values.end(), flat.begin() + p.offset,
                      flat.begin() + p.offset + p.elements());
      return values;
    };
    for (int u = 0; u < first.units(); ++u)
      EXPECT_EQ(written(first.decoder.unit(u), first.gradients[u].values()),
                written(second.decoder.unit(u), second.gradients[u].values()))
          << which.name << ": " << first.description.units[u].name;
  }
}

TEST(Decoder, DecodingRowByRowEqualsTheWholeForward) {
  for (ModelCase which : model_cases()) {
    which.leaf = {1, 13};
    ModelRun<double> whole(which);
    whole.forward();
    const auto decoded = decoded_outputs(which, whole);
    for (int u = 0; u < whole.head(); ++u)
      EXPECT_LE(relative_error(decoded[u], whole.outputs[u].values()), 1e-12)
          << which.name << ": " << whole.description.units[u].name;
  }
}

TEST(Decoder, LogitsAgreeWithPlainLoops) {
  for (const ModelCase& each : model_cases()) {
    const ModelCase which = decoded_at_once(each);
    ModelRun<double> run(which);
    run.forward();
    const std::vector<double> all = run_reference(run, which).logits;
    EXPECT_LE(relative_error(run.head_output(),
                             std::vector<double>(all.end() - which.settings.vocabulary, all.end())),
              1e-12)
        << which.name;
    run.expect_guards_intact();
  }
}

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
  s.rotary_base = 500000.0;
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
  EXPECT_EQ(Decoder<double>(gpt2_124m(), {2, 1024}).description().element_bytes, 8);

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
  EXPECT_EQ(head.parameter_elements, 2 * width);
  EXPECT_EQ(head.forward.front().flops, static_cast<double>(2 * rows * width * 50257));
  // On a host far below the matrix of logits; on a device these rows fit at once.
  const std::int64_t logits = on_device ? 4 * rows * 50272 + 1 : 4 * rows * 50257 / 2;
  EXPECT_LT(head.backward.front().workspace_bytes, logits);
  EXPECT_EQ(Decoder<float>(llama3(2, 128, 8, 64), {1, 8}).description().units.back().tied_to, -1);
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

// Of experts that a rank computes alone, and of those that ranks share, which are a unit behind the
// block: 128 rows of width 128, 2 of 4 SwiGLU experts of width 64 for each.
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

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(Decoder, RefusesImpossibleShapes) {
  const auto refused = [](DecoderSettings s, model::LeafShape leaf = {1, 4}) {
    return refusal([&] { Decoder<float> decoder(s, leaf); });
  };
  DecoderSettings s = llama3(1, 64, 8, 16);
  s.width = 63;
  EXPECT_EQ(refused(s), "model width 63 is not a multiple of heads 8");
  s = llama3(1, 64, 8, 16);
  s.kv_heads = 3;
  EXPECT_EQ(refused(s), "model heads 8 is not a multiple of kv_heads 3");
  s = llama3(1, 24, 8, 16);
  EXPECT_EQ(refused(s),
            "rotary positions turn pairs, but model width 24 over heads 8 gives the odd head "
            "width 3");
  s = llama3(0, 64, 8, 16);
  EXPECT_EQ(refused(s), "model layers is 0, expected at least 1");
  EXPECT_EQ(refused(llama3(1, 64, 8, 16), {1, 0}), "model tokens is 0, expected at least 1");
  s = llama3(1, 64, 8, 16);
  s.blocks_per_unit = -1;
  EXPECT_EQ(refused(s), "model blocks_per_unit is -1, expected at least 1, or 0 for automatic");
}

TEST(Decoder, RefusesImpossibleRowRanges) {
  ModelRun<float> run(model_cases()[0]);
  for (int u = 0; u < run.units(); ++u)
    EXPECT_EQ(refusal([&] {
                run.decoder.unit(u).forward(run.exec, run.buffers(u), {0, 7});
              }),
              "rows [0, 7) of a leaf of 3 x 7: expected all of them");
  ModelCase single = model_cases()[0];
  single.leaf = {1, 7};
  single.leaf.decoded_rows = 4;
  ModelRun<float> sequence(single);
  for (const auto& rows : {model::Unit<float>::RowRange{6, 8}, {3, 3}, {-1, 2}, {0, 5}})
    EXPECT_NE(refusal([&] {
                sequence.decoder.unit(1).forward(sequence.exec, sequence.buffers(1), rows);
              }),
              "(accepted)");
  single.leaf.batch = 2;
  EXPECT_NE(refusal([&] { model::Decoder<float>(single.settings, single.leaf); }), "(accepted)");
}

}  // namespace
}  // namespace ostrakon::test
