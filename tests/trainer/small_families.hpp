// SPDX-License-Identifier: Apache-2.0
#pragma once

// Small decoders of families of published models: each has what distinguishes its family, in sizes
// that eight pieces divide.

#include <string>
#include <utility>
#include <vector>

#include "trainer/comparison.hpp"

namespace ostrakon::tests {

struct SmallFamily {
  std::string name;
  model::DecoderSettings model;
  bool fits_context = true;  ///< whether sequences can be cut
};

inline model::LayerPattern layers(const std::string& pattern) {
  return model::LayerPattern::parse(pattern).value();
}

inline std::vector<SmallFamily> small_families() {
  using math::NormKind;
  using math::NormWeight;
  using math::RotaryScaling;
  using model::Activation;
  using model::BlockForm;
  using model::NormPlacement;
  using model::QueryKeyNorm;
  model::DecoderSettings llama = in_pieces(small_llama(8)).model;
  llama.layers = 4;
  llama.head_dim = 8;
  model::DecoderSettings gpt = llama;
  gpt.norm = NormKind::layernorm;
  gpt.activation = Activation::gelu;
  gpt.bias = true;
  std::vector<SmallFamily> all;
  const auto add = [&](const char* name, model::DecoderSettings settings, const auto& change) {
    change(settings);
    all.push_back({name, std::move(settings)});
  };
  add("Qwen2.5", llama, [](auto& s) { s.own_qkv_bias = true; });
  add("Llama 3.1", llama, [](auto& s) {
    s.kv_heads = 8;
    s.rotary.scaling = RotaryScaling::llama3;
    s.rotary.factor = 8.0;
    s.rotary.original_length = 64;
  });
  add("Gemma 2", llama, [](auto& s) {
    s.norm_weight = NormWeight::one_plus;
    s.norm_placement = NormPlacement::both;
    s.activation = Activation::geglu;
    s.attention_scale = 0.4;
    s.attention_soft_cap = 2.0;
    s.attention_window = 24;
    s.window_layers = layers("all but every 2nd");
    s.embedding_scale = 7.0;
    s.logit_soft_cap = 3.0;
    s.tie_embeddings = true;
  });
  add("Gemma 3", llama, [](auto& s) {
    s.norm_weight = NormWeight::one_plus;
    s.norm_placement = NormPlacement::both;
    s.query_key_norm = QueryKeyNorm::head;
    s.activation = Activation::geglu;
    s.attention_window = 16;
    s.window_layers = layers("all but every 3rd");
    s.window_rotary_base = 500.0;
  });
  add("OLMo 2", llama, [](auto& s) {
    s.norm_placement = NormPlacement::after;
    s.query_key_norm = QueryKeyNorm::whole;
  });
  add("Phi", gpt, [](auto& s) {
    s.block = BlockForm::parallel;
    s.rotary.share = 0.5;
    s.head_bias = true;
    s.tie_embeddings = false;
  });
  add("GPT-NeoX", gpt, [](auto& s) {
    s.block = BlockForm::parallel_two_norms;
    s.activation = Activation::gelu_exact;
    s.rotary.share = 0.25;
    s.tie_embeddings = false;
  });
  add("Cohere 2", llama, [](auto& s) {
    s.norm = NormKind::layernorm;
    s.block = BlockForm::parallel;
    s.logit_scale = 0.25;
    s.attention_window = 32;
    s.window_layers = s.rotary_layers = layers("all but every 4th");
    s.tie_embeddings = true;
  });
  add("Granite", llama, [](auto& s) {
    s.embedding_scale = 12.0;
    s.residual_scale = 0.22;
    s.attention_scale = 0.1;
    s.logit_scale = 0.5;
  });
  add("Nemotron", gpt, [](auto& s) {
    s.norm_weight = NormWeight::one_plus;
    s.activation = Activation::relu_squared;
    s.bias = false;
    s.own_norm_bias = true;
    s.rotary.share = 0.5;
  });
  add("nanochat", llama, [](auto& s) {
    s.norm_weight = NormWeight::none;
    s.query_key_norm = QueryKeyNorm::rotated;
    s.embedding_norm = true;
    s.activation = Activation::relu_squared;
    s.logit_soft_cap = 3.0;
  });
  add("GPT-2", gpt, [](auto& s) {
    s.positions = model::Positions::learned;
    s.tie_embeddings = true;
  });
  add("Bloom", gpt, [](auto& s) {
    s.positions = model::Positions::alibi;
    s.embedding_norm = true;
    s.tie_embeddings = true;
  });
  add("StableLM 2", llama, [](auto& s) {
    s.norm = s.query_key_norm_kind = NormKind::layernorm;
    s.block = BlockForm::parallel;
    s.query_key_norm = QueryKeyNorm::each_head;
    s.rotary.share = 0.25;
  });
  add("gpt-oss", llama, [](auto& s) {
    s.bias = true;
    s.activation = Activation::swiglu_clamped;
    s.attention_sinks = true;
    s.attention_window = 16;
    s.window_layers = layers("all but every 2nd");
    s.rotary.scaling = RotaryScaling::yarn;
    s.rotary.factor = 4.0;
    s.rotary.original_length = 32;
    s.rotary.truncate = false;
    s.experts = {8, 2, 0, 16};
  });
  add("GLM-4.5", llama, [](auto& s) {
    s.own_qkv_bias = true;
    s.query_key_norm = QueryKeyNorm::head;
    s.experts = {8,   2, 1, 24, math::RouterScore::sigmoid, true, 1.5, model::RouterBalance::bias,
                 0.02};
    s.expert_layers = layers("all but first 1");
  });
  add("MiMo", llama, [](auto& s) {
    s.own_qkv_bias = true;
    s.multi_token_depth = 1;
    s.multi_token_factor = 0.3;
  });
  all.back().fits_context = false;
  add("DeepSeek-V3", all[all.size() - 2].model, [](auto& s) {
    s.query_key_norm = QueryKeyNorm::none;
    s.own_qkv_bias = false;
    s.kv_heads = s.heads;
    s.head_dim = 12;
    s.latent = {32, 16, 8, 6};
    s.multi_token_depth = 1;
    s.multi_token_factor = 0.1;
  });
  all.back().fits_context = false;
  add("Qwen3.5", llama, [](auto& s) {
    s.norm_weight = NormWeight::one_plus;
    s.query_key_norm = QueryKeyNorm::head;
    s.attention_gate = true;
    s.rotary.share = 0.25;
    s.delta_net = {8, 8, 4, 8};
    s.delta_layers = layers("all but every 2nd");
  });
  all.back().fits_context = false;
  add("Qwen3-Next", llama, [](auto& s) {
    s.norm_weight = NormWeight::one_plus;
    s.attention_gate = true;
    s.delta_net = {8, 16, 4, 8};
    s.delta_layers = layers("all but every 4th");
    s.experts = {8, 2, 1, 24};
  });
  all.back().fits_context = false;
  add("Qwen2-MoE", llama, [](auto& s) {
    s.own_qkv_bias = true;
    s.residual_scale = 0.6;  // of Granite's mixtures
    s.experts = {8, 2, 1, 16, math::RouterScore::softmax, false};
    s.experts.shared_gate = true;
    s.experts.own_shared_width = 24;
  });
  add("FlexOlmo", llama, [](auto& s) {
    s.norm_placement = NormPlacement::after;
    s.query_key_norm = QueryKeyNorm::whole;
    s.experts = {8, 2, 1, 16};
    s.expert_layers = layers("all but first 1");
  });
  return all;
}

}  // namespace ostrakon::tests
