// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/families/keys.hpp>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostrakon/base/text.hpp>
#include <utility>

namespace ostrakon::checkpoint::keys {
namespace {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;
using model::Activation;
using model::DecoderSettings;
using Type = Setting::Type;

double value_of(const ConfigReading& reading, const std::string& name, Type type) {
  if (type == Type::whole || type == Type::whole_or_null)
    return static_cast<double>(reading.whole(name));
  if (type == Type::whole_or_0) return static_cast<double>(reading.whole(name, 0));
  return type == Type::flag ? (reading.flag(name) ? 1.0 : 0.0) : reading.number(name);
}

/// Returns a value of a setting as JSON: 6, true, 1e-06.
Ordered json_of(Type type, double value) {
  if (type == Type::flag) return value != 0.0;
  if ((type == Type::cap || type == Type::whole_or_null) && value == 0.0) return nullptr;
  const bool is_whole =
      type == Type::whole || type == Type::whole_or_0 || type == Type::whole_or_null ||
      (type == Type::rounded && std::abs(value - std::round(value)) < 1e-9 * std::abs(value));
  if (is_whole) return static_cast<std::int64_t>(std::llround(value));
  return value;
}

/// Whether two numbers are equal in fp32, in which they are used.
bool equal(double a, double b) { return static_cast<float>(a) == static_cast<float>(b); }

struct NamedActivation {
  const char* name;
  Activation gated, plain;
};

/// Names in transformers. The tanh form is 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
constexpr NamedActivation activations[] = {
    {"gelu_new", Activation::geglu, Activation::gelu},
    {"gelu_pytorch_tanh", Activation::geglu, Activation::gelu},
    {"gelu_fast", Activation::geglu, Activation::gelu},
    {"gelu_accurate", Activation::geglu, Activation::gelu},
    {"gelu_python_tanh", Activation::geglu, Activation::gelu},
    {"gelu", Activation::geglu_exact, Activation::gelu_exact},
    {"gelu_python", Activation::geglu_exact, Activation::gelu_exact}};
constexpr std::pair<const char*, Activation> gated_activations[] = {{"silu", Activation::swiglu},
                                                                    {"swish", Activation::swiglu}};
constexpr std::pair<const char*, Activation> plain_activations[] = {
    {"relu", Activation::relu}, {"relu2", Activation::relu_squared}};

/// Returns names and what they mean in an MLP with a gate or without one.
std::vector<std::pair<std::string, Activation>> activations_of(bool is_gated) {
  std::vector<std::pair<std::string, Activation>> all;
  if (is_gated) all.assign(std::begin(gated_activations), std::end(gated_activations));
  for (const NamedActivation& one : activations)
    all.emplace_back(one.name, is_gated ? one.gated : one.plain);
  if (!is_gated) all.insert(all.end(), std::begin(plain_activations), std::end(plain_activations));
  return all;
}

}  // namespace

Key key(const std::string& name, const Setting& setting, const Missing& missing,
        const std::vector<std::string>& others) {
  Key key{others};
  key.names.insert(key.names.begin(), name);
  for (const std::string& one : key.names)
    key.deck_keys[one].assign(setting.deck_keys.begin(), setting.deck_keys.end());
  key.read = [=](ConfigReading& reading) {
    const auto used = std::find_if(key.names.begin(), key.names.end(),
                                   [&](const std::string& one) { return reading.has(one); });
    double value = 0.0;
    if (used != key.names.end()) {
      value = value_of(reading, *used, setting.type);
    } else {
      const bool means =
          missing.null_means != nullptr && (reading.is_there(name) || !missing.value);
      value = means ? missing.null_means(reading.model) : *missing.value;
    }
    setting.set(reading.model, value);
    const std::string words = used != key.names.end()
                                  ? reading.is(*used)
                                  : reading.is(name, json_of(setting.type, value).dump());
    for (const char* deck_key : setting.deck_keys) reading.say(deck_key, words);
    for (const std::string& other : key.names)
      if (reading.has(other) && !equal(value_of(reading, other, setting.type), value))
        reading.problem(other, text("but ", words, "; expected the same"));
  };
  key.write = [=](const DecoderSettings& settings, Ordered& to) {
    to[name] = json_of(setting.type, setting.get(settings));
  };
  return key;
}

Key alias(const std::string& name, const Setting& setting) {
  Key key{{name}};
  key.read = [=](ConfigReading& reading) {
    const double value = setting.get(reading.model);
    if (!reading.has(name) || equal(value_of(reading, name, setting.type), value)) return;
    std::string words;
    for (const ConfigReading::Said& one : reading.said)
      if (one.deck_key == setting.deck_keys.front()) words = one.words;
    reading.problem(name, text("but ", words, "; expected the same"));
  };
  return key;
}

Key required(const std::string& name, const std::vector<std::string>& computed,
             const std::string& why, bool is_written) {
  Key key{{name}};
  key.read = [=](ConfigReading& reading) {
    const Json& value = reading.at(name);
    const auto is_value = [&](const std::string& one) { return Json::parse(one) == value; };
    if (value.is_null() || std::any_of(computed.begin(), computed.end(), is_value)) return;
    std::string expected;
    for (const std::string& one : computed) expected += (expected.empty() ? "" : ", ") + one;
    reading.problem(
        name, text(why, computed.size() > 1 ? "; expected one of " : "; expected ", expected));
  };
  if (is_written)
    key.write = [=](const DecoderSettings&, Ordered& to) {
      to[name] = Ordered::parse(computed.front());
    };
  return key;
}

Key activation(const std::string& name, bool is_gated, const std::string& missing) {
  Key key{{name}, {{name, {"activation"}}}};
  key.read = [=](ConfigReading& reading) {
    const std::string said = reading.has(name) ? reading.words(name) : missing;
    std::string expected;
    for (const auto& [theirs, ours] : activations_of(is_gated)) {
      if (theirs == said) {
        reading.model.activation = ours;
        reading.say("activation", reading.is(name, Json(missing).dump()));
        return;
      }
      expected += (expected.empty() ? "\"" : ", \"") + theirs + "\"";
    }
    reading.problem(name, "expected one of " + expected);
  };
  key.write = [=](const DecoderSettings& settings, Ordered& to) {
    const auto all = activations_of(is_gated);
    const auto is_it = [&](const auto& one) { return one.second == settings.activation; };
    const auto is_default = [&](const auto& one) { return is_it(one) && one.first == missing; };
    auto found = std::find_if(all.begin(), all.end(), is_default);
    if (found == all.end()) found = std::find_if(all.begin(), all.end(), is_it);
    if (found != all.end()) to[name] = found->first;
  };
  return key;
}

std::vector<Key> common() {
  return {
      required("add_cross_attention", {"false"}, "this program has no cross-attention"),
      required("cross_attention_hidden_size", {"null"}, "this program has no cross-attention"),
      required("is_causal", {"true"}, "this program attends to tokens before"),
      required("is_encoder_decoder", {"false"}, "this program has decoders alone"),
      required("pruned_heads", {"{}"}, "this program has all heads of all layers"),
      required("tie_encoder_decoder", {"false"}, "this program has decoders alone"),
      required("use_bidirectional_attention", {"false"}, "this program attends to tokens before")};
}

const std::set<std::string>& without_effect() {
  static const std::set<std::string> names = {
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
      "_output_attentions", "attention_dropout", "chunk_size_feed_forward",
      "gradient_checkpointing", "initializer_range", "output_attentions", "output_hidden_states",
      "output_past", "return_dict", "tf_legacy_loss", "tie_last_hidden_states", "use_return_dict",
      // cross-attention only
      "is_decoder",
      // generation
      "assistant_confidence_threshold", "assistant_lookbehind", "bad_words_ids",
      "begin_suppress_tokens", "bos_token_id", "cache_implementation", "decoder_start_token_id",
      "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size",
      "encoder_repetition_penalty", "eos_token_id", "epsilon_cutoff", "eta_cutoff",
      "exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id",
      "length_penalty", "max_length", "min_length", "no_repeat_ngram_size", "num_assistant_tokens",
      "num_assistant_tokens_schedule", "num_beam_groups", "num_beams", "num_return_sequences",
      "output_scores", "pad_token_id", "remove_invalid_values", "repetition_penalty",
      "return_dict_in_generate", "sep_token_id", "suppress_tokens", "target_lookbehind",
      "temperature", "top_k", "top_p", "typical_p",
      // other heads
      "_num_labels", "classifier_dropout", "finetuning_task", "id2label", "label2id", "num_labels",
      "problem_type", "task_specific_params"};
  return names;
}

}  // namespace ostrakon::checkpoint::keys
