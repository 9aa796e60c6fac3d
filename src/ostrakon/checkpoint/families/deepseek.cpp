// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/families/families.hpp>
#include <ostrakon/checkpoint/families/keys.hpp>

namespace ostrakon::checkpoint::families {
namespace {

using model::DecoderSettings;

/// Queries are made directly, or of a latent.
void name_queries(const DecoderSettings& settings, TensorNames& names) {
  const bool has_latent = settings.latent.q_rank > 0;
  names.layers["attention.q"] = {
      {has_latent ? "self_attn.q_b_proj" : "self_attn.q_proj", Rows::all, RowOrder::rotated_last}};
}

/// Latent attention, and experts behind some dense layers.
Family deepseek_like(const char* type, const char* title, const char* prefix) {
  Family f = llama_like(type, title, prefix);
  f.names.layers = with_shared_expert(with_experts(f.names.layers), "mlp.shared_experts");
  f.names.layers.erase("attention.qkv");
  f.names.layers["attention.q_down"] = {{"self_attn.q_a_proj"}};
  f.names.layers["attention.q_down_norm"] = {{"self_attn.q_a_layernorm"}};
  f.names.layers["attention.kv_down"] = {
      {"self_attn.kv_a_proj_with_mqa", Rows::all, RowOrder::latent_first}};
  f.names.layers["attention.kv_norm"] = {{"self_attn.kv_a_layernorm"}};
  f.names.layers["attention.kv_up"] = {{"self_attn.kv_b_proj", Rows::all, RowOrder::of_heads}};
  f.names.pairs = RotaryPairs::neighbours;
  f.adapt = name_queries;
  return f;
}

struct DeepSeekSizes {
  double shared, experts, expert_width, groups, groups_per_token, router_scale;
  int first_dense;
};

/// The number of experts per token of DeepSeek-V2 has no default.
Key needed_per_token() {
  constexpr const char* name = "num_experts_per_tok";
  Key key = keys::key(name, keys::experts_per_token, 1);
  const auto read = key.read;
  key.read = [=](ConfigReading& reading) {
    if (!reading.has(name)) reading.refuse(name, "expected a whole number");
    read(reading);
  };
  return key;
}

double no_latent(const DecoderSettings&) { return 0.0; }
double one_group(const DecoderSettings&) { return 1.0; }

void add_deepseek_keys(Family& f, const DeepSeekSizes& missing) {
  keys::Rope rope;
  rope.scales_scores = true;
  add(f.keys,
      {keys::key("num_key_value_heads", keys::kv_heads, keys::as_heads),
       keys::alias("num_key_value_heads", keys::heads),
       keys::key("kv_lora_rank", keys::kv_rank, 512),
       keys::key("q_lora_rank", keys::query_rank, {1536, no_latent}),
       keys::key("qk_rope_head_dim", keys::rotary_width, 64),
       keys::key("qk_nope_head_dim", keys::unrotated_width, 128),
       keys::key("v_head_dim", keys::value_width, 128),
       keys::alias("qk_head_dim", keys::head_width),
       keys::alias("head_dim", keys::rotary_width),
       keys::key("moe_intermediate_size", keys::expert_width, missing.expert_width),
       keys::key("n_routed_experts", keys::experts, missing.experts,
                 {"num_local_experts", "num_experts"}),
       keys::key("n_shared_experts", keys::shared_experts, missing.shared),
       keys::key("routed_scaling_factor", keys::router_scale, missing.router_scale),
       keys::key("n_group", keys::router_groups, {missing.groups, one_group}),
       keys::key("topk_group", keys::router_groups_per_token,
                 {missing.groups_per_token, one_group}),
       keys::first_dense(missing.first_dense),
       keys::key("tie_word_embeddings", keys::tied, false),
       keys::key("rms_norm_eps", keys::epsilon, 1e-6),
       keys::rope(rope),
       keys::activation("hidden_act", true, "silu"),
       keys::no_window(),
       keys::required("attention_bias", {"false"}, "this program has no biases of latents"),
       keys::required("moe_layer_freq", {"1"}, "all layers behind the dense ones have experts")});
  // These keys are for training, further tokens, parallel programs and outputs other than logits.
  f.no_effect.insert({"aux_loss_alpha", "seq_aux", "ep_size", "num_mtp_layers",
                      "num_nextn_predict_layers", "output_router_logits"});
  add_rotary_family(f);
}

/// DeepSeek-V2, V2-Lite and V2.5. Its class reads no norm_topk_prob, and DeepSeek's own code does.
Family deepseek_v2() {
  Family f = deepseek_like("deepseek_v2", "DeepSeek-V2", "DeepseekV2");
  f.structure.experts.normalize = false;
  f.structure.experts.group_score = math::RouterGroupScore::max;
  f.keys = llama_sizes({32, 4096, 32, 11008, 102400});
  add_deepseek_keys(f, {2, 64, 1407, 1, 1, 1.0, 0});
  add(f.keys, {needed_per_token(), keys::group_method(),
               keys::required("norm_topk_prob", {"false"},
                              "programs differ in what DeepSeek-V2 does with it"),
               keys::required("scoring_func", {"\"softmax\""}, "DeepSeek-V2 has this one"),
               keys::required("mlp_bias", {"false"}, "DeepSeek-V2's MLP has no biases")});
  f.missing_positions = 2048;
  return f;
}

/// DeepSeek-V3, R1, Moonlight.
Family deepseek_v3() {
  Family f = deepseek_like("deepseek_v3", "DeepSeek-V3", "DeepseekV3");
  f.structure.experts.score = math::RouterScore::sigmoid;
  f.structure.experts.balance = model::RouterBalance::bias;
  f.names.layers["mlp.router.balance"] = {{"mlp.gate.e_score_correction_bias"}};
  f.keys = llama_sizes({61, 7168, 128, 18432, 129280});
  add_deepseek_keys(f, {1, 256, 2048, 8, 4, 2.5, 3});
  add(f.keys, {keys::key("num_experts_per_tok", keys::experts_per_token, 8),
               keys::key("norm_topk_prob", keys::router_normalize, true),
               keys::required("rope_interleave", {"true"},
                              "this program reads DeepSeek-V3 whose rotated pairs are neighbours"),
               keys::required("scoring_func", {"\"sigmoid\""}, "DeepSeek-V3 has this one"),
               keys::required("topk_method", {"\"noaux_tc\""}, "DeepSeek-V3 has this one", true)});
  add_module(f);
  f.missing_positions = 4096;
  return f;
}

/// Kimi K2: DeepSeek-V3 under another name, which tells other programs how it calls tools.
Family kimi_k2() {
  Family f = deepseek_v3();
  f.model_type = "kimi_k2";
  f.title = "Kimi K2";
  return f;
}

}  // namespace

std::vector<Family> deepseek() { return {deepseek_v2(), deepseek_v3(), kimi_k2()}; }

}  // namespace ostrakon::checkpoint::families
