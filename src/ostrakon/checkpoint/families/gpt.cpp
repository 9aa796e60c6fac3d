// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/families/families.hpp>
#include <ostrakon/checkpoint/families/keys.hpp>

namespace ostrakon::checkpoint::families {
namespace {

using model::DecoderSettings;

DecoderSettings gpt_structure() {
  DecoderSettings s;
  s.norm = math::NormKind::layernorm;
  s.positions = model::Positions::learned;
  s.bias = true;
  return s;
}

Layers gpt_layers() {
  return {{"attention.norm", {{"ln_1"}}},       {"attention.qkv", {{"attn.c_attn"}}},
          {"attention.out", {{"attn.c_proj"}}}, {"mlp.norm", {{"ln_2"}}},
          {"mlp.up", {{"mlp.c_fc"}}},           {"mlp.down", {{"mlp.c_proj"}}}};
}

Family gpt_like(const char* type, const char* title, const char* prefix) {
  Family f;
  f.model_type = type;
  f.title = title;
  f.class_prefix = prefix;
  f.structure = gpt_structure();
  f.names.prefix = "transformer.";
  f.names.token = "wte";
  f.names.position = "wpe";
  f.names.head_norm = "ln_f";
  f.names.block = "h.";
  f.names.layers = gpt_layers();
  f.keys = {keys::key("n_layer", keys::layers, 12, {"num_hidden_layers"}),
            keys::key("n_embd", keys::width, 768, {"hidden_size"}),
            keys::key("n_head", keys::heads, 12, {"num_attention_heads"}),
            keys::key("n_inner", keys::ffn_width, keys::four_widths),
            keys::key("vocab_size", keys::vocabulary, 50257),
            keys::key("tie_word_embeddings", keys::tied, true),
            keys::key("layer_norm_epsilon", keys::epsilon, 1e-5),
            keys::required("scale_attn_weights", {"true"},
                           "this program scales attention by 1 / sqrt(head width)")};
  f.positions_key = "n_positions";
  f.missing_positions = 1024;
  f.no_effect = {"attn_pdrop",
                 "embd_pdrop",
                 "hidden_dropout",
                 "n_ctx",
                 "n_special",
                 "predict_special_tokens",
                 "resid_pdrop",
                 "summary_activation",
                 "summary_first_dropout",
                 "summary_last_dropout",
                 "summary_proj_to_labels",
                 "summary_type",
                 "summary_use_proj"};
  return f;
}

Family gpt2() {
  Family f = gpt_like("gpt2", "GPT-2", "GPT2");
  f.causal_ending = "LMHeadModel";
  for (auto& layer : f.names.layers)
    if (layer.first.find("norm") == std::string::npos)
      for (TensorPart& part : layer.second) part.is_transposed = true;
  f.derive = [](DecoderSettings& s) { s.kv_heads = s.heads; };
  add(f.keys, {keys::activation("activation_function", false, "gelu_new"),
               keys::required("scale_attn_by_inverse_layer_idx", {"false"},
                              "this program scales attention alike in all layers"),
               keys::required("reorder_and_upcast_attn", {"false"},
                              "this program computes attention in the order of other models")});
  return f;
}

Family gpt_bigcode() {
  Family f = gpt_like("gpt_bigcode", "GPT-BigCode", "GPTBigCode");
  f.derive = [](DecoderSettings& s) { s.kv_heads = 1; };
  add(f.keys, {keys::activation("activation_function", false, "gelu_pytorch_tanh"),
               keys::required("multi_query", {"true"},
                              "this program reads one head of keys and values", true)});
  // These keys select fp32 for the softmax, or reserve memory for inference.
  f.no_effect.insert({"attention_softmax_in_fp32", "scale_attention_softmax_in_fp32",
                      "inference_runner", "max_batch_size", "max_sequence_length",
                      "num_key_value_heads", "pad_key_length", "pre_allocate_kv_cache",
                      "runner_max_sequence_length", "validate_runner_input"});
  return f;
}

Family starcoder2() {
  Family f = llama_like("starcoder2", "Starcoder2", "Starcoder2");
  f.structure = gpt_structure();
  f.structure.positions = model::Positions::rotary;
  f.structure.own_norm_bias = true;
  f.names.layers = without_gate(f.names.layers, "mlp.c_fc", "mlp.c_proj");
  f.keys = llama_sizes({30, 3072, 24, 12288, 49152});
  keys::Window window;
  add(f.keys, {keys::key("num_key_value_heads", keys::kv_heads, {2, keys::as_heads}),
               keys::key("head_dim", keys::head_width, keys::equal_heads),
               keys::key("tie_word_embeddings", keys::tied, true),
               keys::key("norm_epsilon", keys::epsilon, 1e-5),
               keys::alias("layer_norm_epsilon", keys::epsilon),
               keys::key("use_bias", keys::linear_bias, true),
               keys::activation("hidden_act", false, "gelu_pytorch_tanh"), keys::window(window),
               keys::rope({}),
               // transformers does not read these names in this type, but published files have
               // them.
               keys::required("activation_function",
                              {"\"gelu\"", "\"gelu_new\"", "\"gelu_pytorch_tanh\"", "\"gelu_fast\"",
                               "\"gelu_accurate\"", "\"gelu_python_tanh\""},
                              "hidden_act counts, and Starcoder2 has GELU"),
               keys::required("scale_attn_weights", {"true"},
                              "this program scales attention by 1 / sqrt(head width)"),
               keys::required("norm_type", {"\"layer_norm\""}, "Starcoder2's norm is layer_norm"),
               keys::required("mlp_type", {"\"default\""}, "Starcoder2's MLP has no gate")});
  f.no_effect.insert({"attention_softmax_in_fp32", "embedding_dropout", "residual_dropout",
                      "scale_attention_softmax_in_fp32"});
  f.missing_positions = 4096;
  add_rotary_family(f);
  return f;
}

}  // namespace

std::vector<Family> gpt() { return {gpt2(), gpt_bigcode(), starcoder2()}; }

}  // namespace ostrakon::checkpoint::families
