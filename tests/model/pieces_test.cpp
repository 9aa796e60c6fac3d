// SPDX-License-Identifier: Apache-2.0
// Blocks whose parameters come in tensor pieces, all of them on one rank: gradients of parameters
// against those of the whole block, and of norms of heads against finite differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <string>
#include <vector>

#include "math/check_gradient.hpp"
#include "model/model_run.hpp"

namespace ostrakon::test {
namespace {

/// A block with its phases, between which one rank exchanges with itself.
class BlockInPhases : public ModelRun<double> {
 public:
  using ModelRun<double>::ModelRun;

  void forward() {
    run(description.units[1].forward, buffers(1), [&](const auto& b) {
      decoder.unit(1).forward(exec, b, {0, rows()});
    });
  }
  void backward() {
    model::UnitBuffers<double> all = buffers(1);
    all.gradient = gradient;
    all.parameter_gradients = gradients[1];
    run(description.units[1].backward, all,
        [&](const auto& b) { decoder.unit(1).backward(exec, b, 1.0, false); });
    expect_guards_intact();
  }
  const std::vector<model::Parameter>& parameters_of_block() const {
    return decoder.unit(1).parameters();
  }

 private:
  template <class Call>
  void run(const plan::Phases& phases, model::UnitBuffers<double> b, const Call& call) {
    std::vector<GuardedArray<double>> handed;
    GuardedArray<double> workspace(0);
    const auto came = [&](const plan::Phase& phase, std::size_t which) {
      return which < phase.reads.size()
                 ? handed[static_cast<std::size_t>(phase.reads[which])].bytes()
                 : View<std::byte*>();
    };
    for (std::size_t p = 0; p < phases.size(); ++p) {
      if (p == 0 || !phases[p - 1].keeps_workspace)
        workspace =
            GuardedArray<double>::of_bytes(plan::workspace_bytes(phases, static_cast<int>(p)));
      handed.push_back(
          GuardedArray<double>::of_bytes(phases[p].then ? phases[p].then->bytes_in() : 0));
      b.phase = static_cast<int>(p);
      b.workspace = workspace.bytes();
      b.exchanged = came(phases[p], 0);
      b.second_exchanged = came(phases[p], 1);
      b.handed = phases[p].then ? handed[p].bytes() : View<std::byte*>();
      call(b);
      exec.fence();
      EXPECT_TRUE(workspace.guards_intact() && handed[p].guards_intact()) << "phase " << p;
    }
  }
};

/// body(its first element in a flat array, its first element in the whole parameter, elements) for
/// each run of neighbours in the pieces of a parameter.
template <class Body>
void for_each_run(const model::Parameter& parameter, const Body& body) {
  for (std::int64_t piece = 0; piece < parameter.pieces; ++piece) {
    std::int64_t at = parameter.offset + piece * parameter.piece_stride;
    for (const model::ElementRuns& runs : parameter.elements_of_piece(piece))
      runs.for_each([&](std::int64_t first, std::int64_t count) {
        body(at, first, count);
        at += count;
      });
  }
}

std::vector<double> whole(const std::vector<double>& flat, const model::Parameter& parameter) {
  std::vector<double> values(static_cast<std::size_t>(parameter.elements()));
  for_each_run(parameter, [&](std::int64_t at, std::int64_t first, std::int64_t count) {
    std::copy_n(flat.begin() + at, count, values.begin() + first);
  });
  return values;
}

void put(const std::vector<double>& values, const model::Parameter& parameter,
         std::vector<double>& flat) {
  for_each_run(parameter, [&](std::int64_t at, std::int64_t first, std::int64_t count) {
    std::copy_n(values.begin() + first, count, flat.begin() + at);
  });
}

std::vector<ModelCase> cases_in_pieces() {
  const auto in_heads = [](model::DecoderSettings settings, std::int64_t head_width) {
    settings.heads = 8;
    settings.kv_heads = 4;
    settings.own_head_width = head_width;
    settings.ffn_width = 20;
    return settings;
  };
  const model::DecoderSettings llama = in_heads(model_cases()[1].settings, 8);
  model::DecoderSettings qwen3 = llama;
  qwen3.query_key_norm = true;
  model::DecoderSettings gpt2 = in_heads(model_cases()[0].settings, 12);
  gpt2.query_key_norm = true;
  model::DecoderSettings stack = qwen3;
  stack.blocks_per_unit = 2;
  return {{"llama", llama, {2, 8}},
          {"qwen3", qwen3, {2, 8}},
          {"qwen3, sequences as leaves", qwen3, {3, 8, 1, 1, true}},
          {"qwen3, pieces of sequences as leaves", qwen3, {3, 16, 1, 2, true}},
          {"gpt2, norms of heads, pieces as leaves", gpt2, {1, 16, 1, 2, false}},
          {"qwen3, 2 blocks a unit, pieces as leaves", stack, {1, 32, 1, 4, false}}};
}

void expect_gradients_in_pieces(const ModelCase& which) {
  ModelCase cut = which;
  cut.leaf.tensor_grain = 4;
  BlockInPhases one(which), pieces(cut);
  const std::vector<double> input = one.random(one.gradient.size());
  const std::vector<double> weights = one.random(one.gradient.size());
  const std::vector<double> of_one = one.parameters[1].values();
  std::vector<double> flat = pieces.parameters[1].values();
  for (std::size_t i = 0; i < one.parameters_of_block().size(); ++i)
    put(part(of_one, one.parameters_of_block()[i]), pieces.parameters_of_block()[i], flat);
  pieces.parameters[1].assign(flat);
  for (BlockInPhases* run : {&one, &pieces}) {
    run->outputs[0].assign(input);
    run->forward();
    run->gradient.assign(weights);
    run->backward();
  }
  const std::vector<double> expected = one.gradients[1].values();
  const std::vector<double> found = pieces.gradients[1].values();
  for (std::size_t i = 0; i < one.parameters_of_block().size(); ++i) {
    const model::Parameter& parameter = pieces.parameters_of_block()[i];
    const std::string name = which.name + ", " + parameter.full_name();
    const std::vector<double> a = part(expected, one.parameters_of_block()[i]);
    const std::vector<double> b = whole(found, parameter);
    double most = 0.0;
    for (const double value : a) most = std::max(most, std::abs(value));
    for (std::size_t k = 0; k < a.size(); ++k)
      ASSERT_NEAR(b[k], a[k], 1e-12 * most) << name << " " << k;

    const bool is_of_heads =
        name.find("query_norm") != std::string::npos || name.find("key_norm") != std::string::npos;
    if (!is_of_heads) continue;
    std::vector<double> x = whole(flat, parameter);
    const auto function = [&] {
      std::vector<double> moved = flat;
      put(x, parameter, moved);
      pieces.parameters[1].assign(moved);
      pieces.forward();
      return weighted_sum(pieces.outputs[1].values(), weights);
    };
    EXPECT_TRUE(gradient_agrees(name, x, b, function));
  }
}

TEST(Pieces, HaveTheGradientsOfTheWhole) {
  for (const ModelCase& which : cases_in_pieces()) expect_gradients_in_pieces(which);
}

TEST(Pieces, OfNormsOfHeadsAreEqual) {
  ModelCase which = cases_in_pieces()[1];
  which.leaf.tensor_grain = 4;
  which.settings.own_head_width = 10;
  try {
    model::Decoder<double>(which.settings, which.leaf);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), std::string("head_width 10 can't be cut into 4 pieces for tensor "
                                        "parallelism; expected a multiple"));
  }
  which.settings.query_key_norm = false;
  model::Decoder<double>(which.settings, which.leaf);
}

}  // namespace
}  // namespace ostrakon::test
