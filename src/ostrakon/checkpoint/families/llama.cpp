// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <ostrakon/checkpoint/families/families.hpp>
#include <ostrakon/checkpoint/families/keys.hpp>

namespace ostrakon::checkpoint::families {

std::vector<TensorPart> apart_qkv() {
  return {{"self_attn.q_proj", Rows::queries},
          {"self_attn.k_proj", Rows::keys},
          {"self_attn.v_proj", Rows::values}};
}

Layers llama_layers() {
  return {{"attention.norm", {{"input_layernorm"}}},
          {"attention.qkv", apart_qkv()},
          {"attention.out", {{"self_attn.o_proj"}}},
          {"mlp.norm", {{"post_attention_layernorm"}}},
          {"mlp.gate_up", {{"mlp.gate_proj", Rows::half}, {"mlp.up_proj", Rows::half}}},
          {"mlp.down", {{"mlp.down_proj"}}}};
}

Layers without_gate(Layers layers, const char* up, const char* down) {
  layers.erase("mlp.gate_up");
  layers["mlp.up"] = {{up}};
  layers["mlp.down"] = {{down}};
  return layers;
}

Layers with_head_norms(Layers layers) {
  layers["attention.query_norm"] = {{"self_attn.q_norm"}};
  layers["attention.key_norm"] = {{"self_attn.k_norm"}};
  return layers;
}

Layers with_experts(Layers layers) {
  layers["mlp.router"] = {{"mlp.gate"}};
  layers["mlp.experts.*.gate_up"] = {{"mlp.experts.*.gate_proj", Rows::half_of_expert},
                                     {"mlp.experts.*.up_proj", Rows::half_of_expert}};
  layers["mlp.experts.*.down"] = {{"mlp.experts.*.down_proj"}};
  return layers;
}

Layers with_shared_expert(Layers layers, const std::string& name) {
  layers["mlp.shared.gate_up"] = {{name + ".gate_proj", Rows::half_of_shared},
                                  {name + ".up_proj", Rows::half_of_shared}};
  layers["mlp.shared.down"] = {{name + ".down_proj"}};
  return layers;
}

void add_module(Family& f) {
  f.names.layers["embedding_norm"] = {{"enorm"}};
  f.names.layers["hidden_norm"] = {{"hnorm"}};
  f.names.layers["projection"] = {{"eh_proj"}};
  f.names.module_norm = "shared_head.norm";
  f.names.module_embedding = f.names.token;
  f.names.module_head = "shared_head.head";
  constexpr const char* name = "num_nextn_predict_layers";
  Key key = keys::key(name, keys::multi_token_depth, 0);
  key.write = [=](const model::DecoderSettings& settings, nlohmann::ordered_json& to) {
    if (settings.multi_token_depth > 0) to[name] = settings.multi_token_depth;
  };
  f.no_effect.erase(name);
  add(f.keys, {key});
}

Family llama_like(const char* model_type, const char* title, const char* class_prefix) {
  Family f;
  f.model_type = model_type;
  f.title = title;
  f.class_prefix = class_prefix;
  f.names.layers = llama_layers();
  return f;
}

std::vector<Key> llama_sizes(const Sizes& missing) {
  return {keys::key("num_hidden_layers", keys::layers, missing.layers),
          keys::key("hidden_size", keys::width, missing.width),
          keys::key("num_attention_heads", keys::heads, missing.heads),
          keys::key("intermediate_size", keys::ffn_width, missing.ffn_width),
          keys::key("vocab_size", keys::vocabulary, missing.vocabulary)};
}

void add(std::vector<Key>& keys, std::vector<Key> more) {
  keys.insert(keys.end(), more.begin(), more.end());
}

void ignore_router_loss(Family& family) {
  family.no_effect.insert({"output_router_logits", "router_aux_loss_coef"});
}

void add_rotary_family(Family& family) {
  family.keys.push_back(keys::required("rope_interleaved", {"false"},
                                       "this program turns element i with i + head width / 2"));
  family.no_effect.insert({"embd_pdrop", "hidden_dropout", "is_llama_config", "max_sequence_length",
                           "original_max_position_embeddings", "pretraining_tp", "resid_pdrop"});
}

namespace {

/// Adds keys that Llama and models like it have after their sizes.
void add_llama_keys(Family& f, const keys::Missing& kv_heads, bool tied, double epsilon,
                    const keys::Rope& rope, const keys::Missing& head_width = keys::equal_heads) {
  add(f.keys, {keys::key("num_key_value_heads", keys::kv_heads, kv_heads),
               keys::key("head_dim", keys::head_width, head_width),
               keys::key("tie_word_embeddings", keys::tied, tied),
               keys::key("rms_norm_eps", keys::epsilon, epsilon), keys::rope(rope)});
  add_rotary_family(f);
}

void add_biases(Family& f) {
  add(f.keys, {keys::key("attention_bias", keys::attention_bias, false),
               keys::key("mlp_bias", keys::mlp_bias, false)});
}

void refuse_biases(Family& f, const std::vector<const char*>& names) {
  for (const char* name : names)
    f.keys.push_back(keys::required(name, {"false"}, f.title + " has no biases"));
}

void refuse_windows(Family& f) {
  const std::string why = f.title + " attends to all tokens before";
  add(f.keys, {keys::required("sliding_window", {"null"}, why),
               keys::required("use_sliding_window", {"false"}, why), keys::no_window()});
}

Family llama_itself() {
  Family f = llama_like("llama", "Llama", "Llama");
  f.keys = llama_sizes({32, 4096, 32, 11008, 32000});
  add_llama_keys(f, keys::as_heads, false, 1e-6, {});
  add_biases(f);
  f.keys.push_back(keys::activation("hidden_act", true, "silu"));
  refuse_windows(f);
  return f;
}

Family mistral() {
  Family f = llama_like("mistral", "Mistral", "Mistral");
  f.keys = llama_sizes({32, 4096, 32, 14336, 32000});
  keys::Window window;
  window.size = 4096;
  f.keys.push_back(keys::window(window));
  add_llama_keys(f, {8, keys::as_heads}, false, 1e-6, {});
  f.keys.push_back(keys::activation("hidden_act", true, "silu"));
  refuse_biases(f, {"attention_bias", "mlp_bias"});
  f.missing_positions = 131072;
  return f;
}

Family mixtral() {
  Family f = llama_like("mixtral", "Mixtral", "Mixtral");
  f.names.layers["mlp.router"] = {{"block_sparse_moe.gate"}};
  f.names.layers["mlp.experts.*.gate_up"] = {
      {"block_sparse_moe.experts.*.w1", Rows::half_of_expert},
      {"block_sparse_moe.experts.*.w3", Rows::half_of_expert}};
  f.names.layers["mlp.experts.*.down"] = {{"block_sparse_moe.experts.*.w2"}};
  f.keys = {keys::key("num_hidden_layers", keys::layers, 32),
            keys::key("hidden_size", keys::width, 4096),
            keys::key("num_attention_heads", keys::heads, 32),
            keys::key("intermediate_size", keys::expert_width, 14336),
            keys::key("num_local_experts", keys::experts, 8, {"num_experts"}),
            keys::key("num_experts_per_tok", keys::experts_per_token, 2),
            keys::key("vocab_size", keys::vocabulary, 32000)};
  f.keys.push_back(keys::window({}));
  keys::Rope rope;
  rope.theta = 1e6;
  add_llama_keys(f, {8, keys::as_heads}, false, 1e-5, rope);
  f.keys.push_back(keys::activation("hidden_act", true, "silu"));
  refuse_biases(f, {"attention_bias", "mlp_bias"});
  f.keys.push_back(keys::required("router_jitter_noise", {"0.0"},
                                  "this program adds no noise to what the router reads"));
  ignore_router_loss(f);
  f.missing_positions = 131072;
  return f;
}

/// Phi 3, 3.5 and 4, dense ones.
Family phi3() {
  Family f = llama_like("phi3", "Phi-3", "Phi3");
  f.names.layers["attention.qkv"] = {{"self_attn.qkv_proj"}};
  f.names.layers["mlp.gate_up"] = {{"mlp.gate_up_proj"}};
  f.keys = llama_sizes({32, 3072, 32, 8192, 32064});
  f.keys.push_back(keys::window({}));
  keys::Rope rope;
  rope.share_name = "partial_rotary_factor";
  rope.original_length = 4096;
  add_llama_keys(f, keys::as_heads, false, 1e-5, rope);
  f.keys.push_back(keys::activation("hidden_act", true, "silu"));
  refuse_biases(f, {"attention_bias", "lm_head_bias", "mlp_bias"});
  f.missing_positions = 4096;
  return f;
}

Family granite() {
  Family f = llama_like("granite", "Granite", "Granite");
  f.keys = llama_sizes({32, 4096, 32, 11008, 32000});
  add_llama_keys(f, keys::as_heads, false, 1e-6, {});
  add_biases(f);
  add(f.keys, {keys::activation("hidden_act", true, "silu"),
               keys::key("embedding_multiplier", keys::embedding_scale, 1.0),
               keys::key("residual_multiplier", keys::residual_scale, 1.0),
               keys::key("attention_multiplier", keys::attention_scale, 1.0),
               keys::key("logits_scaling", keys::logit_divisor, 1.0)});
  refuse_windows(f);
  return f;
}

Family smollm3() {
  Family f = llama_like("smollm3", "SmolLM3", "SmolLM3");
  f.keys = llama_sizes({36, 2048, 16, 11008, 128256});
  keys::Window window;
  window.has_switch = window.has_types = true;
  window.layers = keys::Window::Layers::without_rotary;
  add(f.keys, {keys::rotary_layers(4), keys::window(window)});
  keys::Rope rope;
  rope.theta = 2e6;
  add_llama_keys(f, {4, keys::as_heads}, true, 1e-6, rope);
  add_biases(f);
  f.keys.push_back(keys::activation("hidden_act", true, "silu"));
  f.no_effect.insert("max_window_layers");
  f.missing_positions = 32768;
  return f;
}

Family arcee() {
  Family f = llama_like("arcee", "Arcee", "Arcee");
  f.names.layers = without_gate(f.names.layers, "mlp.up_proj", "mlp.down_proj");
  f.keys = llama_sizes({32, 2560, 32, 18432, 32000});
  add_llama_keys(f, keys::as_heads, false, 1e-5, {});
  add_biases(f);
  f.keys.push_back(keys::activation("hidden_act", false, "relu2"));
  refuse_windows(f);
  f.missing_positions = 4096;
  return f;
}

Family seed_oss() {
  Family f = llama_like("seed_oss", "Seed-OSS", "SeedOss");
  f.keys = llama_sizes({64, 4096, 80, 27648, 155136});
  add_llama_keys(f, {8, keys::as_heads}, false, 1e-6, {}, {128, keys::equal_heads});
  add(f.keys,
      {keys::key("attention_bias", keys::qkv_bias, true),
       keys::key("attention_out_bias", keys::out_bias, false),
       keys::key("mlp_bias", keys::mlp_bias, false), keys::activation("hidden_act", true, "silu")});
  refuse_windows(f);
  f.no_effect.insert("residual_dropout");
  f.missing_positions = 524288;
  return f;
}

/// HunYuan's checkpoints scale rotary frequencies by a larger base.
Family hunyuan() {
  Family f = llama_like("hunyuan_v1_dense", "HunYuan", "HunYuanDenseV1");
  f.structure.query_key_norm = model::QueryKeyNorm::rotated;
  f.names.layers["attention.query_norm"] = {{"self_attn.query_layernorm"}};
  f.names.layers["attention.key_norm"] = {{"self_attn.key_layernorm"}};
  f.keys = llama_sizes({32, 4096, 32, 11008, 290943});
  keys::Rope rope;
  rope.has_alpha = true;
  add_llama_keys(f, keys::as_heads, false, 1e-5, rope);
  add(f.keys, {keys::key("attention_bias", keys::attention_bias, false),
               keys::activation("hidden_act", true, "silu"),
               keys::required("mlp_bias", {"false"}, "HunYuan's MLP has no biases"),
               keys::required("use_qk_norm", {"true"}, "HunYuan norms queries and keys"),
               keys::required("use_cla", {"false"}, "each layer has keys and values of its own")});
  refuse_windows(f);
  f.no_effect.insert({"eod_token_id", "im_end_id", "im_newline_id", "im_start_id", "mask_init_id",
                      "sep_token_id", "text_end_id", "text_start_id", "org_vocab_size",
                      "cla_share_factor", "attention_head_dim"});
  return f;
}

}  // namespace

std::vector<Family> llama() {
  return {llama_itself(), mistral(), mixtral(),  phi3(),   granite(),
          smollm3(),      arcee(),   seed_oss(), hunyuan()};
}

}  // namespace ostrakon::checkpoint::families
