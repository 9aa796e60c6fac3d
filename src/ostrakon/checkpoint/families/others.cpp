// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/text.hpp>
#include <ostrakon/checkpoint/families/families.hpp>
#include <ostrakon/checkpoint/families/keys.hpp>

namespace ostrakon::checkpoint::families {
namespace {

keys::Rope share_of_heads(double share) {
  keys::Rope rope;
  rope.share_name = "partial_rotary_factor";
  rope.share = share;
  return rope;
}

/// Names the tensors of norms that each head has, and leaves out what parallel blocks have not.
void adapt_stablelm(const model::DecoderSettings& s, TensorNames& names) {
  if (s.block == model::BlockForm::parallel) names.layers.erase("mlp.norm");
  const auto norms_of_heads = [](const char* name, std::int64_t heads) {
    std::vector<TensorPart> parts;
    for (std::int64_t head = 0; head < heads; ++head)
      parts.push_back({text(name, ".norms.", head), Rows::head});
    return parts;
  };
  names.layers["attention.query_norm"] = norms_of_heads("self_attn.q_layernorm", s.heads);
  names.layers["attention.key_norm"] = norms_of_heads("self_attn.k_layernorm", s.kv_heads);
}

/// StableLM 3B, 2 1.6B and 2 12B.
Family stablelm() {
  Family f = llama_like("stablelm", "StableLM", "StableLm");
  f.structure.norm = math::NormKind::layernorm;
  f.structure.own_norm_bias = true;
  f.adapt = adapt_stablelm;
  f.keys = llama_sizes({32, 2560, 32, 6912, 50304});
  add(f.keys,
      {keys::key("num_key_value_heads", keys::kv_heads, {32, keys::as_heads}),
       keys::key("tie_word_embeddings", keys::tied, false),
       keys::key("layer_norm_eps", keys::epsilon, 1e-5),
       keys::key("use_qkv_bias", keys::qkv_bias, false),
       keys::key("use_parallel_residual", keys::parallel, false),
       keys::key("qk_layernorm", keys::each_head_norms, false), keys::rope(share_of_heads(0.25)),
       keys::activation("hidden_act", true, "silu"), keys::no_window()});
  f.no_effect = {"rope_pct"};
  f.missing_positions = 4096;
  add_rotary_family(f);
  return f;
}

/// Nemotron and Minitron: layer norm by 1 + its weight.
Family nemotron() {
  Family f = llama_like("nemotron", "Nemotron", "Nemotron");
  f.structure.norm = math::NormKind::layernorm;
  f.structure.norm_weight = math::NormWeight::one_plus;
  f.structure.own_norm_bias = true;
  f.names.layers = without_gate(f.names.layers, "mlp.up_proj", "mlp.down_proj");
  f.keys = llama_sizes({32, 6144, 48, 24576, 256000});
  add(f.keys, {keys::key("num_key_value_heads", keys::kv_heads, keys::as_heads),
               keys::key("head_dim", keys::head_width, keys::equal_heads),
               keys::key("tie_word_embeddings", keys::tied, false),
               keys::key("norm_eps", keys::epsilon, 1e-5),
               keys::key("attention_bias", keys::attention_bias, false),
               keys::key("mlp_bias", keys::mlp_bias, false), keys::rope(share_of_heads(0.5)),
               keys::activation("hidden_act", false, "relu2"), keys::no_window()});
  f.missing_positions = 4096;
  add_rotary_family(f);
  return f;
}

/// Ernie 4.5, dense.
Family ernie4_5() {
  Family f = llama_like("ernie4_5", "ERNIE 4.5", "Ernie4_5");
  f.other_classes = {"Ernie4_5_ForCausalLM"};
  f.names.pairs = RotaryPairs::neighbours;
  f.keys = llama_sizes({18, 1024, 16, 3072, 103424});
  keys::Rope rope;
  rope.theta = 5e5;
  add(f.keys, {keys::key("num_key_value_heads", keys::kv_heads, {2, keys::as_heads}),
               keys::key("head_dim", keys::head_width, {128, keys::equal_heads}),
               keys::key("tie_word_embeddings", keys::tied, true),
               keys::key("rms_norm_eps", keys::epsilon, 1e-5),
               keys::key("use_bias", keys::linear_bias, false), keys::rope(rope),
               keys::activation("hidden_act", true, "silu"), keys::no_window()});
  f.no_effect = {"hidden_dropout_prob"};
  f.missing_positions = 131072;
  add_rotary_family(f);
  return f;
}

Family helium() {
  Family f = llama_like("helium", "Helium", "Helium");
  f.names.pairs = RotaryPairs::neighbours;
  f.keys = llama_sizes({24, 2560, 20, 7040, 48000});
  keys::Rope rope;
  rope.theta = 1e5;
  add(f.keys, {keys::key("num_key_value_heads", keys::kv_heads, {20, keys::as_heads}),
               keys::key("head_dim", keys::head_width, {128, keys::equal_heads}),
               keys::key("tie_word_embeddings", keys::tied, false),
               keys::key("rms_norm_eps", keys::epsilon, 1e-8),
               keys::key("attention_bias", keys::qkv_bias, false),
               keys::key("mlp_bias", keys::mlp_bias, false), keys::rope(rope),
               keys::activation("hidden_act", true, "silu"), keys::no_window()});
  f.missing_positions = 4096;
  add_rotary_family(f);
  return f;
}

/// nanochat has no weights in norms, norms its embedding, and turns the other way.
Family nanochat() {
  Family f = llama_like("nanochat", "nanochat", "NanoChat");
  f.structure.norm_weight = math::NormWeight::none;
  f.structure.embedding_norm = true;
  f.structure.query_key_norm = model::QueryKeyNorm::rotated;
  f.names.pairs = RotaryPairs::swapped;
  f.names.layers = without_gate(f.names.layers, "mlp.fc1", "mlp.fc2");
  f.keys = llama_sizes({12, 768, 6, 8192, 50304});
  const auto no_cap = [](const model::DecoderSettings&) { return 0.0; };
  add(f.keys, {keys::key("num_key_value_heads", keys::kv_heads, keys::as_heads),
               keys::key("head_dim", keys::head_width, keys::equal_heads),
               keys::key("tie_word_embeddings", keys::tied, false),
               keys::key("rms_norm_eps", keys::epsilon, 1e-6),
               keys::key("attention_bias", keys::attention_bias, false), keys::rope({}),
               keys::key("final_logit_softcapping", keys::logit_soft_cap, {15.0, no_cap}),
               keys::activation("hidden_act", false, "relu2"), keys::no_window()});
  add_rotary_family(f);
  return f;
}

}  // namespace

std::vector<Family> others() { return {stablelm(), nemotron(), ernie4_5(), helium(), nanochat()}; }

}  // namespace ostrakon::checkpoint::families
