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
  const auto long_table = changed(gpt2, [](auto& s) { s.max_positions = 23; });

  return {{"gpt2", gpt2, {3, 7}},
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
           {3, 8, 1, 2, true}}};
}

/// Both families with sequences longer than a block of any kernel.
inline std::vector<ModelCase> long_cases() {
  std::vector<ModelCase> cases = model_cases();
  cases.resize(2);
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

inline std::string to_string(const model::Recompute& recompute) {
  std::string text = "recompute:";
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
