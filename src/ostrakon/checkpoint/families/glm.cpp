// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/families/families.hpp>
#include <ostrakon/checkpoint/families/keys.hpp>

namespace ostrakon::checkpoint::families {
namespace {

keys::Rope half_of_heads() {
  keys::Rope rope;
  rope.share_name = "partial_rotary_factor";
  rope.share = 0.5;
  return rope;
}

Family glm_like(const char* type, const char* title, const char* prefix) {
  Family f = llama_like(type, title, prefix);
  f.names.layers["mlp.gate_up"] = {{"mlp.gate_up_proj"}};
  f.names.pairs = RotaryPairs::neighbours;
  f.keys = llama_sizes({40, 4096, 32, 13696, 151552});
  add(f.keys, {keys::key("num_key_value_heads", keys::kv_heads, {2, keys::as_heads}),
               keys::key("head_dim", keys::head_width, {128, keys::equal_heads}),
               keys::key("tie_word_embeddings", keys::tied, false),
               keys::key("rms_norm_eps", keys::epsilon, 1.5625e-7),
               keys::key("attention_bias", keys::qkv_bias, true), keys::rope(half_of_heads()),
               keys::activation("hidden_act", true, "silu"), keys::no_window()});
  f.missing_positions = 131072;
  add_rotary_family(f);
  return f;
}

Family glm4_first() { return glm_like("glm", "GLM-4", "Glm"); }

Family glm4() {
  Family f = glm_like("glm4", "GLM-4-0414", "Glm4");
  f.structure.norm_placement = model::NormPlacement::both;
  f.names.layers["attention.out_norm"] = {{"post_self_attn_layernorm"}};
  f.names.layers["mlp.norm"] = {{"post_attention_layernorm"}};
  f.names.layers["mlp.out_norm"] = {{"post_mlp_layernorm"}};
  return f;
}

/// GLM-4.5.
Family glm4_moe() {
  Family f = llama_like("glm4_moe", "GLM-4.5", "Glm4Moe");
  f.structure.experts.score = math::RouterScore::sigmoid;
  f.structure.experts.balance = model::RouterBalance::bias;
  f.names.layers =
      with_shared_expert(with_experts(with_head_norms(f.names.layers)), "mlp.shared_experts");
  f.names.layers["mlp.router.balance"] = {{"mlp.gate.e_score_correction_bias"}};
  f.keys = llama_sizes({46, 4096, 96, 10944, 151552});
  add(f.keys, {keys::key("num_key_value_heads", keys::kv_heads, {8, keys::as_heads}),
               keys::key("head_dim", keys::head_width, keys::equal_heads),
               keys::key("tie_word_embeddings", keys::tied, false),
               keys::key("rms_norm_eps", keys::epsilon, 1e-5),
               keys::key("attention_bias", keys::qkv_bias, false),
               keys::key("use_qk_norm", keys::head_norms, false),
               keys::key("n_routed_experts", keys::experts, 128, {"num_local_experts"}),
               keys::key("n_shared_experts", keys::shared_experts, 1),
               keys::key("num_experts_per_tok", keys::experts_per_token, 8),
               keys::key("moe_intermediate_size", keys::expert_width, 1408),
               keys::key("norm_topk_prob", keys::router_normalize, true),
               keys::key("routed_scaling_factor", keys::router_scale, 1.0),
               keys::key("n_group", keys::router_groups, 1),
               keys::key("topk_group", keys::router_groups_per_token, 1), keys::first_dense(1),
               keys::rope(half_of_heads()), keys::activation("hidden_act", true, "silu"),
               keys::no_window()});
  ignore_router_loss(f);
  f.no_effect.insert("num_mtp_layers");  // further tokens
  add_module(f);
  f.missing_positions = 131072;
  add_rotary_family(f);
  return f;
}

}  // namespace

std::vector<Family> glm() { return {glm4_first(), glm4(), glm4_moe()}; }

}  // namespace ostrakon::checkpoint::families
