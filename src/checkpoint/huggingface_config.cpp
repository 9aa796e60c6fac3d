// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/huggingface.hpp>
#include <ostrakon/checkpoint/huggingface_config.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <utility>
#include <vector>

namespace ostrakon::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr const char* kind = "model configuration";
constexpr std::int64_t most_bytes = 1 << 20;

/// Keys of a JSON object, with what a library takes where they are missing or null.
class Keys {
 public:
  Keys(std::string path, Json object, std::string inside = "")
      : path_(std::move(path)), object_(std::move(object)), inside_(std::move(inside)) {}

  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

  /// At least 1.
  std::int64_t whole(const char* key) const {
    require(has(key), kind, " '", path_, "' has no ", inside_, key);
    const Json& value = object_[key];
    constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() - 1 < most;
    if (!fits) refuse(key, "expected a whole number from 1 on");
    return value.get<std::int64_t>();
  }
  std::int64_t whole(const char* key, std::int64_t otherwise) const {
    return has(key) ? whole(key) : otherwise;
  }
  double number(const char* key, double otherwise) const {
    if (has(key) && !object_[key].is_number()) refuse(key, "expected a number");
    return has(key) ? object_[key].get<double>() : otherwise;
  }
  bool flag(const char* key, bool otherwise) const {
    if (has(key) && !object_[key].is_boolean()) refuse(key, "expected true or false");
    return has(key) ? object_[key].get<bool>() : otherwise;
  }
  std::string name(const char* key, const std::string& otherwise) const {
    if (has(key) && !object_[key].is_string()) refuse(key, "expected text");
    return has(key) ? object_[key].get<std::string>() : otherwise;
  }
  Keys object(const char* key) const {
    if (has(key) && !object_[key].is_object()) refuse(key, "expected an object");
    return {path_, has(key) ? object_[key] : Json::object(), inside_ + key + "."};
  }

  /// Of what changes the computation, and has one value that Decoder computes.
  void require_flag(const char* key, bool only, const char* why) const {
    if (flag(key, only) != only) refuse(key, why);
  }
  void require_name(const char* key, const std::string& otherwise,
                    const std::vector<std::string>& known) const {
    const std::string found = name(key, otherwise);
    if (std::find(known.begin(), known.end(), found) != known.end()) return;
    std::string list;
    for (const std::string& one : known) list += (list.empty() ? "" : " or ") + one;
    refuse(key, "this program computes " + list);
  }

  [[noreturn]] void refuse(const char* key, const std::string& why) const {
    std::string found = has(key) ? object_[key].dump(-1, ' ', true, Json::error_handler_t::replace)
                                 : std::string("missing");
    if (found.size() > 100) found = found.substr(0, 100) + "...";
    throw Error(text(kind, " '", path_, "': ", inside_, key, " is ", found, "; ", why));
  }

 private:
  std::string path_;
  Json object_;
  std::string inside_;  ///< "rope_parameters." of a nested object
};

HuggingFaceConfig read_gpt2(const Keys& keys) {
  keys.require_name("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh"});
  keys.require_flag("scale_attn_weights", true, "this program scales attention");
  keys.require_flag("scale_attn_by_inverse_layer_idx", false,
                    "this program scales attention alike in all layers");
  keys.require_flag("add_cross_attention", false, "this program has no cross-attention");
  HuggingFaceConfig config;
  model::DecoderSettings& model = config.model;
  model.norm = math::NormKind::layernorm;
  model.positions = model::Positions::learned;
  model.activation = model::Activation::gelu;
  model.bias = true;
  model.layers = keys.whole("n_layer");
  model.width = keys.whole("n_embd");
  model.heads = keys.whole("n_head");
  model.kv_heads = model.heads;
  constexpr std::int64_t most_width = std::numeric_limits<std::int64_t>::max() / 4;
  if (model.width > most_width) keys.refuse("n_embd", text("expected at most ", most_width));
  model.ffn_width = keys.whole("n_inner", 4 * model.width);
  model.vocabulary = keys.whole("vocab_size");
  model.tie_embeddings = keys.flag("tie_word_embeddings", true);
  model.norm_epsilon = keys.number("layer_norm_epsilon", 1e-5);
  config.positions = keys.whole("n_positions");
  return config;
}

/// Older files have rope_theta by itself and rope_scaling; newer ones both in rope_parameters.
double rotary_base_of(const Keys& keys) {
  constexpr const char* why = "this program does not scale rotary frequencies";
  for (const char* group : {"rope_scaling", "rope_parameters"}) {
    const Keys rope = keys.object(group);
    for (const char* type : {"rope_type", "type"})
      if (rope.name(type, "default") != "default") rope.refuse(type, why);
    if (rope.has("factor")) rope.refuse("factor", why);
    if (rope.number("partial_rotary_factor", 1.0) != 1.0)
      rope.refuse("partial_rotary_factor", "this program rotates whole heads");
  }
  if (keys.number("partial_rotary_factor", 1.0) != 1.0)
    keys.refuse("partial_rotary_factor", "this program rotates whole heads");
  const double base = keys.number("rope_theta", 10000.0);
  return keys.object("rope_parameters").number("rope_theta", base);
}

HuggingFaceConfig read_llama(const Keys& keys) {
  keys.require_name("hidden_act", "silu", {"silu", "swish"});
  keys.require_flag("attention_bias", false, "this program's Llama has no biases");
  keys.require_flag("mlp_bias", false, "this program's Llama has no biases");
  HuggingFaceConfig config;
  model::DecoderSettings& model = config.model;
  model.norm = math::NormKind::rmsnorm;
  model.positions = model::Positions::rotary;
  model.activation = model::Activation::swiglu;
  model.bias = false;
  model.layers = keys.whole("num_hidden_layers");
  model.width = keys.whole("hidden_size");
  model.heads = keys.whole("num_attention_heads");
  model.kv_heads = keys.whole("num_key_value_heads", model.heads);
  model.ffn_width = keys.whole("intermediate_size");
  model.vocabulary = keys.whole("vocab_size");
  model.tie_embeddings = keys.flag("tie_word_embeddings", false);
  model.norm_epsilon = keys.number("rms_norm_eps", 1e-6);
  model.rotary_base = rotary_base_of(keys);
  if (keys.whole("head_dim", model.head_width()) != model.head_width())
    keys.refuse("head_dim",
                text("this program's heads divide the width, ", model.width, " / ", model.heads));
  config.positions = keys.whole("max_position_embeddings");
  return config;
}

nlohmann::ordered_json gpt2_json(const HuggingFaceConfig& config) {
  const model::DecoderSettings& model = config.model;
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", "gelu_new"},
          {"n_layer", model.layers},
          {"n_embd", model.width},
          {"n_head", model.heads},
          {"n_inner", model.ffn_width},
          {"n_positions", config.positions},
          {"n_ctx", config.positions},
          {"layer_norm_epsilon", model.norm_epsilon},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"resid_pdrop", 0.0}};
}

nlohmann::ordered_json llama_json(const HuggingFaceConfig& config) {
  const model::DecoderSettings& model = config.model;
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_act", "silu"},
          {"num_hidden_layers", model.layers},
          {"hidden_size", model.width},
          {"num_attention_heads", model.heads},
          {"num_key_value_heads", model.kv_heads},
          {"head_dim", model.head_width()},
          {"intermediate_size", model.ffn_width},
          {"max_position_embeddings", config.positions},
          {"rms_norm_eps", model.norm_epsilon},
          {"rope_theta", model.rotary_base},
          {"rope_scaling", nullptr},
          {"attention_bias", false},
          {"mlp_bias", false}};
}

}  // namespace

HuggingFaceConfig read_huggingface_config(const std::string& path) {
  const Keys keys(path, read_json_object(path, kind, most_bytes));
  keys.require_name("model_type", "missing", {"gpt2", "llama"});
  if (keys.has("quantization_config"))
    keys.refuse("quantization_config", "this program reads F32, BF16 and F16");
  return keys.name("model_type", "") == "gpt2" ? read_gpt2(keys) : read_llama(keys);
}

std::string write_huggingface_config(const HuggingFaceConfig& config, Number number,
                                     std::optional<std::int64_t> end_of_text) {
  const model::DecoderSettings& model = config.model;
  nlohmann::ordered_json json =
      family_of(model) == Family::gpt2 ? gpt2_json(config) : llama_json(config);
  json["vocab_size"] = model.vocabulary;
  json["tie_word_embeddings"] = model.tie_embeddings;
  json["initializer_range"] = model.initializer_deviation;
  json["torch_dtype"] = number == Number::fp32 ? "float32" : "bfloat16";
  // Without these, their library takes tokens that this vocabulary may not have.
  for (const char* key : {"bos_token_id", "eos_token_id"})
    json[key] = end_of_text ? nlohmann::ordered_json(*end_of_text) : nlohmann::ordered_json();
  return json.dump(2) + "\n";
}

}  // namespace ostrakon::checkpoint
