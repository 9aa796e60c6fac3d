// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/families/families.hpp>
#include <ostrakon/checkpoint/families/keys.hpp>

namespace ostrakon::checkpoint::families {
namespace {

/// A tensor of all experts, (experts, in, out), and its bias, (experts, out).
TensorPart of_all_experts(const char* name, RowOrder order) {
  TensorPart part{name, Rows::all, order, "", "_bias"};
  part.is_stacked = part.is_transposed = true;
  return part;
}

Family gpt_oss_itself() {
  Family f = llama_like("gpt_oss", "gpt-oss", "GptOss");
  f.structure.activation = model::Activation::swiglu_clamped;
  f.structure.attention_sinks = true;
  f.structure.own_mlp_bias = true;
  f.structure.experts.router_bias = true;
  f.names.layers["attention.sinks"] = {{"self_attn.sinks"}};
  f.names.layers["mlp.router"] = {{"mlp.router"}};
  f.names.layers["mlp.experts.*.gate_up"] = {
      of_all_experts("mlp.experts.gate_up_proj", RowOrder::interleaved)};
  f.names.layers["mlp.experts.*.down"] = {of_all_experts("mlp.experts.down_proj", RowOrder::same)};
  keys::Window window;
  window.size = 128;
  window.has_types = true;
  window.period = 2;
  keys::Rope rope;
  rope.theta = 150000.0;
  rope.default_scaling =
      R"({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
          "truncate": false, "original_max_position_embeddings": 4096})";
  f.keys = {keys::key("num_hidden_layers", keys::layers, 36),
            keys::key("hidden_size", keys::width, 2880),
            keys::key("num_attention_heads", keys::heads, 64),
            keys::key("num_key_value_heads", keys::kv_heads, {8, keys::as_heads}),
            keys::key("head_dim", keys::head_width, {64, keys::equal_heads}),
            keys::key("intermediate_size", keys::expert_width, 2880),
            keys::key("num_local_experts", keys::experts, 128, {"num_experts"}),
            keys::key("num_experts_per_tok", keys::experts_per_token, 4, {"experts_per_token"}),
            keys::key("vocab_size", keys::vocabulary, 201088),
            keys::key("tie_word_embeddings", keys::tied, false),
            keys::key("rms_norm_eps", keys::epsilon, 1e-5),
            keys::key("attention_bias", keys::attention_bias, true),
            keys::window(window),
            keys::rope(rope)};
  const char* const why = "gpt-oss has this activation alone";
  add(f.keys, {keys::required("hidden_act", {"\"silu\""}, why, true),
               keys::required("swiglu_limit", {"7.0"}, why, true),
               keys::required("swiglu_alpha", {"1.702"}, why)});
  ignore_router_loss(f);
  f.no_effect.insert("initial_context_length");  // rope_scaling says it, too
  f.missing_positions = 131072;
  add_rotary_family(f);
  return f;
}

}  // namespace

std::vector<Family> gpt_oss() { return {gpt_oss_itself()}; }

}  // namespace ostrakon::checkpoint::families
