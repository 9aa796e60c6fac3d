// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

// Decoders of small, odd sizes.

namespace ostrakon::test {

/// Settings with a name for messages.
struct ModelCase {
  std::string name;
  model::DecoderSettings settings;
  model::LeafShape leaf;
};

template <class Change>
model::DecoderSettings changed(model::DecoderSettings settings, const Change& change) {
  change(settings);
  return settings;
}

/// All activations, and what may become of logits. Few numbers, as finite differences err at the
/// corners of relu and of clamps.
inline std::vector<ModelCase> activation_and_head_cases(const model::DecoderSettings& gpt2,
                                                        const model::DecoderSettings& llama) {
  using model::Activation;
  const auto activated = [](model::DecoderSettings s, Activation activation) {
    s.activation = activation;
    s.width = 12;
    s.ffn_width = 5;
    return s;
  };
  // Gates and what they multiply are beyond the clamps, too.
  const auto clamped = changed(activated(llama, Activation::swiglu_clamped), [](auto& s) {
    s.bias = true;
    s.initializer_deviation = 1.5;
  });
  const auto tied_head = changed(gpt2, [](auto& s) {
    s.head_bias = true;
    s.logit_scale = 0.25;
    s.logit_soft_cap = 1.5;
  });
  const auto own_head = changed(tied_head, [](auto& s) { s.tie_embeddings = false; });
  const auto capped = changed(llama, [](auto& s) { s.logit_soft_cap = 2.0; });
  const auto scaled = changed(llama, [](auto& s) { s.logit_scale = 3.0; });
  return {{"gpt2, gelu_exact", activated(gpt2, Activation::gelu_exact), {2, 3}},
          {"gpt2, relu", activated(gpt2, Activation::relu), {1, 3}},
          {"gpt2, relu_squared", activated(gpt2, Activation::relu_squared), {1, 3}},
          {"llama, geglu", activated(llama, Activation::geglu), {2, 5}},
          {"llama, geglu_exact", activated(llama, Activation::geglu_exact), {2, 5}},
          {"llama, swiglu_clamped", clamped, {1, 3}},
          {"gpt2, tied head with a bias, scaled and capped", tied_head, {3, 7}},
          {"gpt2, tied head with a bias, sequences as leaves", tied_head, {3, 7, 1, 1, true}},
          {"gpt2, own head with a bias, scaled and capped", own_head, {2, 5}},
          {"gpt2, own head with a bias, pieces as leaves", own_head, {1, 16, 1, 4, false}},
          {"llama, capped logits", capped, {2, 9}},
          {"llama, scaled logits, sequences as leaves", scaled, {3, 6, 1, 1, true}}};
}

/// What mixtures of experts may have besides.
inline std::vector<ModelCase> expert_cases(const model::DecoderSettings& llama) {
  const auto some_layers = changed(llama, [](auto& s) {
    s.layers = 3;
    s.experts = {6, 2, 0, 11};
    s.expert_layers = *model::LayerPattern::parse("all but first 1");
  });
  const auto stacked = changed(some_layers, [](auto& s) { s.blocks_per_unit = 2; });
  const auto router_bias = changed(llama, [](auto& s) {
    s.bias = true;
    s.experts = {6, 2, 1, 11, math::RouterScore::sigmoid};
    s.experts.router_bias = true;
  });
  const auto best_of_group = changed(llama, [](auto& s) {
    s.experts = {12, 3, 0, 5};
    s.experts.groups = 4;
    s.experts.groups_per_token = 2;
    s.experts.group_score = math::RouterGroupScore::max;
  });
  const auto shared_gate = changed(llama, [](auto& s) {
    s.experts = {6, 2, 1, 11, math::RouterScore::softmax, false};
    s.experts.shared_gate = true;
    s.experts.own_shared_width = 17;
  });
  const auto scaled = changed(shared_gate, [](auto& s) {
    s.residual_scale = 0.4;
    s.query_key_norm = model::QueryKeyNorm::whole;
  });
  const auto grok = changed(router_bias, [](auto& s) {
    s.norm_placement = model::NormPlacement::both;
    s.residual_scale = 0.6;
    s.blocks_per_unit = 2;
  });
  const auto flex_olmo = changed(some_layers, [](auto& s) {
    s.norm_placement = model::NormPlacement::after;
    s.query_key_norm = model::QueryKeyNorm::whole;
  });
  return {
      {"llama, experts and a gated one, scaled", scaled, {2, 9}},
      {"grok, experts between norms, 2 blocks a unit", grok, {2, 9}},
      {"experts before norms in some layers, pieces as leaves", flex_olmo, {1, 16, 1, 4, false}},
      {"llama, experts in some layers", some_layers, {1, 8}},
      {"llama, experts in some layers, 2 blocks a unit, pieces as leaves",
       stacked,
       {1, 16, 1, 4, false}},
      {"llama, experts, bias of the router", router_bias, {2, 9}},
      {"llama, experts, bias of the router, sequences as leaves", router_bias, {3, 6, 1, 1, true}},
      {"llama, groups of experts by their best one", best_of_group, {2, 9}},
      {"llama, experts and a gated one", shared_gate, {2, 9}},
      {"llama, experts and a gated one, pieces as leaves", shared_gate, {1, 16, 1, 4, false}}};
}

/// Modules of multi-token prediction.
inline std::vector<ModelCase> module_cases(const model::DecoderSettings& llama,
                                           const model::DecoderSettings& deepseek) {
  const auto with_module = [](const model::DecoderSettings& of) {
    return changed(of, [](auto& s) {
      s.tie_embeddings = false;
      s.multi_token_depth = 1;
      s.multi_token_factor = 0.7;
    });
  };
  const auto scaled = changed(with_module(llama), [](auto& s) {
    s.embedding_scale = 1.5;
    s.head_bias = true;
    s.logit_soft_cap = 2.0;
  });
  const auto learned = changed(with_module(llama), [](auto& s) {
    s.norm = math::NormKind::layernorm;
    s.positions = model::Positions::learned;
    s.bias = s.embedding_norm = true;
  });
  return {{"llama, a module", with_module(llama), {2, 9}},
          {"llama, a module, capped logits, sequences as leaves", scaled, {3, 6, 1, 1, true}},
          {"llama, a module, learned positions", learned, {2, 5}},
          {"deepseek, a module", with_module(deepseek), {2, 7}},
          {"deepseek, a module, sequences as leaves", with_module(deepseek), {3, 6, 1, 1, true}}};
}

/// Both families, what is between them and mixtures of experts, at odd sizes, with one block a unit
/// and with several.
inline std::vector<ModelCase> model_cases() {
  using math::NormKind;
  using model::Positions;
  model::DecoderSettings gpt2;
  gpt2.norm = NormKind::layernorm;
  gpt2.positions = Positions::learned;
  gpt2.activation = model::Activation::gelu;
  gpt2.bias = true;
  gpt2.layers = 2;
  gpt2.width = 24;
  gpt2.heads = gpt2.kv_heads = 3;
  gpt2.ffn_width = 37;
  gpt2.vocabulary = 29;
  gpt2.initializer_deviation = 0.3;
  model::DecoderSettings llama = gpt2;
  llama.norm = NormKind::rmsnorm;
  llama.positions = Positions::rotary;
  llama.activation = model::Activation::swiglu;
  llama.bias = llama.tie_embeddings = false;
  llama.heads = 6;
  llama.kv_heads = 2;
  llama.ffn_width = 19;
  llama.vocabulary = 31;
  llama.rotary.base = 500.0;

  const auto one_head = changed(gpt2, [](auto& s) {
    s.width = 7;
    s.heads = s.kv_heads = 1;
    s.ffn_width = 5;
    s.layers = 3;
  });
  const auto llama_one_head = changed(llama, [](auto& s) {
    s.width = 6;
    s.heads = s.kv_heads = 1;
  });
  const auto rms_learned = changed(gpt2, [](auto& s) {
    s.norm = NormKind::rmsnorm;
    s.activation = model::Activation::swiglu;
    s.kv_heads = 1;
  });
  const auto layer_rotary = changed(gpt2, [](auto& s) {
    s.positions = Positions::rotary;
    s.bias = s.tie_embeddings = false;
  });
  const auto gpt2_stacked = changed(gpt2, [](auto& s) {
    s.layers = 3;
    s.blocks_per_unit = 2;
  });
  const auto llama_stacked = changed(llama, [](auto& s) { s.layers = s.blocks_per_unit = 3; });
  const auto mixtral = changed(llama, [](auto& s) { s.experts = {6, 2, 0, 11}; });
  const auto deepseek = changed(llama, [](auto& s) {
    s.experts = {12, 3, 2, 5, math::RouterScore::sigmoid, true, 2.5};
    s.experts.groups = 4;
    s.experts.groups_per_token = 2;
  });
  const auto gpt2_experts = changed(gpt2_stacked, [](auto& s) {
    s.experts = {4, 1, 1, 9, math::RouterScore::softmax, false, 1.0};
  });
  const auto qwen3 = changed(llama, [](auto& s) {
    s.query_key_norm = model::QueryKeyNorm::head;
    s.head_dim = 6;
  });
  const auto qwen3_experts = changed(qwen3, [](auto& s) { s.experts = {6, 2, 0, 11}; });
  const auto narrow_heads = changed(qwen3, [](auto& s) {
    s.layers = s.blocks_per_unit = s.heads = 3;
    s.kv_heads = 1;
  });
  const auto gpt2_head_norms = changed(gpt2, [](auto& s) {
    s.query_key_norm = model::QueryKeyNorm::head;
    s.head_dim = 11;
  });
  const auto attention_bias = changed(llama, [](auto& s) {
    s.bias = true;
    s.own_mlp_bias = false;
  });
  const auto mlp_bias = changed(llama_stacked, [](auto& s) { s.own_mlp_bias = true; });
  const auto latent = changed(llama, [](auto& s) {
    s.kv_heads = s.heads = 3;
    s.head_dim = 8;
    s.latent = {0, 10, 4, 0};
  });
  const auto deepseek_v2 = changed(latent, [](auto& s) {
    s.layers = 3;
    s.latent = {0, 10, 2, 5};
    s.experts = {6, 2, 1, 11, math::RouterScore::softmax, false, 1.5};
    s.expert_layers = *model::LayerPattern::parse("all but first 1");
  });
  const auto deepseek_v3 = changed(latent, [](auto& s) {
    s.latent = {13, 9, 6, 11};
    s.experts = {12, 3, 2, 5, math::RouterScore::sigmoid, true, 2.5};
    s.experts.groups = 4;
    s.experts.groups_per_token = 2;
    s.expert_layers = *model::LayerPattern::parse("all but first 1");
  });
  const auto latent_stacked = changed(latent, [](auto& s) {
    s.layers = s.blocks_per_unit = 3;
    s.latent = {7, 5, 2, 4};
  });
  const auto latent_window = changed(deepseek_v2, [](auto& s) {
    s.latent = {7, 10, 4, 3};
    s.attention_window = 3;
    s.window_layers = *model::LayerPattern::parse("all but every 2nd");
    s.rotary_layers = *model::LayerPattern::parse("all but first 1");
    s.attention_sinks = true;
    s.attention_soft_cap = 1.5;
  });
  const auto latent_clip = changed(latent, [](auto& s) { s.clip_qkv = 0.7; });
  const auto long_table = changed(gpt2, [](auto& s) { s.max_positions = 23; });

  const auto gemma2 = changed(llama, [](auto& s) {
    s.attention_window = 3;
    s.window_layers = *model::LayerPattern::parse("all but every 2nd");
    s.attention_soft_cap = 1.5;
    s.attention_scale = 0.4;
  });
  const auto gpt_oss = changed(llama_stacked, [](auto& s) {
    s.attention_sinks = s.bias = true;
    s.attention_window = 4;
    s.window_layers = *model::LayerPattern::parse("all but every 2nd");
  });
  const auto mpt = changed(gpt2, [](auto& s) {
    s.positions = Positions::alibi;
    s.clip_qkv = 0.8;
  });
  const auto olmo = changed(llama, [](auto& s) { s.clip_qkv = 0.6; });
  const auto gated = changed(llama, [](auto& s) {
    s.attention_gate = true;
    s.query_key_norm = model::QueryKeyNorm::head;
  });
  const auto gated_stacked = changed(gpt_oss, [](auto& s) {
    s.attention_gate = true;
    s.clip_qkv = 0.9;
  });
  // What a delta net reads of a young state is small, and its norm would enlarge errors.
  const auto delta_net = changed(llama, [](auto& s) {
    s.norm_epsilon = 0.1;
    s.delta_net = {2, 4, 5, 3};
    s.delta_layers = *model::LayerPattern::parse("first 1");
  });
  const auto delta_nets = changed(qwen3, [](auto& s) {
    s.layers = 4;
    s.blocks_per_unit = 2;
    s.attention_gate = true;
    s.norm_weight = math::NormWeight::one_plus;
    s.norm_epsilon = 0.1;
    s.delta_net = {3, 3, 4, 6, 2};
    s.delta_layers = *model::LayerPattern::parse("all but every 4th");
  });
  const auto no_positions = changed(llama, [](auto& s) { s.positions = Positions::none; });
  const auto all_scores = changed(gpt_oss, [](auto& s) {
    s.positions = Positions::alibi;
    s.attention_soft_cap = 2.0;
    s.attention_window = 5;
    s.clip_qkv = 0.9;
    s.query_key_norm = model::QueryKeyNorm::head;
  });

  // Frequencies of pairs, and what is rotated of heads.
  using math::NormWeight;
  using math::RotaryScaling;
  using model::QueryKeyNorm;
  const auto llama3 = changed(llama, [](auto& s) {
    s.head_dim = 13;
    s.rotary = {500.0, 0.5, RotaryScaling::llama3, 8.0, 64};
  });
  const auto yarn = changed(llama, [](auto& s) {
    s.head_dim = 16;
    s.rotary = {500.0, 1.0, RotaryScaling::yarn, 4.0, 32};
  });
  const auto yarn_not_truncated = changed(yarn, [](auto& s) {
    s.rotary.truncate = false;
    s.rotary.beta_fast = 3.0;
    s.rotary.attention_factor = 1.25;
    s.query_key_norm = QueryKeyNorm::rotated;
  });
  const auto longrope = changed(llama_stacked, [](auto& s) {
    s.head_dim = 8;
    s.rotary = {500.0, 0.75, RotaryScaling::longrope, 2.0, 10};
    s.rotary.short_factors = {1.0, 1.125, 1.5};
    s.rotary.long_factors = {2.0, 3.0, 5.0};
  });
  const auto linear = changed(llama_stacked, [](auto& s) {
    s.rotary.scaling = RotaryScaling::linear;
    s.rotary.factor = 4.0;
    s.rotary_layers = *model::LayerPattern::parse("every 2nd");
    s.blocks_per_unit = 2;
  });

  // Norms.
  const auto gemma = changed(qwen3, [](auto& s) {
    s.norm_weight = NormWeight::one_plus;
    s.norm_placement = model::NormPlacement::both;
    s.residual_scale = 0.5;
    s.embedding_scale = 3.0;
    s.tie_embeddings = true;
  });
  const auto nemotron = changed(layer_rotary, [](auto& s) {
    s.norm_weight = NormWeight::one_plus;
    s.bias = true;
    s.own_mlp_bias = false;
    s.rotary.share = 0.5;
  });
  const auto no_weights = changed(gpt2, [](auto& s) {
    s.norm_weight = NormWeight::none;
    s.positions = Positions::rotary;
    s.query_key_norm = QueryKeyNorm::rotated;
    s.embedding_norm = true;
  });
  const auto olmo2 = changed(llama, [](auto& s) {
    s.query_key_norm = QueryKeyNorm::whole;
    s.norm_placement = model::NormPlacement::after;
    s.residual_scale = 0.5;
  });
  const auto olmo2_one_plus = changed(olmo2, [](auto& s) {
    s.clip_qkv = 1.3;
    s.norm_weight = NormWeight::one_plus;
    s.residual_scale = 1.0;
  });
  const auto stablelm2 = changed(llama, [](auto& s) {
    s.query_key_norm = QueryKeyNorm::each_head;
    s.query_key_norm_kind = NormKind::layernorm;
    s.rotary.share = 0.5;
    s.head_dim = 8;
  });
  const auto each_head = changed(llama_stacked, [](auto& s) {
    s.query_key_norm = QueryKeyNorm::each_head;
    s.norm_weight = NormWeight::one_plus;
    s.clip_qkv = 0.7;
  });
  const auto layer_norm_of_heads =
      changed(qwen3, [](auto& s) { s.query_key_norm_kind = NormKind::layernorm; });
  const auto bloom = changed(gpt2, [](auto& s) { s.embedding_norm = true; });

  // Blocks.
  const auto parallel = changed(layer_rotary, [](auto& s) {
    s.block = model::BlockForm::parallel;
    s.own_qkv_bias = true;
    s.own_norm_bias = true;
  });
  const auto parallel_two_norms = changed(llama_stacked, [](auto& s) {
    s.block = model::BlockForm::parallel_two_norms;
    s.own_out_bias = true;
  });

  std::vector<ModelCase> cases = {
      {"gpt2", gpt2, {3, 7}},
      {"llama", llama, {2, 9}},
      {"gpt2, one head, batch 1", one_head, {1, 5}},
      {"llama, one head, batch 1", llama_one_head, {1, 11}},
      {"gpt2, one token", gpt2, {3, 1}},
      {"llama, one token, batch 1", llama, {1, 1}},
      {"rmsnorm, learned, swiglu, bias, tied", rms_learned, {2, 5}},
      {"layernorm, rotary, gelu, no bias, untied", layer_rotary, {1, 6}},
      {"gpt2, 2 blocks a unit", gpt2_stacked, {2, 5}},
      {"llama, 3 blocks a unit", llama_stacked, {1, 9}},
      {"gpt2, sequences as leaves", gpt2, {3, 7, 1, 1, true}},
      {"llama, pieces as leaves", llama, {1, 16, 1, 4, false}},
      {"gpt2, pieces of sequences as leaves", gpt2_stacked, {3, 12, 1, 2, true}},
      {"llama, experts", mixtral, {2, 9}},
      {"llama, experts, one token", mixtral, {1, 1}},
      {"llama, experts and shared ones, sequences as leaves", deepseek, {3, 6, 1, 1, true}},
      {"gpt2, experts and a shared one, 2 blocks a unit", gpt2_experts, {1, 12}},
      {"qwen3", qwen3, {2, 9}},
      {"qwen3, experts, pieces as leaves", qwen3_experts, {1, 16, 1, 4, false}},
      {"qwen3, narrow heads, sequences as leaves, 3 blocks a unit",
       narrow_heads,
       {3, 6, 1, 1, true}},
      {"gpt2, norms of wide heads", gpt2_head_norms, {2, 5}},
      {"llama, biases of attention alone", attention_bias, {2, 9}},
      {"llama, biases of MLPs alone, 3 blocks a unit", mlp_bias, {1, 9}},
      {"gpt2, more positions than tokens", long_table, {3, 7}},
      {"gpt2, more positions than tokens, pieces of sequences as leaves",
       long_table,
       {3, 8, 1, 2, true}},
      {"llama, some elements rotated as Llama 3.1 does", llama3, {2, 9}},
      {"llama, yarn", yarn, {1, 11}},
      {"llama, yarn not truncated, then norms of heads, pieces as leaves",
       yarn_not_truncated,
       {1, 16, 1, 4, false}},
      {"llama, longrope, 3 blocks a unit", longrope, {2, 9}},
      {"llama, longrope for long sequences, sequences as leaves", longrope, {2, 12, 1, 1, true}},
      {"llama, linear in some layers, 2 blocks a unit", linear, {2, 9}},
      {"gemma", gemma, {2, 9}},
      {"gemma, pieces of sequences as leaves", gemma, {3, 8, 1, 2, true}},
      {"nemotron, biases of attention alone", nemotron, {2, 7}},
      {"no weights of norms", no_weights, {2, 7}},
      {"olmo 2", olmo2, {2, 9}},
      {"olmo 2, 1 + weight, pieces as leaves", olmo2_one_plus, {1, 16, 1, 4, false}},
      {"stablelm 2, layer norms of each head's own", stablelm2, {2, 9}},
      {"norms of each head's own, 1 + weight, clip, pieces of sequences as leaves",
       each_head,
       {3, 8, 1, 2, true}},
      {"layer norm of heads, pieces as leaves", layer_norm_of_heads, {1, 16, 1, 4, false}},
      {"gpt2, norm of the embedding, sequences as leaves", bloom, {3, 7, 1, 1, true}},
      {"parallel blocks, biases of queries, keys and values alone", parallel, {2, 7}},
      {"parallel blocks with two norms", parallel_two_norms, {2, 9}},
      {"latent attention", latent, {2, 9}},
      {"latent attention, narrow values, experts behind a dense layer", deepseek_v2, {2, 9}},
      {"latents of queries, too, wide values, sigmoid, groups, sequences as leaves",
       deepseek_v3,
       {3, 6, 1, 1, true}},
      {"latents of queries, too, pieces as leaves, 3 blocks a unit",
       latent_stacked,
       {1, 16, 1, 4, false}},
      {"latent attention, window, sinks, cap, not all layers rotary", latent_window, {2, 9}},
      {"latent attention, clip", latent_clip, {2, 9}},
      {"gemma2, window, cap and scale", gemma2, {2, 9}},
      {"gemma2, pieces of sequences as leaves", gemma2, {3, 12, 1, 2, true}},
      {"gpt-oss, window and sinks, 3 blocks a unit", gpt_oss, {2, 9}},
      {"gpt-oss, sequences as leaves", gpt_oss, {3, 7, 1, 1, true}},
      {"mpt, slopes and clip", mpt, {2, 9}},
      {"olmo, clip, pieces as leaves", olmo, {1, 16, 1, 4, false}},
      {"llama, gated attention, norms of heads", gated, {2, 9}},
      {"gpt-oss, gated attention, clip, 3 blocks a unit, pieces as leaves",
       gated_stacked,
       {1, 16, 1, 4, false}},
      {"llama, a delta net", delta_net, {2, 9}},
      {"llama, a delta net, longer than a chunk", delta_net, {1, 70}},
      {"qwen3, delta nets in most layers, 2 blocks a unit, sequences as leaves",
       delta_nets,
       {3, 7, 1, 1, true}},
      {"llama, no positions", no_positions, {2, 9}},
      {"all of attention's scores, pieces as leaves", all_scores, {1, 16, 1, 4, false}}};
  for (const auto& more : {activation_and_head_cases(gpt2, llama), expert_cases(llama),
                           module_cases(llama, deepseek_v3)})
    cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

/// Both families, and windows of less than a block and of more, with sequences longer than a block
/// of any kernel.
inline std::vector<ModelCase> long_cases() {
  std::vector<ModelCase> cases = model_cases();
  cases.resize(2);
  for (const std::int64_t window : {20, 90}) {
    cases.push_back(cases[1]);
    cases.back().name += ", window";
    cases.back().settings.attention_window = window;
    cases.back().settings.attention_sinks = window > 64;
    cases.back().settings.attention_soft_cap = window > 64 ? 0.0 : 3.0;
  }
  for (ModelCase& which : cases) {
    which.name += ", long";
    which.settings.width = 96;
    which.settings.ffn_width = 131;
    which.settings.vocabulary = 517;
    which.settings.initializer_deviation = 0.1;
    which.leaf = {2, 150};
  }
  return cases;
}

/// Both families, with so many blocks.
inline std::vector<ModelCase> deep_cases(std::int64_t layers) {
  std::vector<ModelCase> cases = model_cases();
  cases.resize(2);
  for (ModelCase& which : cases) {
    which.name += ", deep";
    which.settings.layers = layers;
  }
  return cases;
}

/// All choices of what blocks compute again.
inline std::vector<model::Recompute> recompute_choices() {
  std::vector<model::Recompute> choices;
  for (int i = 0; i < 8; ++i) choices.push_back({(i & 1) != 0, (i & 2) != 0, (i & 4) != 0});
  return choices;
}

/// All choices of what blocks keep that they compute again otherwise.
inline std::vector<model::Recompute> kept_choices() {
  return {{false, false, false, false, true},
          {false, false, false, true, false},
          {false, false, false, false, false}};
}

inline std::string to_string(const model::Recompute& recompute) {
  std::string text = recompute.norm_outputs ? "" : "keep norms, ";
  if (!recompute.activations) text += "keep activations, ";
  text += "recompute:";
  if (!recompute.attention && !recompute.norms && !recompute.mlp) text += " nothing";
  if (recompute.attention) text += " attention";
  if (recompute.norms) text += " norms";
  if (recompute.mlp) text += " mlp";
  return text;
}

/// A case whose only sequence is decoded at once.
inline ModelCase decoded_at_once(ModelCase which) {
  which.leaf = {1, which.leaf.tokens};
  which.leaf.decoded_rows = which.leaf.tokens;
  return which;
}

}  // namespace ostrakon::test
