// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/families/families.hpp>
#include <ostrakon/checkpoint/families/keys.hpp>

namespace ostrakon::checkpoint::families {
namespace {

Family cohere_like(const char* type, const char* title, const char* prefix) {
  Family f = llama_like(type, title, prefix);
  f.structure.norm = math::NormKind::layernorm;
  f.structure.block = model::BlockForm::parallel;
  f.names.layers.erase("mlp.norm");
  f.names.pairs = RotaryPairs::neighbours;
  f.keys = llama_sizes({40, 8192, 64, 22528, 256000});
  f.missing_positions = 8192;
  return f;
}

void add_cohere_keys(Family& f) {
  keys::Rope rope;
  rope.theta = 5e5;
  add(f.keys, {keys::key("num_key_value_heads", keys::kv_heads, keys::as_heads),
               keys::key("head_dim", keys::head_width, keys::equal_heads),
               keys::key("tie_word_embeddings", keys::tied, true),
               keys::key("layer_norm_eps", keys::epsilon, 1e-5),
               keys::key("attention_bias", keys::attention_bias, false),
               keys::key("logit_scale", keys::logit_scale, 0.0625), keys::rope(rope),
               keys::activation("hidden_act", true, "silu")});
  add_rotary_family(f);
}

/// Command R and R+.
Family cohere1() {
  Family f = cohere_like("cohere", "Command R", "Cohere");
  f.keys.push_back(keys::no_window());
  add_cohere_keys(f);
  f.keys.push_back(keys::key("use_qk_norm", keys::each_head_norms, false));
  f.names.layers = with_head_norms(f.names.layers);
  for (const char* norm : {"attention.query_norm", "attention.key_norm"})
    f.names.layers[norm].front().is_by_head = true;
  return f;
}

/// Layers without a window have no rotary positions.
Family cohere2() {
  Family f = cohere_like("cohere2", "Command R7B", "Cohere2");
  keys::Window window;
  window.size = 4096;
  window.has_types = window.has_pattern = true;
  window.period = 4;
  window.rotates_within = true;
  f.keys.push_back(keys::window(window));
  add_cohere_keys(f);
  // transformers does not read these, but published files have them.
  const char* const why = "Command R7B has this value alone";
  add(f.keys, {keys::required("layer_switch", {"4"}, why),
               keys::required("order_of_interleaved_layers", {"\"local_attn_first\""}, why),
               keys::required("position_embedding_type", {"\"rope_gptj\""}, why),
               keys::required("rotary_pct", {"1.0"}, why),
               keys::required("use_gated_activation", {"true"}, why),
               keys::required("use_parallel_block", {"true"}, why)});
  f.no_effect.insert({"use_embedding_sharing", "use_parallel_embedding"});
  return f;
}

}  // namespace

std::vector<Family> cohere() { return {cohere1(), cohere2()}; }

}  // namespace ostrakon::checkpoint::families
