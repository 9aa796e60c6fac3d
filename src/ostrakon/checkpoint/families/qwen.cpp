// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/families/families.hpp>
#include <ostrakon/checkpoint/families/keys.hpp>

namespace ostrakon::checkpoint::families {
namespace {

/// Layers from max_window_layers on have a window, if use_sliding_window says so.
keys::Window qwen_window() {
  keys::Window window;
  window.size = 4096;
  window.has_switch = window.has_types = true;
  window.layers = keys::Window::Layers::from_max_window_layers;
  return window;
}

/// Adds the keys of all Qwen that come after sizes.
void add_qwen_keys(Family& f, double kv_heads) {
  add(f.keys, {keys::key("num_key_value_heads", keys::kv_heads, {kv_heads, keys::as_heads}),
               keys::key("tie_word_embeddings", keys::tied, false),
               keys::key("rms_norm_eps", keys::epsilon, 1e-6), keys::rope({}),
               keys::activation("hidden_act", true, "silu")});
  f.missing_positions = 32768;
  add_rotary_family(f);
}

Family qwen2() {
  Family f = llama_like("qwen2", "Qwen2", "Qwen2");
  f.structure.own_qkv_bias = true;
  f.keys = llama_sizes({32, 4096, 32, 22016, 151936});
  f.keys.push_back(keys::window(qwen_window()));
  f.keys.push_back(keys::required("use_mrope", {"false"}, "this program reads text alone"));
  add_qwen_keys(f, 32);
  return f;
}

Family qwen3() {
  Family f = llama_like("qwen3", "Qwen3", "Qwen3");
  f.structure.query_key_norm = model::QueryKeyNorm::head;
  f.names.layers = with_head_norms(f.names.layers);
  f.keys = llama_sizes({32, 4096, 32, 22016, 151936});
  add(f.keys,
      {keys::key("head_dim", keys::head_width, {128, keys::equal_heads}),
       keys::key("attention_bias", keys::attention_bias, false), keys::window(qwen_window())});
  add_qwen_keys(f, 32);
  return f;
}

/// Adds keys of experts in some layers, and what follows from them; in families that may have
/// windows, these are refused.
void add_expert_keys(Family& f, double width, double experts, double per_token,
                     bool normalizes = false) {
  add(f.keys, {keys::key("moe_intermediate_size", keys::expert_width, width),
               keys::key("num_experts", keys::experts, experts, {"num_local_experts"}),
               keys::key("num_experts_per_tok", keys::experts_per_token, per_token),
               keys::key("norm_topk_prob", keys::router_normalize, normalizes), keys::sparse_step(),
               // Versions of transformers differ in which layers have one.
               keys::required("use_sliding_window", {"false"},
                              "this program reads " + f.title + " without windows")});
  f.derive = [](model::DecoderSettings& s) {
    if (!s.has_dense_layers()) s.ffn_width = model::DecoderSettings().ffn_width;
  };
  ignore_router_loss(f);
  f.no_effect.insert({"max_window_layers", "sliding_window"});  // windows are refused
}

/// Qwen1.5-MoE and Qwen2-MoE: a shared expert with a width and a gate of its own.
Family qwen2_moe() {
  Family f = llama_like("qwen2_moe", "Qwen2-MoE", "Qwen2Moe");
  f.structure.experts.shared_gate = true;
  f.names.layers = with_shared_expert(with_experts(f.names.layers), "mlp.shared_expert");
  f.names.layers["mlp.shared_gate"] = {{"mlp.shared_expert_gate"}};
  f.keys = llama_sizes({24, 2048, 16, 5632, 151936});
  f.keys.push_back(keys::key("qkv_bias", keys::qkv_bias, true));
  add_expert_keys(f, 1408, 60, 4);
  f.keys.push_back(keys::no_window());
  f.keys.push_back(keys::key("shared_expert_intermediate_size", keys::shared_width, 5632));
  add_qwen_keys(f, 16);
  return f;
}

Family qwen3_moe() {
  Family f = llama_like("qwen3_moe", "Qwen3-MoE", "Qwen3Moe");
  f.structure.query_key_norm = model::QueryKeyNorm::head;
  f.names.layers = with_experts(with_head_norms(f.names.layers));
  f.keys = llama_sizes({24, 2048, 32, 6144, 151936});
  add(f.keys, {keys::key("head_dim", keys::head_width, keys::equal_heads),
               keys::key("attention_bias", keys::attention_bias, false)});
  add_expert_keys(f, 768, 128, 8);
  f.keys.push_back(keys::no_window());
  add_qwen_keys(f, 4);
  return f;
}

/// Gated attention in some layers, gated delta nets in the others; norms by 1 + weight.
Family with_delta_nets(Family f) {
  f.structure.norm_weight = math::NormWeight::one_plus;
  f.structure.query_key_norm = model::QueryKeyNorm::head;
  f.structure.attention_gate = true;
  Layers& layers = f.names.layers;
  layers = with_head_norms(layers);
  layers["attention.qkv"].front().order = RowOrder::gated;
  TensorPart convolution{"linear_attn.conv1d"};
  convolution.is_convolution = true;
  layers["delta_net.convolution"] = {convolution};
  layers["delta_net.decay"] = {{"linear_attn.A_log"}};
  layers["delta_net.step"] = {{"linear_attn.dt_bias"}};
  layers["delta_net.norm"] = {{"linear_attn.norm"}};
  layers["delta_net.out"] = {{"linear_attn.out_proj"}};
  f.names.further_tokens = "mtp.";
  f.names.text_prefix = "model.language_model.";
  f.names.image_prefix = "model.visual.";
  return f;
}

/// Adds keys of attention and of delta nets.
void add_delta_keys(Family& f, double kv_heads) {
  keys::Rope rope;
  rope.share_name = "partial_rotary_factor";
  rope.share = 0.25;
  rope.has_axes = true;
  add(f.keys, {keys::key("num_key_value_heads", keys::kv_heads, {kv_heads, keys::as_heads}),
               keys::key("head_dim", keys::head_width, {256, keys::equal_heads}),
               keys::key("attention_bias", keys::attention_bias, false),
               keys::key("linear_num_key_heads", keys::delta_key_heads, 16),
               keys::key("linear_num_value_heads", keys::delta_value_heads, 32),
               keys::key("linear_key_head_dim", keys::delta_key_width, 128),
               keys::key("linear_value_head_dim", keys::delta_value_width, 128),
               keys::key("linear_conv_kernel_dim", keys::delta_convolution, 4),
               keys::delta_layers(4), keys::key("tie_word_embeddings", keys::tied, false),
               keys::key("rms_norm_eps", keys::epsilon, 1e-6), keys::rope(rope),
               keys::activation("hidden_act", true, "silu"),
               keys::required("attn_output_gate", {"true"}, "attention of this family has a gate"),
               keys::required("output_gate_type", {"\"swish\"", "\"silu\""},
                              "delta nets of this family have this gate of their output"),
               keys::required("mamba_ssm_dtype", {"\"float32\""},
                              "this program has states of delta nets in float32")});
  // Modules of multi-token prediction are not read.
  f.no_effect.insert({"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"});
  f.missing_positions = 32768;
  add_rotary_family(f);
}

/// Their first layers have rows for each head of keys.
Family qwen3_next() {
  Family f = with_delta_nets(llama_like("qwen3_next", "Qwen3-Next", "Qwen3Next"));
  f.structure.experts.shared_gate = true;
  f.names.layers = with_shared_expert(with_experts(f.names.layers), "mlp.shared_expert");
  f.names.layers["mlp.shared_gate"] = {{"mlp.shared_expert_gate"}};
  f.names.layers["delta_net.in"] = {
      {"linear_attn.in_proj_qkvz", Rows::delta_qkvz, RowOrder::of_key_heads},
      {"linear_attn.in_proj_ba", Rows::delta_both, RowOrder::of_key_heads}};
  f.keys = llama_sizes({48, 2048, 16, 5632, 151936});
  add_expert_keys(f, 512, 512, 10, true);
  f.keys.push_back(keys::key("shared_expert_intermediate_size", keys::shared_width, 512));
  add_delta_keys(f, 2);
  return f;
}

/// The text of Qwen3.5, without experts.
Family qwen3_5() {
  Family f = with_delta_nets(llama_like("qwen3_5_text", "Qwen3.5", "Qwen3_5"));
  f.names.layers["delta_net.in"] = {{"linear_attn.in_proj_qkv", Rows::delta_qkv},
                                    {"linear_attn.in_proj_z", Rows::delta_gate},
                                    {"linear_attn.in_proj_b", Rows::delta_rates},
                                    {"linear_attn.in_proj_a", Rows::delta_rates}};
  f.keys = llama_sizes({32, 4096, 16, 12288, 248320});
  add_delta_keys(f, 4);
  return f;
}

}  // namespace

std::vector<Family> qwen() {
  return {qwen2(), qwen2_moe(), qwen3(), qwen3_moe(), qwen3_next(), qwen3_5()};
}

}  // namespace ostrakon::checkpoint::families
