// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostrakon/base/text.hpp>
#include <ostrakon/checkpoint/families/families.hpp>
#include <ostrakon/checkpoint/families/keys.hpp>

namespace ostrakon::checkpoint::families {
namespace {

using model::BlockForm;
using model::DecoderSettings;

/// Families with layer norm and an MLP without a gate.
Family neox_like(const char* type, const char* title, const char* prefix) {
  Family f = llama_like(type, title, prefix);
  f.structure.norm = math::NormKind::layernorm;
  f.structure.bias = true;
  f.structure.own_norm_bias = true;
  f.structure.activation = model::Activation::gelu;
  f.derive = [](DecoderSettings& s) { s.kv_heads = s.heads; };
  return f;
}

/// Names that GPT-NeoX, Falcon and Bloom share.
Layers fused_layers(const std::string& attention) {
  return {{"attention.norm", {{"input_layernorm"}}},
          {"attention.qkv", {{attention + ".query_key_value", Rows::all, RowOrder::grouped}}},
          {"attention.out", {{attention + ".dense"}}},
          {"mlp.norm", {{"post_attention_layernorm"}}},
          {"mlp.up", {{"mlp.dense_h_to_4h"}}},
          {"mlp.down", {{"mlp.dense_4h_to_h"}}}};
}

Family gpt_neox() {
  Family f = neox_like("gpt_neox", "GPT-NeoX", "GPTNeoX");
  f.names.prefix = "gpt_neox.";
  f.names.token = "embed_in";
  f.names.head_norm = "final_layer_norm";
  f.names.head = "embed_out";
  f.names.layers = fused_layers("attention");
  f.keys = llama_sizes({44, 6144, 64, 24576, 50432});
  keys::Rope rope;
  rope.theta_name = "rotary_emb_base";
  rope.share_name = "rotary_pct";
  rope.share = 0.25;
  add(f.keys, {keys::key("tie_word_embeddings", keys::tied, false),
               keys::key("layer_norm_eps", keys::epsilon, 1e-5),
               keys::key("attention_bias", keys::attention_bias, true),
               keys::key("use_parallel_residual", keys::parallel_two_norms, true), keys::rope(rope),
               keys::activation("hidden_act", false, "gelu"), keys::no_window()});
  f.no_effect = {"hidden_dropout"};
  add_rotary_family(f);
  return f;
}

/// A key that may be missing, but not null.
Key not_null(const char* name, const char* why) {
  Key key{{name}};
  key.read = [=](ConfigReading& reading) {
    if (reading.is_there(name) && !reading.has(name)) reading.problem(name, why);
  };
  return key;
}

/// The three forms of Falcon say heads of keys and values, and norms, in several flags.
Key falcon_form() {
  constexpr const char *is_new = "new_decoder_architecture", *multi = "multi_query",
                       *kv_heads = "num_kv_heads", *parallel = "parallel_attn",
                       *norms = "num_ln_in_parallel_attn";
  Key key{{is_new, multi, kv_heads, parallel, norms}};
  key.read = [=](ConfigReading& reading) {
    const auto flag = [&](const char* name, bool missing) {
      return reading.has(name) ? reading.flag(name) : missing;
    };
    DecoderSettings& model = reading.model;
    model.kv_heads = model.heads;
    if (flag(is_new, false)) {
      if (reading.has(kv_heads)) model.kv_heads = reading.whole(kv_heads);
      const bool has_two = !reading.has(norms) || reading.whole(norms) == 2;
      model.block = has_two ? BlockForm::parallel_two_norms : BlockForm::parallel;
      reading.say("kv_heads", reading.is(kv_heads));
      reading.say("block", text(reading.is(is_new), ", ", reading.is(norms)));
      if (!flag(parallel, true))
        reading.problem(parallel, text("but ", reading.is(is_new), "; expected true"));
    } else {
      if (reading.has(norms) && reading.whole(norms) == 2)
        reading.problem(norms, text("but ", reading.is(is_new, "false"), "; expected 1"));
      if (flag(multi, true)) model.kv_heads = 1;
      model.block = flag(parallel, true) ? BlockForm::parallel : BlockForm::sequential;
      reading.say("kv_heads", reading.is(multi, "true"));
      reading.say("block", reading.is(parallel, "true"));
    }
  };
  key.write = [=](const DecoderSettings& settings, nlohmann::ordered_json& to) {
    const bool has_groups = settings.kv_heads > 1 && settings.kv_heads < settings.heads;
    const bool has_two = settings.block == BlockForm::parallel_two_norms;
    to[is_new] = has_groups || has_two;
    to[kv_heads] = settings.kv_heads;
    to[multi] = settings.kv_heads == 1;
    to[parallel] = settings.block != BlockForm::sequential;
    if (has_groups || has_two) to[norms] = has_two ? 2 : 1;
  };
  return key;
}

Family falcon() {
  Family f = neox_like("falcon", "Falcon", "Falcon");
  f.derive = nullptr;
  f.names.prefix = "transformer.";
  f.names.token = "word_embeddings";
  f.names.head_norm = "ln_f";
  f.names.block = "h.";
  f.names.layers = fused_layers("self_attention");
  f.adapt = [](const DecoderSettings& s, TensorNames& names) {
    if (s.block != BlockForm::parallel_two_norms) return;
    names.layers["attention.norm"] = {{"ln_attn"}};
    names.layers["mlp.norm"] = {{"ln_mlp"}};
  };
  f.keys = {keys::key("num_hidden_layers", keys::layers, 32, {"n_layer"}),
            keys::key("hidden_size", keys::width, 4544, {"n_embed"}),
            keys::key("num_attention_heads", keys::heads, 71, {"n_head"}),
            falcon_form(),
            keys::key("ffn_hidden_size", keys::ffn_width, keys::four_widths),
            keys::key("vocab_size", keys::vocabulary, 65024),
            keys::key("tie_word_embeddings", keys::tied, true),
            keys::key("layer_norm_epsilon", keys::epsilon, 1e-5),
            keys::key("bias", keys::linear_bias, false),
            keys::required("alibi", {"false"},
                           "Falcon scales its ALiBi slopes, and this program does not", true),
            keys::rope({}),
            keys::activation("activation", false, "gelu"),
            keys::no_window()};
  f.no_effect = {"hidden_dropout", "apply_residual_connection_post_layernorm"};
  add_rotary_family(f);
  return f;
}

/// Phi 1, 1.5 and 2.
Family phi() {
  Family f = neox_like("phi", "Phi", "Phi");
  f.derive = nullptr;
  f.structure.block = BlockForm::parallel;
  f.structure.head_bias = true;
  f.names.head_norm = "final_layernorm";
  f.names.layers = without_gate(f.names.layers, "mlp.fc1", "mlp.fc2");
  f.names.layers.erase("mlp.norm");
  f.names.layers["attention.out"] = {{"self_attn.dense"}};
  f.keys = llama_sizes({24, 2048, 32, 8192, 51200});
  keys::Rope rope;
  rope.share_name = "partial_rotary_factor";
  rope.share = 0.5;
  add(f.keys, {keys::key("num_key_value_heads", keys::kv_heads, keys::as_heads),
               keys::key("tie_word_embeddings", keys::tied, false),
               keys::key("layer_norm_eps", keys::epsilon, 1e-5), keys::rope(rope),
               keys::activation("hidden_act", false, "gelu_new"), keys::no_window(),
               keys::required("qk_layernorm", {"false"},
                              "this program has no layer norm of queries and keys")});
  add_rotary_family(f);
  return f;
}

Family gptj() {
  Family f = neox_like("gptj", "GPT-J", "GPTJ");
  f.structure.block = BlockForm::parallel;
  f.structure.own_qkv_bias = f.structure.own_out_bias = false;
  f.structure.head_bias = true;
  f.names.prefix = "transformer.";
  f.names.token = "wte";
  f.names.head_norm = "ln_f";
  f.names.block = "h.";
  f.names.pairs = RotaryPairs::neighbours;
  f.names.layers = {{"attention.norm", {{"ln_1"}}},
                    {"attention.qkv",
                     {{"attn.q_proj", Rows::queries},
                      {"attn.k_proj", Rows::keys},
                      {"attn.v_proj", Rows::values}}},
                    {"attention.out", {{"attn.out_proj"}}},
                    {"mlp.up", {{"mlp.fc_in"}}},
                    {"mlp.down", {{"mlp.fc_out"}}}};
  f.keys = {keys::key("n_layer", keys::layers, 28, {"num_hidden_layers"}),
            keys::key("n_embd", keys::width, 4096, {"hidden_size"}),
            keys::key("n_head", keys::heads, 16, {"num_attention_heads"}),
            keys::key("n_inner", keys::ffn_width, keys::four_widths),
            keys::key("vocab_size", keys::vocabulary, 50400),
            keys::key("tie_word_embeddings", keys::tied, false),
            keys::key("layer_norm_epsilon", keys::epsilon, 1e-5),
            not_null("rotary_dim", "GPT-J rotates so many elements of a head; expected a number"),
            keys::key("rotary_dim", keys::rotary_dim, 64),
            keys::activation("activation_function", false, "gelu_new"),
            keys::required("scale_attn_weights", {"true"},
                           "this program scales attention by 1 / sqrt(head width)"),
            keys::required("rotary", {"true"}, "GPT-J has rotary positions")};
  f.positions_key = "n_positions";
  f.no_effect = {"attn_pdrop",
                 "embd_pdrop",
                 "resid_pdrop",
                 "summary_activation",
                 "summary_first_dropout",
                 "summary_proj_to_labels",
                 "summary_type",
                 "summary_use_proj"};
  return f;
}

Family bloom() {
  Family f = neox_like("bloom", "BLOOM", "Bloom");
  f.derive = [](DecoderSettings& s) {
    s.kv_heads = s.heads;
    s.ffn_width = 4 * s.width;
  };
  f.structure.positions = model::Positions::alibi;
  f.structure.embedding_norm = true;
  f.names.prefix = "transformer.";
  f.names.token = "word_embeddings";
  f.names.embedding_norm = "word_embeddings_layernorm";
  f.names.head_norm = "ln_f";
  f.names.block = "h.";
  f.names.layers = fused_layers("self_attention");
  f.keys = {keys::key("n_layer", keys::layers, 2, {"num_hidden_layers"}),
            keys::key("hidden_size", keys::width, 64, {"n_embed"}),
            keys::key("n_head", keys::heads, 8, {"num_attention_heads"}),
            keys::key("vocab_size", keys::vocabulary, 250880),
            keys::key("tie_word_embeddings", keys::tied, true),
            keys::key("layer_norm_epsilon", keys::epsilon, 1e-5),
            keys::required("apply_residual_connection_post_layernorm", {"false"},
                           "this program adds to what norms take"),
            keys::required("skip_bias_add_qkv", {"false"}, "Bloom has biases")};
  // These keys select kernels, or are of the program that trained Bloom.
  f.no_effect = {"attention_softmax_in_fp32",
                 "bias_dropout_fusion",
                 "hidden_dropout",
                 "masked_softmax_fusion",
                 "n_inner",
                 "offset_alibi",
                 "pretraining_tp",
                 "skip_bias_add",
                 "slow_but_exact",
                 "unk_token_id"};
  f.positions_key = "seq_length";
  return f;
}

/// attn_config of MPT, an object.
Key mpt_attention() {
  constexpr const char* name = "attn_config";
  Key key{{name}};
  key.read = [=](ConfigReading& reading) {
    const nlohmann::json none = nlohmann::json::object();
    const nlohmann::json& object = reading.has(name) ? reading.at(name) : none;
    if (!object.is_object()) reading.refuse(name, "expected an object");
    const std::pair<const char*, const char*> expected[] = {
        {"alibi", "true"},
        {"alibi_bias_max", "8"},
        {"attn_type", "\"multihead_attention\""},
        {"qk_ln", "false"},
        {"prefix_lm", "false"},
        {"softmax_scale", "null"},
        {"attn_uses_sequence_id", "false"}};
    for (const auto& [part, value] : expected)
      if (object.contains(part) && object[part] != nlohmann::json::parse(value))
        reading.problem(name, text("expected ", part, " ", value));
    const bool clips = object.contains("clip_qkv") && !object["clip_qkv"].is_null();
    if (clips && !object["clip_qkv"].is_number())
      reading.refuse(name, "expected a number as its clip_qkv");
    reading.model.clip_qkv = clips ? object["clip_qkv"].get<double>() : 0.0;
    reading.say("clip_qkv", reading.is(name));
  };
  key.write = [=](const DecoderSettings& settings, nlohmann::ordered_json& to) {
    to[name] = {{"alibi", true}, {"attn_type", "multihead_attention"}};
    if (settings.clip_qkv > 0.0) to[name]["clip_qkv"] = settings.clip_qkv;
  };
  return key;
}

/// The width of MPT's MLP. transformers has that of a ratio of 4 alone; MPT's own program has any.
Key mpt_ratio() {
  constexpr const char* name = "expansion_ratio";
  Key key = keys::key(name, keys::ffn_ratio, 4);
  const auto read = key.read;
  key.read = [=](ConfigReading& reading) {
    const auto width = static_cast<double>(reading.model.width);
    const double columns = reading.has(name) ? reading.number(name) * width : width;
    if (!(columns >= 1.0 && columns < 1e9 && columns == std::floor(columns)))
      reading.refuse(name, text("expected a number by which d_model = ", reading.model.width,
                                " becomes a whole number of columns"));
    read(reading);
  };
  return key;
}

Family mpt() {
  Family f = neox_like("mpt", "MPT", "Mpt");
  f.other_classes = {"MPTForCausalLM"};
  f.derive = [](DecoderSettings& s) { s.kv_heads = s.heads; };
  f.structure.positions = model::Positions::alibi;
  f.structure.bias = false;
  f.structure.own_norm_bias = false;
  f.structure.activation = model::Activation::gelu_exact;
  f.names.prefix = "transformer.";
  f.names.token = "wte";
  f.names.head_norm = "norm_f";
  f.names.block = "blocks.";
  f.names.layers = {{"attention.norm", {{"norm_1"}}},       {"attention.qkv", {{"attn.Wqkv"}}},
                    {"attention.out", {{"attn.out_proj"}}}, {"mlp.norm", {{"norm_2"}}},
                    {"mlp.up", {{"ffn.up_proj"}}},          {"mlp.down", {{"ffn.down_proj"}}}};
  const char* const why = "MPT has this value alone in transformers";
  f.keys = {keys::key("n_layers", keys::layers, 24, {"num_hidden_layers"}),
            keys::key("d_model", keys::width, 2048, {"hidden_size"}),
            keys::key("n_heads", keys::heads, 16, {"num_attention_heads"}),
            keys::key("vocab_size", keys::vocabulary, 50368),
            keys::key("tie_word_embeddings", keys::tied, true),
            keys::key("layer_norm_epsilon", keys::epsilon, 1e-5),
            mpt_ratio(),
            mpt_attention(),
            keys::required("no_bias", {"true"}, why),
            keys::required("logit_scale", {"null"}, why),
            keys::required("embedding_fraction", {"1.0"}, why),
            keys::required("norm_type", {"\"low_precision_layernorm\""}, why)};
  f.positions_key = "max_seq_len";
  f.no_effect = {"emb_pdrop",   "init_config",    "init_device", "learned_pos_emb",
                 "resid_pdrop", "tokenizer_name", "verbose",     "attn_pdrop"};
  return f;
}

}  // namespace

std::vector<Family> neox() { return {gpt_neox(), falcon(), phi(), gptj(), bloom(), mpt()}; }

}  // namespace ostrakon::checkpoint::families
