// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <ostrakon/checkpoint/families/families.hpp>
#include <ostrakon/checkpoint/families/keys.hpp>

namespace ostrakon::checkpoint::families {
namespace {

using model::DecoderSettings;

/// What all Gemma have: norms by 1 + their weight, an embedding times sqrt(width).
Family gemma_like(const char* type, const char* title, const char* prefix) {
  Family f = llama_like(type, title, prefix);
  f.structure.norm_weight = math::NormWeight::one_plus;
  f.structure.activation = model::Activation::geglu;
  f.derive = [](DecoderSettings& s) {
    s.embedding_scale = std::sqrt(static_cast<double>(s.width));
  };
  return f;
}

void add_gemma_keys(Family& f, double kv_heads, const keys::Rope& rope) {
  add(f.keys, {keys::key("num_key_value_heads", keys::kv_heads, {kv_heads, keys::as_heads}),
               keys::key("head_dim", keys::head_width, {256, keys::equal_heads}),
               keys::key("tie_word_embeddings", keys::tied, true),
               keys::key("rms_norm_eps", keys::epsilon, 1e-6),
               keys::key("attention_bias", keys::attention_bias, false), keys::rope(rope)});
  f.missing_positions = 8192;
  add_rotary_family(f);
}

/// hidden_act of published files of Gemma 1 is "gelu" and means the tanh form; hidden_activation,
/// if it is there, says so.
Family gemma1() {
  Family f = gemma_like("gemma", "Gemma", "Gemma");
  f.keys = llama_sizes({28, 3072, 16, 24576, 256000});
  const char* const why = "Gemma has the tanh form of GELU, also where it says gelu";
  add(f.keys,
      {keys::required("hidden_act",
                      {"\"gelu_pytorch_tanh\"", "\"gelu\"", "\"gelu_new\"", "\"gelu_fast\"",
                       "\"gelu_python_tanh\""},
                      why, true),
       keys::required("hidden_activation", {"\"gelu_pytorch_tanh\"", "\"gelu_new\""}, why, true),
       keys::no_window()});
  add_gemma_keys(f, 16, {});
  return f;
}

/// What Gemma 2 and 3 have: norms before and after layers, windows, a scale of scores.
/// `vocabulary`: the default.
Family gemma2_like(const char* type, const char* title, const char* prefix, int vocabulary) {
  Family f = gemma_like(type, title, prefix);
  f.structure.norm_placement = model::NormPlacement::both;
  f.names.layers["attention.out_norm"] = {{"post_attention_layernorm"}};
  f.names.layers["mlp.norm"] = {{"pre_feedforward_layernorm"}};
  f.names.layers["mlp.out_norm"] = {{"post_feedforward_layernorm"}};
  f.keys = llama_sizes({26, 2304, 8, 9216, vocabulary});
  f.keys.push_back(keys::activation("hidden_activation", true, "gelu_pytorch_tanh"));
  f.no_effect.insert("hidden_act");  // hidden_activation counts
  return f;
}

double no_cap(const DecoderSettings&) { return 0.0; }

Family gemma2() {
  Family f = gemma2_like("gemma2", "Gemma 2", "Gemma2", 256000);
  keys::Window window;
  window.size = 4096;
  window.has_types = true;
  window.period = 2;
  f.keys.push_back(keys::window(window));
  add_gemma_keys(f, 4, {});
  add(f.keys, {keys::key("query_pre_attn_scalar", keys::query_scalar, 256.0),
               keys::key("attn_logit_softcapping", keys::attention_soft_cap, {50.0, no_cap}),
               keys::key("final_logit_softcapping", keys::logit_soft_cap, {30.0, no_cap})});
  return f;
}

Family gemma3_text() {
  Family f = gemma2_like("gemma3_text", "Gemma 3", "Gemma3", 262208);
  f.other_classes = {"Gemma3TextModel"};
  f.structure.query_key_norm = model::QueryKeyNorm::head;
  f.names.layers = with_head_norms(f.names.layers);
  keys::Window window;
  window.size = 4096;
  window.has_types = window.has_pattern = true;
  window.period = 6;
  f.keys.push_back(keys::window(window));
  keys::Rope rope;
  rope.theta = 1e6;
  rope.window_theta_name = "rope_local_base_freq";
  add_gemma_keys(f, 4, rope);
  add(f.keys, {keys::key("query_pre_attn_scalar", keys::query_scalar, 256.0),
               keys::key("attn_logit_softcapping", keys::attention_soft_cap, 0.0),
               keys::key("final_logit_softcapping", keys::logit_soft_cap, 0.0)});
  f.no_effect.insert("_sliding_window_pattern");
  f.missing_positions = 131072;
  return f;
}

}  // namespace

std::vector<Family> gemma() { return {gemma1(), gemma2(), gemma3_text()}; }

}  // namespace ostrakon::checkpoint::families
