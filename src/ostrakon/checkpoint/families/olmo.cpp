// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/families/families.hpp>
#include <ostrakon/checkpoint/families/keys.hpp>

namespace ostrakon::checkpoint::families {
namespace {

void add_olmo_keys(Family& f, const keys::Rope& rope) {
  add(f.keys, {keys::key("num_key_value_heads", keys::kv_heads, keys::as_heads),
               keys::key("tie_word_embeddings", keys::tied, false),
               keys::key("attention_bias", keys::attention_bias, false), keys::rope(rope),
               keys::activation("hidden_act", true, "silu")});
  add_rotary_family(f);
}

/// OLMo 1 has layer norm without weights.
Family olmo1() {
  Family f = llama_like("olmo", "OLMo", "Olmo");
  f.structure.norm = math::NormKind::layernorm;
  f.structure.norm_weight = math::NormWeight::none;
  f.structure.norm_epsilon = 1e-5;
  f.keys = llama_sizes({32, 4096, 32, 11008, 50304});
  add(f.keys, {keys::key("clip_qkv", keys::clip_qkv, 0.0), keys::no_window()});
  add_olmo_keys(f, {});
  return f;
}

/// Norms of what attention and MLP add, instead of what they take.
void place_norms_after(Family& f) {
  f.structure.norm_placement = model::NormPlacement::after;
  f.names.layers.erase("attention.norm");
  f.names.layers.erase("mlp.norm");
  f.names.layers["attention.out_norm"] = {{"post_attention_layernorm"}};
  f.names.layers["mlp.out_norm"] = {{"post_feedforward_layernorm"}};
  f.names.layers = with_head_norms(f.names.layers);
}

Family olmo2() {
  Family f = llama_like("olmo2", "OLMo 2", "Olmo2");
  f.structure.query_key_norm = model::QueryKeyNorm::whole;
  place_norms_after(f);
  f.keys = llama_sizes({32, 4096, 32, 11008, 50304});
  add(f.keys, {keys::key("rms_norm_eps", keys::epsilon, 1e-5), keys::no_window()});
  add_olmo_keys(f, {});
  return f;
}

Family olmo3() {
  Family f = llama_like("olmo3", "OLMo 3", "Olmo3");
  f.structure.query_key_norm = model::QueryKeyNorm::whole;
  place_norms_after(f);
  f.keys = llama_sizes({32, 4096, 32, 11008, 50304});
  keys::Window window;
  window.size = 4096;
  window.has_types = true;
  window.period = 4;
  add(f.keys, {keys::key("rms_norm_eps", keys::epsilon, 1e-5), keys::window(window)});
  keys::Rope rope;
  rope.theta = 5e5;
  rope.scales_full_layers_only = true;
  add_olmo_keys(f, rope);
  return f;
}

Family olmoe() {
  Family f = llama_like("olmoe", "OLMoE", "Olmoe");
  f.structure.query_key_norm = model::QueryKeyNorm::whole;
  f.names.layers = with_experts(with_head_norms(f.names.layers));
  f.keys = {keys::key("num_hidden_layers", keys::layers, 16),
            keys::key("hidden_size", keys::width, 2048),
            keys::key("num_attention_heads", keys::heads, 16),
            keys::key("intermediate_size", keys::expert_width, 2048),
            keys::key("vocab_size", keys::vocabulary, 50304),
            keys::key("num_experts", keys::experts, 64, {"num_local_experts"}),
            keys::key("num_experts_per_tok", keys::experts_per_token, 8),
            keys::key("norm_topk_prob", keys::router_normalize, false),
            keys::key("clip_qkv", keys::clip_qkv, 0.0),
            keys::key("rms_norm_eps", keys::epsilon, 1e-5),
            keys::no_window()};
  add_olmo_keys(f, {});
  ignore_router_loss(f);
  f.missing_positions = 4096;
  return f;
}

/// EXAONE 4 has rotary positions in layers with a window alone, if there are any.
Family exaone4() {
  Family f = llama_like("exaone4", "EXAONE 4", "Exaone4");
  f.structure.query_key_norm = model::QueryKeyNorm::head;
  place_norms_after(f);
  f.keys = llama_sizes({32, 4096, 32, 16384, 102400});
  keys::Window window;
  window.size = 4096;
  window.has_types = window.has_pattern = true;
  window.period = 4;
  window.rotates_all_without = true;
  add(f.keys, {keys::key("num_key_value_heads", keys::kv_heads, {32, keys::as_heads}),
               keys::key("head_dim", keys::head_width, keys::equal_heads),
               keys::key("tie_word_embeddings", keys::tied, false),
               keys::key("rms_norm_eps", keys::epsilon, 1e-5), keys::window(window), keys::rope({}),
               keys::activation("hidden_act", true, "silu")});
  add_rotary_family(f);
  return f;
}

}  // namespace

std::vector<Family> olmo() { return {olmo1(), olmo2(), olmo3(), olmoe(), exaone4()}; }

}  // namespace ostrakon::checkpoint::families
