// SPDX-License-Identifier: Apache-2.0
// Gradients of all parameters: in double against finite differences, in other types and in tensor
// pieces against those in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "math/check_gradient.hpp"
#include "model/model_run.hpp"
#include "support/messages.hpp"
#include "support/trials.hpp"

namespace ostrakon::test {
namespace {

/// Checks some elements, spread at random, of the gradient of `function` by a parameter.
void expect_gradient(ModelRun<double>& run, int u, const model::Parameter& p,
                     const std::vector<double>& gradient, const std::function<double()>& function) {
  std::vector<std::size_t> all(gradient.size()), chosen;
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::mt19937 generator(7);
  std::sample(all.begin(), all.end(), std::back_inserter(chosen), tests::trials(40), generator);
  const std::vector<double> before = run.parameters[u].values();
  std::vector<double> x, of_x;
  for (const std::size_t i : chosen) {
    x.push_back(before[p.offset + i]);
    of_x.push_back(gradient[i]);
  }
  const auto moved = [&] {
    std::vector<double> values = before;
    for (std::size_t i = 0; i < chosen.size(); ++i) values[p.offset + chosen[i]] = x[i];
    run.parameters[u].assign(values);
    return function();
  };
  // Where values are clamped the function has kinks, so steps are small, and rounding errors large.
  // Of normed mixtures it jumps where other experts are chosen.
  const model::DecoderSettings& settings = run.decoder.settings();
  const bool may_jump =
      settings.experts.exist() && settings.norm_placement != model::NormPlacement::before;
  const bool has_kinks = settings.clip_qkv > 0.0 || may_jump;
  const double tolerance = may_jump ? 1e-4 : has_kinks ? 1e-5 : 1e-6;
  EXPECT_TRUE(gradient_agrees(p.full_name(), x, of_x, moved, tolerance, has_kinks ? 1e-6 : 1e-3));
  run.parameters[u].assign(before);
}

/// Through all units, so that gradients of their inputs are checked, too.
TEST(Gradient, AgreesWithFiniteDifferences) {
  std::vector<ModelCase> cases = model_cases();
  cases.push_back(cases[1]);
  cases.back().name += ", long";
  cases.back().leaf = {1, 70};
  cases.push_back(cases.back());
  cases.back().name += ", window, cap and sinks";
  cases.back().settings.attention_window = 5;
  cases.back().settings.attention_soft_cap = 2.0;
  cases.back().settings.attention_sinks = true;
  for (const ModelCase& which : cases) {
    SCOPED_TRACE(which.name);
    ModelRun<double> run(which);
    const double scale = 0.25;
    run.forward();
    const std::vector<double> losses = run.head_output();
    run.outputs[run.head()].assign_unwritten();
    run.backward(scale);
    run.expect_guards_intact();
    EXPECT_LE(relative_distance(run.head_output(), losses), 1e-14)
        << "backward computes them again";
    std::vector<std::vector<double>> gradients;
    for (const auto& gradient : run.gradients) gradients.push_back(gradient.values());
    run.for_each_parameter([&](int u, const model::Parameter& p) {
      const auto function = [&] {  // units before u have the outputs that they had
        for (int next = u; next < run.units(); ++next) run.forward(next);
        return scale * run.loss_sum();
      };
      expect_gradient(run, u, p, part(gradients[u], p), function);
      run.forward(u);
    });
  }
}

/// Gradients of a step by names of parameters; `parameters`: theirs, or random ones.
template <class T>
std::map<std::string, std::vector<double>> gradients_of(
    const ModelCase& which, const model::Recompute& recompute, double loss_scale,
    std::map<std::string, std::vector<double>>& parameters) {
  ModelRun<T> run(which, recompute);
  const auto doubles = [](const auto& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  run.for_each_parameter([&](int u, const model::Parameter& p) {
    std::vector<T> flat = run.parameters[u].values();
    const auto [given, is_new] = parameters.emplace(p.full_name(), doubles(part(flat, p)));
    for_each_run_of(p, [&](std::int64_t at, std::int64_t first, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) flat[at + i] = T(given->second[first + i]);
    });
    run.parameters[u].assign(flat);
  });
  run.forward();
  run.backward(compute_t<T>(loss_scale));
  run.expect_guards_intact();
  std::map<std::string, std::vector<double>> gradients;
  run.for_each_parameter([&](int u, const model::Parameter& p) {
    gradients[p.full_name()] = doubles(part(run.gradients[u].values(), p));
    for (double& value : gradients[p.full_name()]) value /= loss_scale;
  });
  return gradients;
}

/// The largest distance of a parameter's gradient.
double distance(const std::map<std::string, std::vector<double>>& found,
                const std::map<std::string, std::vector<double>>& expected) {
  double most = 0.0;
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : found) {
    const double one = relative_distance(values, expected.at(name));
    if (!(one <= most)) most = one;
  }
  return most;
}

/// Both families some blocks deep, one block a unit and several.
std::vector<ModelCase> half_cases() {
  std::vector<ModelCase> cases;
  for (const std::int64_t blocks_per_unit : {1, 3})
    for (ModelCase which : deep_cases(4)) {
      which.settings.width = 48;
      which.settings.vocabulary = 131;
      which.settings.initializer_deviation = 0.1;
      which.settings.blocks_per_unit = blocks_per_unit;
      which.leaf = {2, 70};
      cases.push_back(which);
    }
  return cases;
}

template <class T>
void expect_near_double(double tolerance) {
  for (const ModelCase& which : half_cases())
    for (const model::Recompute& recompute : {model::Recompute{}, {true, true, true}}) {
      std::map<std::string, std::vector<double>> parameters;
      const auto found = gradients_of<T>(which, recompute, 0.25, parameters);
      EXPECT_LE(distance(found, gradients_of<double>(which, {}, 0.25, parameters)), tolerance)
          << which.name << ", " << to_string(recompute);
    }
}

TEST(Gradient, IsNearDoubleInFloat) { expect_near_double<float>(2e-6); }
TEST(Gradient, IsNearDoubleInBf16) { expect_near_double<bf16>(0.02); }
TEST(Gradient, IsNearDoubleInFp16) { expect_near_double<fp16>(0.003); }

/// Small gradients are nothing in fp16, unless the loss is scaled: then all of them are there.
TEST(Gradient, ScalesWithTheLoss) {
  for (const ModelCase& which : half_cases()) {
    SCOPED_TRACE(which.name);
    std::map<std::string, std::vector<double>> own;
    EXPECT_EQ(gradients_of<bf16>(which, {}, 0x1p-20, own),
              gradients_of<bf16>(which, {}, 0x1p10, own));
    const auto expected = gradients_of<float>(which, {}, 0x1p-20, own);
    EXPECT_GT(distance(gradients_of<fp16>(which, {}, 0x1p-20, own), expected), 0.1);
    EXPECT_LE(distance(gradients_of<fp16>(which, {}, 0x1p-2, own), expected), 0.02);
  }
}

/// All pieces on one rank, with the parameters of the whole.
template <class T>
void expect_pieces_near_the_whole(ModelCase which, double tolerance) {
  std::map<std::string, std::vector<double>> parameters;
  ModelCase pieces = which;
  pieces.leaf.tensor_grain = 4;
  const auto found = gradients_of<T>(pieces, {}, 1.0, parameters);
  EXPECT_LE(distance(found, gradients_of<double>(which, {}, 1.0, parameters)), tolerance)
      << which.name;
}

TEST(Gradient, InPiecesIsThatOfTheWhole) {
  const auto in_heads = [](const model::DecoderSettings& of, std::int64_t head_width) {
    return changed(of, [&](auto& s) {
      s.heads = 8;
      s.kv_heads = 4;
      s.head_dim = head_width;
      s.ffn_width = 20;
    });
  };
  const auto with_norms = [](auto& s) { s.query_key_norm = model::QueryKeyNorm::head; };
  const auto llama = in_heads(model_cases()[1].settings, 8), qwen3 = changed(llama, with_norms);
  const auto gpt2 = changed(in_heads(model_cases()[0].settings, 12), with_norms);
  const auto gated = changed(qwen3, [](auto& s) { s.attention_gate = true; });
  const auto delta_net = changed(gated, [](auto& s) {
    s.norm_epsilon = 0.1;
    s.delta_net = {4, 8, 5, 8};
    s.delta_layers = *model::LayerPattern::parse("all but every 2nd");
  });
  const auto stack = changed(qwen3, [](auto& s) { s.blocks_per_unit = 2; });
  const auto latent = changed(in_heads(model_cases()[1].settings, 12), [](auto& s) {
    s.kv_heads = s.heads;
    s.latent = {0, 12, 4, 5};
  });
  const auto latents = changed(latent, [](auto& s) { s.latent = {16, 8, 8, 20}; });
  const auto scores = changed(llama, [](auto& s) {
    s.attention_window = 5;
    s.attention_soft_cap = 1.5;
    s.attention_sinks = true;
    s.positions = model::Positions::alibi;
    s.clip_qkv = 0.9;
  });
  const auto more_slopes = changed(scores, [](auto& s) { s.heads = 12; });
  const auto gemma = changed(qwen3, [](auto& s) {
    s.norm_weight = math::NormWeight::one_plus;
    s.norm_placement = model::NormPlacement::both;
    s.residual_scale = 0.5;
    s.embedding_norm = s.tie_embeddings = true;
    s.rotary = {500.0, 0.75, math::RotaryScaling::yarn, 4.0, 32};
  });
  const auto nanochat = changed(gpt2, [](auto& s) {
    s.positions = model::Positions::rotary;
    s.rotary.share = 0.5;
    s.query_key_norm = model::QueryKeyNorm::rotated;
    s.embedding_norm = true;
    s.norm_weight = math::NormWeight::none;
    s.block = model::BlockForm::parallel;
  });
  const auto parallel = changed(gpt2, [](auto& s) {
    s.query_key_norm = model::QueryKeyNorm::rotated;
    s.embedding_norm = true;
    s.block = model::BlockForm::parallel_two_norms;
    s.own_qkv_bias = false;
  });
  const auto capped = changed(llama, [](auto& s) {
    s.activation = model::Activation::geglu;
    s.head_bias = true;
    s.logit_scale = 0.5;
    s.logit_soft_cap = 2.0;
  });
  const auto module = changed(qwen3, [](auto& s) { s.multi_token_depth = 1; });
  const auto tied_capped = changed(capped, [](auto& s) { s.tie_embeddings = true; });
  const auto olmo2 = changed(llama, [](auto& s) {
    s.query_key_norm = model::QueryKeyNorm::whole;
    s.norm_placement = model::NormPlacement::after;
  });
  const auto one_plus = changed(olmo2, [](auto& s) {
    s.norm_weight = math::NormWeight::one_plus;
    s.blocks_per_unit = 2;
  });
  const auto stablelm2 = changed(llama, [](auto& s) {
    s.query_key_norm = model::QueryKeyNorm::each_head;
    s.query_key_norm_kind = math::NormKind::layernorm;
    s.head_dim = 6;
  });
  for (const ModelCase& which :
       {ModelCase{"llama", llama, {2, 8}},
        {"olmo 2", olmo2, {2, 8}},
        {"olmo 2, 1 + weight, 2 blocks a unit, sequences as leaves", one_plus, {3, 8, 1, 1, true}},
        {"olmo 2, pieces as leaves", olmo2, {1, 16, 1, 2, false}},
        {"stablelm 2", stablelm2, {2, 8}},
        {"stablelm 2, pieces of sequences as leaves", stablelm2, {3, 16, 1, 2, true}},
        {"qwen3", qwen3, {2, 8}},
        {"qwen3, gated attention", gated, {2, 8}},
        {"qwen3, gated attention, pieces of sequences as leaves", gated, {3, 16, 1, 2, true}},
        {"a delta net", delta_net, {2, 8}},
        {"a delta net, sequences as leaves", delta_net, {3, 8, 1, 1, true}},
        {"llama, geglu, capped logits with a bias", capped, {2, 8}},
        {"llama, geglu, capped logits with a bias, tied, sequences as leaves",
         tied_capped,
         {3, 8, 1, 1, true}},
        {"qwen3, sequences as leaves", qwen3, {3, 8, 1, 1, true}},
        {"qwen3, pieces of sequences as leaves", qwen3, {3, 16, 1, 2, true}},
        {"scores", scores, {2, 8}},
        {"scores, slopes of 12 heads, pieces of sequences as leaves",
         more_slopes,
         {3, 16, 1, 2, true}},
        {"gpt2, norms of heads, pieces as leaves", gpt2, {1, 16, 1, 2, false}},
        {"qwen3, 2 blocks a unit, pieces as leaves", stack, {1, 32, 1, 4}},
        {"latent attention", latent, {2, 8}},
        {"latent attention, pieces of sequences as leaves", latent, {3, 16, 1, 2, true}},
        {"latents of queries, too, sequences as leaves", latents, {3, 8, 1, 1, true}},
        {"qwen3, a module", module, {2, 8}},
        {"qwen3, a module, sequences as leaves", module, {3, 8, 1, 1, true}},
        {"gemma, norm of the embedding, yarn", gemma, {2, 8}},
        {"nanochat, sequences as leaves", nanochat, {3, 8, 1, 1, true}},
        {"parallel blocks with two norms, pieces as leaves", parallel, {1, 16, 1, 2, false}}}) {
    SCOPED_TRACE(which.name);
    expect_pieces_near_the_whole<double>(which, 1e-12);
    expect_pieces_near_the_whole<float>(which, 1e-5);  // the second of two pieces is added in place
    expect_pieces_near_the_whole<bf16>(which, 0.05);
  }
}

/// In pieces experts are units of their own, and so is what adds their normed mixtures. Numbers of
/// 16 bits choose other experts.
TEST(Gradient, OfMixturesInPiecesIsThatOfTheWhole) {
  const auto mixtral = changed(model_cases()[1].settings, [](auto& s) {
    s.heads = s.kv_heads = 4;
    s.head_dim = 8;
    s.ffn_width = 20;
    s.experts = {8, 2, 1, 12};
  });
  const auto gated = changed(mixtral, [](auto& s) {
    s.experts.shared_gate = true;
    s.query_key_norm = model::QueryKeyNorm::whole;
  });
  const auto scaled = changed(mixtral, [](auto& s) { s.residual_scale = 0.4; });
  const auto gated_scaled = changed(gated, [](auto& s) { s.residual_scale = 0.4; });
  const auto both =
      changed(gated_scaled, [](auto& s) { s.norm_placement = model::NormPlacement::both; });
  const auto after = changed(mixtral, [](auto& s) {
    s.layers = 3;
    s.bias = true;
    s.norm = math::NormKind::layernorm;
    s.norm_placement = model::NormPlacement::after;
    s.experts.shared = 0;
    s.expert_layers = *model::LayerPattern::parse("all but first 1");
  });
  for (const ModelCase& which : {ModelCase{"mixtral", mixtral, {2, 8}},
                                 {"a gated shared expert", gated, {2, 8}},
                                 {"scaled", scaled, {3, 8, 1, 1, true}},
                                 {"a gated shared expert, scaled", gated_scaled, {2, 8}},
                                 {"norms before and after", both, {2, 8}},
                                 {"norms after", after, {1, 16, 1, 2, false}}}) {
    SCOPED_TRACE(which.name);
    expect_pieces_near_the_whole<double>(which, 1e-12);
    expect_pieces_near_the_whole<float>(which, 1e-5);
  }
}

TEST(Gradient, NeedsRmsNormForANormOfAllHeads) {
  ModelCase which = model_cases()[1];
  which.settings.query_key_norm = model::QueryKeyNorm::whole;
  which.settings.query_key_norm_kind = math::NormKind::layernorm;
  EXPECT_EQ(testing::error_of([&] { model::Decoder<double>(which.settings, which.leaf); }),
            "model query_key_norm is whole and its kind layernorm; expected rmsnorm");
}

TEST(Gradient, NeedsEqualPiecesOfNormsOfHeads) {
  ModelCase which = model_cases()[1];
  which.leaf = {2, 8};
  which.leaf.tensor_grain = 4;
  which.settings.heads = 8;
  which.settings.kv_heads = 4;
  which.settings.ffn_width = 20;
  which.settings.head_dim = 10;
  model::Decoder<double>(which.settings, which.leaf);
  which.settings.query_key_norm = model::QueryKeyNorm::head;
  const std::string message =
      testing::error_of([&] { model::Decoder<double>(which.settings, which.leaf); });
  EXPECT_EQ(message, std::string("head_width 10 can't be cut into 4 pieces for tensor "
                                 "parallelism; expected a multiple"));
}

}  // namespace
}  // namespace ostrakon::test
