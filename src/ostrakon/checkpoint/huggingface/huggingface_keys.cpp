// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/huggingface_keys.hpp>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

using model::DecoderSettings;
using Type = ComparedKey::Type;

#define SETTING(field)                                                             \
  [](const DecoderSettings& s) -> double { return static_cast<double>(s.field); }, \
      [](DecoderSettings& s, double value) { s.field = static_cast<decltype(s.field)>(value); }

// ------------------------------------------------------------- keys with a counterpart in a deck

ComparedKey layers(const char* name, double missing) {
  return {name, "model.layers", Type::whole, missing, nullptr, SETTING(layers)};
}
ComparedKey width(const char* name, double missing) {
  return {name, "model.width", Type::whole, missing, nullptr, SETTING(width)};
}
ComparedKey heads(const char* name, double missing) {
  return {name, "model.heads", Type::whole, missing, nullptr, SETTING(heads)};
}
ComparedKey vocabulary(double missing) {
  return {"vocab_size", "model.vocabulary", Type::whole, missing, nullptr, SETTING(vocabulary)};
}
ComparedKey tied(bool missing) {
  return {"tie_word_embeddings",  "model.tie_embeddings", Type::flag, missing ? 1.0 : 0.0, nullptr,
          SETTING(tie_embeddings)};
}
ComparedKey epsilon(const char* name, double missing) {
  return {name, "model.norm_epsilon", Type::number, missing, nullptr, SETTING(norm_epsilon), true};
}
ComparedKey attention_bias() {
  return {"attention_bias", "model.bias", Type::flag, 0.0, nullptr, SETTING(bias)};
}
/// This key must follow attention_bias() in a table.
ComparedKey mlp_bias() {
  const auto get = [](const DecoderSettings& s) { return s.mlp_bias() ? 1.0 : 0.0; };
  const auto set = [](DecoderSettings& s, double value) {
    s.own_mlp_bias.reset();
    if (s.mlp_bias() != (value != 0.0)) s.own_mlp_bias = value != 0.0;
  };
  return {"mlp_bias", "model.mlp_bias", Type::flag, 0.0, nullptr, get, set};
}

/// `missing` none: the number of heads.
ComparedKey kv_heads(std::optional<double> missing) {
  const auto as_heads = [](const DecoderSettings& theirs) {
    return static_cast<double>(theirs.heads);
  };
  return {"num_key_value_heads", "model.kv_heads", Type::whole, missing, as_heads,
          SETTING(kv_heads)};
}

ComparedKey ffn_width(double missing) {
  return {"intermediate_size", "model.ffn_width", Type::whole, missing, nullptr,
          SETTING(ffn_width)};
}

ComparedKey expert_width(const char* name, double missing) {
  return {name, "model.expert_width", Type::whole, missing, nullptr, SETTING(experts.width)};
}
ComparedKey router_normalize(const char* name) {
  return {name, "model.router_normalize", Type::flag, 0.0, nullptr, SETTING(experts.normalize)};
}
ComparedKey experts(const char* name, double missing) {
  return {name, "model.experts", Type::whole, missing, nullptr, SETTING(experts.count)};
}
ComparedKey experts_per_token(double missing) {
  return {"num_experts_per_tok",     "model.experts_per_token", Type::whole, missing, nullptr,
          SETTING(experts.per_token)};
}

ComparedKey inner_width() {
  const auto four_widths = [](const DecoderSettings& theirs) {
    return 4.0 * static_cast<double>(theirs.width);
  };
  return {"n_inner", "model.ffn_width", Type::whole, std::nullopt, four_widths, SETTING(ffn_width)};
}

/// `missing` none: width / heads.
ComparedKey head_width(std::optional<double> missing = std::nullopt) {
  const auto width_of = [](const DecoderSettings& s) {
    return static_cast<double>(s.head_width());
  };
  const auto set = [](DecoderSettings& s, double value) {
    s.head_dim = static_cast<std::int64_t>(value);
  };
  return {"head_dim", "model.head_width", Type::whole, missing, width_of, width_of, set};
}

#undef SETTING

ComparedKey alias(ComparedKey key) {
  key.set = nullptr;
  key.is_alias = true;
  return key;
}
/// Makes an alias from the attribute_map of the type's class; it replaces a missing key.
ComparedKey stand_in(ComparedKey key) {
  key = alias(key);
  key.stands_in = true;
  return key;
}

// --------------------------------------------------------------- keys with a value that is
// computed

constexpr const char* activation_why = "this program computes the tanh form of GELU";

/// Names of the tanh form 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); "gelu" is another
/// function.
std::vector<std::string> tanh_gelu(const std::string& first) {
  std::vector<std::string> names = {'"' + first + '"'};
  for (const char* name :
       {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate", "gelu_python_tanh"})
    if (name != first) names.push_back('"' + std::string(name) + '"');
  return names;
}

RequiredKey silu() {
  return {"hidden_act", {"\"silu\"", "\"swish\""}, "this program computes silu", true};
}
RequiredKey scaled_attention() {
  return {"scale_attn_weights", {"true"}, "this program scales attention by 1 / sqrt(head width)"};
}

/// Returns the keys that all families require.
std::vector<RequiredKey> common_required() {
  return {{"add_cross_attention", {"false"}, "this program has no cross-attention"},
          {"cross_attention_hidden_size", {"null"}, "this program has no cross-attention"},
          {"is_causal", {"true"}, "this program attends to tokens before"},
          {"is_encoder_decoder", {"false"}, "this program has decoders alone"},
          {"pruned_heads", {"{}"}, "this program has all heads of all layers"},
          {"tie_encoder_decoder", {"false"}, "this program has decoders alone"}};
}

// -------------------------------------------------------------------- keys without an effect

/// Keys of all families on files, training, generation and other heads.
const std::set<std::string>& common_keys() {
  static const std::set<std::string> keys = {
      // code next to the file, which transformers runs only on request
      "auto_map",
      // files and programs
      "_attn_implementation", "_attn_implementation_autoset", "_attn_implementation_internal",
      "_commit_hash", "_experts_implementation", "_experts_implementation_internal",
      "_flash_attn_2_enabled", "_name_or_path", "attn_implementation", "dtype",
      "experts_implementation", "model_max_length", "name_or_path", "prefix", "tokenizer_class",
      "torch_dtype", "torchscript", "transformers.js_config", "transformers_version",
      "unsloth_fixed", "unsloth_version", "use_bfloat16", "use_cache", "vocab_file", "xla_device",
      // training
      "_output_attentions", "chunk_size_feed_forward", "gradient_checkpointing",
      "initializer_range", "output_attentions", "output_hidden_states", "output_past",
      "return_dict", "tf_legacy_loss", "tie_last_hidden_states", "use_return_dict",
      // cross-attention only
      "is_decoder",
      // generation
      "assistant_confidence_threshold", "assistant_lookbehind", "bad_words_ids",
      "begin_suppress_tokens", "bos_token_id", "decoder_start_token_id", "diversity_penalty",
      "do_sample", "early_stopping", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty",
      "eos_token_id", "epsilon_cutoff", "eta_cutoff", "exponential_decay_length_penalty",
      "forced_bos_token_id", "forced_eos_token_id", "length_penalty", "max_length", "min_length",
      "no_repeat_ngram_size", "num_assistant_tokens", "num_assistant_tokens_schedule",
      "num_beam_groups", "num_beams", "num_return_sequences", "output_scores", "pad_token_id",
      "remove_invalid_values", "repetition_penalty", "return_dict_in_generate", "sep_token_id",
      "suppress_tokens", "target_lookbehind", "temperature", "top_k", "top_p", "typical_p",
      // other heads
      "_num_labels", "classifier_dropout", "finetuning_task", "id2label", "label2id", "num_labels",
      "problem_type", "task_specific_params"};
  return keys;
}

std::set<std::string> with_common(std::set<std::string> keys) {
  keys.insert(common_keys().begin(), common_keys().end());
  return keys;
}

// ------------------------------------------------------------------------------------- families

ConfigKeys gpt2_keys() {
  ConfigKeys keys;
  keys.compared = {layers("n_layer", 12),
                   width("n_embd", 768),
                   heads("n_head", 12),
                   inner_width(),
                   vocabulary(50257),
                   tied(true),
                   epsilon("layer_norm_epsilon", 1e-5),
                   stand_in(layers("num_hidden_layers", 12)),
                   stand_in(width("hidden_size", 768)),
                   stand_in(heads("num_attention_heads", 12))};
  keys.required = common_required();
  keys.required.push_back({"activation_function", tanh_gelu("gelu_new"), activation_why, true});
  keys.required.push_back(scaled_attention());
  keys.required.push_back({"scale_attn_by_inverse_layer_idx",
                           {"false"},
                           "this program scales attention alike in all layers"});
  keys.required.push_back({"reorder_and_upcast_attn",
                           {"false"},
                           "this program computes attention in the order of other models"});
  keys.positions = "n_positions";
  keys.missing_positions = 1024;
  keys.no_effect = with_common({"attn_pdrop", "embd_pdrop", "hidden_dropout", "n_ctx", "n_special",
                                "predict_special_tokens", "resid_pdrop", "summary_activation",
                                "summary_first_dropout", "summary_last_dropout",
                                "summary_proj_to_labels", "summary_type", "summary_use_proj"});
  return keys;
}

ConfigKeys gpt_bigcode_keys() {
  ConfigKeys keys = gpt2_keys();
  keys.required = common_required();
  keys.required.push_back(
      {"activation_function", tanh_gelu("gelu_pytorch_tanh"), activation_why, true});
  keys.required.push_back(scaled_attention());
  keys.required.push_back(
      {"multi_query", {"true"}, "this program reads one head of keys and values", true});
  // These keys select fp32 for the softmax, or reserve memory for inference.
  for (const char* key :
       {"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner",
        "max_batch_size", "max_sequence_length", "num_key_value_heads", "pad_key_length",
        "pre_allocate_kv_cache", "runner_max_sequence_length", "validate_runner_input"})
    keys.no_effect.insert(key);
  return keys;
}

/// Returns the keys that all families with rotary positions have.
ConfigKeys rotary_keys() {
  ConfigKeys keys;
  keys.positions = "max_position_embeddings";
  keys.has_rope = true;
  keys.required = common_required();
  keys.required.push_back(
      {"rope_interleaved", {"false"}, "this program turns element i with i + head width / 2"});
  keys.no_effect = with_common(
      {"attention_dropout", "embd_pdrop", "hidden_dropout", "is_llama_config",
       "max_sequence_length", "original_max_position_embeddings", "pretraining_tp", "resid_pdrop"});
  return keys;
}

/// Adds sliding_window, which transformers applies whatever use_sliding_window is.
void add_window(ConfigKeys& keys, std::optional<std::int64_t> missing) {
  keys.has_window = true;
  keys.missing_window = missing;
  keys.no_effect.insert("use_sliding_window");
}

ConfigKeys llama_keys() {
  ConfigKeys keys = rotary_keys();
  keys.compared = {layers("num_hidden_layers", 32),
                   width("hidden_size", 4096),
                   heads("num_attention_heads", 32),
                   kv_heads(std::nullopt),
                   head_width(),
                   ffn_width(11008),
                   vocabulary(32000),
                   tied(false),
                   epsilon("rms_norm_eps", 1e-6),
                   attention_bias(),
                   mlp_bias()};
  keys.required.push_back(silu());
  keys.required.push_back({"sliding_window", {"null"}, "Llama attends to all tokens before"});
  keys.required.push_back({"use_sliding_window", {"false"}, "Llama attends to all tokens before"});
  keys.missing_positions = 2048;
  return keys;
}

ConfigKeys mistral_keys() {
  ConfigKeys keys = rotary_keys();
  keys.compared = {layers("num_hidden_layers", 32),
                   width("hidden_size", 4096),
                   heads("num_attention_heads", 32),
                   kv_heads(8),
                   head_width(),
                   ffn_width(14336),
                   vocabulary(32000),
                   tied(false),
                   epsilon("rms_norm_eps", 1e-6)};
  keys.required.push_back(silu());
  for (const char* key : {"attention_bias", "mlp_bias"})
    keys.required.push_back({key, {"false"}, "Mistral has no biases"});
  keys.missing_positions = 131072;
  add_window(keys, 4096);
  return keys;
}

ConfigKeys mixtral_keys() {
  ConfigKeys keys = rotary_keys();
  keys.compared = {layers("num_hidden_layers", 32),
                   width("hidden_size", 4096),
                   heads("num_attention_heads", 32),
                   kv_heads(8),
                   head_width(),
                   expert_width("intermediate_size", 14336),
                   experts("num_local_experts", 8),
                   experts_per_token(2),
                   vocabulary(32000),
                   tied(false),
                   epsilon("rms_norm_eps", 1e-5),
                   stand_in(experts("num_experts", 8))};
  keys.required.push_back(silu());
  for (const char* key : {"attention_bias", "mlp_bias"})
    keys.required.push_back({key, {"false"}, "Mixtral has no biases"});
  keys.required.push_back(
      {"router_jitter_noise", {"0.0", "0"}, "this program adds no noise to what the router reads"});
  // These keys are for training, and for outputs other than logits.
  for (const char* key : {"output_router_logits", "router_aux_loss_coef"})
    keys.no_effect.insert(key);
  keys.missing_positions = 131072;
  keys.missing_rope_theta = 1e6;
  add_window(keys, std::nullopt);
  return keys;
}

/// Returns the keys that both types of Qwen3 have.
ConfigKeys any_qwen3_keys() {
  ConfigKeys keys = rotary_keys();
  keys.required.push_back(silu());
  keys.required.push_back({"attention_bias", {"false"}, "this program reads Qwen3 without biases"});
  // transformers applies sliding_window only with use_sliding_window.
  keys.required.push_back(
      {"use_sliding_window", {"false"}, "this program attends to all tokens before"});
  for (const char* key : {"max_window_layers", "sliding_window"}) keys.no_effect.insert(key);
  keys.missing_positions = 32768;
  return keys;
}

ConfigKeys qwen3_keys() {
  ConfigKeys keys = any_qwen3_keys();
  keys.compared = {layers("num_hidden_layers", 32),
                   width("hidden_size", 4096),
                   heads("num_attention_heads", 32),
                   kv_heads(32),
                   head_width(128),
                   ffn_width(22016),
                   vocabulary(151936),
                   tied(false),
                   epsilon("rms_norm_eps", 1e-6)};
  return keys;
}

ConfigKeys qwen3_moe_keys() {
  ConfigKeys keys = any_qwen3_keys();
  keys.compared = {layers("num_hidden_layers", 24),
                   width("hidden_size", 2048),
                   heads("num_attention_heads", 32),
                   kv_heads(4),
                   head_width(),
                   expert_width("moe_intermediate_size", 768),
                   experts("num_experts", 128),
                   experts_per_token(8),
                   router_normalize("norm_topk_prob"),
                   vocabulary(151936),
                   tied(false),
                   epsilon("rms_norm_eps", 1e-6),
                   stand_in(experts("num_local_experts", 128))};
  const char* const every = "all layers of this program have experts, or none has";
  keys.required.push_back({"decoder_sparse_step", {"1"}, every, true});
  keys.required.push_back({"mlp_only_layers", {"[]"}, every, true});
  // These keys are for layers without experts, for training, and for outputs other than logits.
  for (const char* key : {"intermediate_size", "output_router_logits", "router_aux_loss_coef"})
    keys.no_effect.insert(key);
  return keys;
}

ConfigKeys phi3_keys() {
  ConfigKeys keys = rotary_keys();
  keys.compared = {layers("num_hidden_layers", 32),
                   width("hidden_size", 3072),
                   heads("num_attention_heads", 32),
                   kv_heads(std::nullopt),
                   head_width(),
                   ffn_width(8192),
                   vocabulary(32064),
                   tied(false),
                   epsilon("rms_norm_eps", 1e-5)};
  keys.required.push_back(silu());
  for (const char* key : {"attention_bias", "lm_head_bias", "mlp_bias"})
    keys.required.push_back({key, {"false"}, "Phi-3 has no biases"});
  keys.missing_positions = 4096;
  add_window(keys, std::nullopt);
  return keys;
}

ConfigKeys starcoder2_keys() {
  ConfigKeys keys = rotary_keys();
  keys.compared = {layers("num_hidden_layers", 30),
                   width("hidden_size", 3072),
                   heads("num_attention_heads", 24),
                   kv_heads(2),
                   head_width(),
                   ffn_width(12288),
                   vocabulary(49152),
                   tied(true),
                   epsilon("norm_epsilon", 1e-5),
                   alias(epsilon("layer_norm_epsilon", 1e-5))};
  keys.required.push_back({"hidden_act", tanh_gelu("gelu_pytorch_tanh"), activation_why, true});
  // transformers ignores these names in this type, but published files have them.
  std::vector<std::string> any_gelu = tanh_gelu("gelu_pytorch_tanh");
  any_gelu.push_back("\"gelu\"");
  keys.required.push_back(
      {"activation_function", any_gelu, "hidden_act counts, and this program computes GELU"});
  keys.required.push_back(scaled_attention());
  keys.required.push_back(
      {"use_bias", {"true"}, "this program has biases in norms and linear layers", true});
  keys.required.push_back({"norm_type", {"\"layer_norm\""}, "Starcoder2's norm is layer_norm"});
  keys.required.push_back({"mlp_type", {"\"default\""}, "Starcoder2's MLP has no gate"});
  for (const char* key : {"attention_softmax_in_fp32", "embedding_dropout", "residual_dropout",
                          "scale_attention_softmax_in_fp32"})
    keys.no_effect.insert(key);
  keys.missing_positions = 4096;
  add_window(keys, std::nullopt);
  return keys;
}

}  // namespace

std::string json_text(const ComparedKey& key, double value) {
  if (key.type == Type::flag) return value != 0.0 ? "true" : "false";
  if (key.type == Type::whole) return std::to_string(static_cast<std::int64_t>(value));
  return nlohmann::json(value).dump();
}

const ConfigKeys& keys_of(Family family) {
  static const std::map<Family, ConfigKeys> all = {{Family::gpt2, gpt2_keys()},
                                                   {Family::gpt_bigcode, gpt_bigcode_keys()},
                                                   {Family::llama, llama_keys()},
                                                   {Family::mistral, mistral_keys()},
                                                   {Family::mixtral, mixtral_keys()},
                                                   {Family::phi3, phi3_keys()},
                                                   {Family::qwen3, qwen3_keys()},
                                                   {Family::qwen3_moe, qwen3_moe_keys()},
                                                   {Family::starcoder2, starcoder2_keys()}};
  return all.at(family);
}

}  // namespace ostrakon::checkpoint
