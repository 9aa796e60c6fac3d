// SPDX-License-Identifier: Apache-2.0

// Decks and config.json files that differ in one number or key, and some that agree.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <string>
#include <vector>

#include "support/scratch_folder.hpp"

namespace ostrakon::checkpoint {
namespace {

using Json = nlohmann::json;
using model::DecoderSettings;
using testing::error_of;

constexpr std::int64_t max_tokens = 64;

/// A deck's model, and the matching config.json.
struct Pair {
  DecoderSettings deck;
  Json config;
};

DecoderSettings base_deck() {
  DecoderSettings deck;
  deck.layers = 2;
  deck.width = 48;
  deck.heads = 6;
  deck.kv_heads = 6;
  deck.ffn_width = 80;
  deck.vocabulary = 97;
  deck.tie_embeddings = false;
  return deck;
}

Pair gpt2_pair() {
  Pair pair = {base_deck(), {}};
  pair.deck.norm = math::NormKind::layernorm;
  pair.deck.positions = model::Positions::learned;
  pair.deck.activation = model::Activation::gelu;
  pair.deck.bias = true;
  pair.deck.tie_embeddings = true;
  pair.config = {{"model_type", "gpt2"},
                 {"n_layer", 2},
                 {"n_embd", 48},
                 {"n_head", 6},
                 {"n_inner", 80},
                 {"vocab_size", 97},
                 {"n_positions", 64},
                 {"n_ctx", 1024},
                 {"attn_pdrop", 0.1},
                 {"layer_norm_epsilon", 1e-5},
                 {"activation_function", "gelu_new"}};
  return pair;
}

Pair gpt_bigcode_pair() {
  Pair pair = gpt2_pair();
  pair.deck.kv_heads = 1;
  pair.config["model_type"] = "gpt_bigcode";
  pair.config["multi_query"] = true;
  return pair;
}

Pair llama_pair() {
  Pair pair = {base_deck(), {}};
  pair.deck.kv_heads = 2;
  pair.deck.rotary_base = 500000.0;
  pair.config = {
      {"model_type", "llama"},    {"num_hidden_layers", 2},         {"hidden_size", 48},
      {"num_attention_heads", 6}, {"num_key_value_heads", 2},       {"intermediate_size", 80},
      {"vocab_size", 97},         {"max_position_embeddings", 512}, {"rms_norm_eps", 1e-5},
      {"rope_theta", 500000.0},   {"rope_scaling", nullptr},        {"tie_word_embeddings", false},
      {"hidden_act", "silu"},     {"attention_bias", false}};
  return pair;
}

Pair mistral_pair() {
  Pair pair = llama_pair();
  pair.config["model_type"] = "mistral";
  pair.config["sliding_window"] = 64;
  pair.config.erase("attention_bias");
  return pair;
}

Pair mixtral_pair() {
  Pair pair = llama_pair();
  pair.deck.experts.count = 4;
  pair.deck.experts.per_token = 2;
  pair.deck.experts.width = 80;
  pair.config["model_type"] = "mixtral";
  pair.config["num_local_experts"] = 4;
  pair.config["num_experts_per_tok"] = 2;
  pair.config["router_aux_loss_coef"] = 0.02;
  return pair;
}

Pair qwen3_moe_pair() {
  Pair pair = mixtral_pair();
  pair.deck.query_key_norm = true;
  pair.deck.experts.normalize = false;
  pair.config["model_type"] = "qwen3_moe";
  pair.config.erase("num_local_experts");
  pair.config["num_experts"] = 4;
  pair.config["moe_intermediate_size"] = 80;
  return pair;
}

Pair phi3_pair() {
  Pair pair = mistral_pair();
  pair.config["model_type"] = "phi3";
  return pair;
}

Pair starcoder2_pair() {
  Pair pair = mistral_pair();
  pair.deck.norm = math::NormKind::layernorm;
  pair.deck.activation = model::Activation::gelu;
  pair.deck.bias = true;
  pair.config["model_type"] = "starcoder2";
  pair.config["hidden_act"] = "gelu_pytorch_tanh";
  pair.config["norm_epsilon"] = 1e-5;
  pair.config.erase("rms_norm_eps");
  return pair;
}

using MakePair = Pair (*)();

/// Returns "no error", or how the two differ.
std::string compared(const Pair& pair) {
  return error_of([&] {
    require_same_model(parse_huggingface_config(pair.config.dump(), "config.json"), pair.deck,
                       max_tokens);
  });
}

/// One key of config.json that differs from the matching pair.
struct Difference {
  MakePair pair;
  const char* key;
  const char* value;  ///< JSON; null: the key is missing
  const char* said;
};

const std::vector<Difference>& differences() {
  static const std::vector<Difference> all = {
      // numbers that the deck also has
      {llama_pair, "num_hidden_layers", "3", "num_hidden_layers is 3, but model.layers is 2"},
      {llama_pair, "hidden_size", "96", "hidden_size is 96, but model.width is 48"},
      {llama_pair, "num_attention_heads", "8", "num_attention_heads is 8, but model.heads is 6"},
      {llama_pair, "num_key_value_heads", "3", "num_key_value_heads is 3, but model.kv_heads is 2"},
      {llama_pair, "num_key_value_heads", nullptr,
       "num_key_value_heads is missing (llama: 6), but model.kv_heads is 2"},
      {llama_pair, "intermediate_size", "81", "intermediate_size is 81, but model.ffn_width is 80"},
      {llama_pair, "vocab_size", "98", "vocab_size is 98, but model.vocabulary is 97"},
      {llama_pair, "tie_word_embeddings", "true",
       "tie_word_embeddings is true, but model.tie_embeddings is false"},
      {llama_pair, "rms_norm_eps", "1e-6",
       "rms_norm_eps is 1e-06, but model.norm_epsilon is 1e-05"},
      {llama_pair, "rms_norm_eps", nullptr,
       "rms_norm_eps is missing (llama: 1e-06), but model.norm_epsilon is 1e-05"},
      {llama_pair, "rope_theta", "10000.0",
       "rope_theta is 10000.0, but model.rotary_base is 500000.0"},
      {llama_pair, "rope_theta", nullptr,
       "rope_theta is missing (llama: 10000.0), but model.rotary_base is 500000.0"},
      {llama_pair, "rope_parameters", R"({"rope_theta": 10000})",
       "rope_theta is 500000.0, rope_parameters.rope_theta is 10000.0"},
      {llama_pair, "head_dim", "16", "head_dim is 16, but model.head_width is 8"},
      {llama_pair, "attention_bias", "true", "attention_bias is true, but model.bias is false"},
      {llama_pair, "mlp_bias", "true", "mlp_bias is true, but model.mlp_bias is false"},
      {gpt2_pair, "n_layer", "4", "n_layer is 4, but model.layers is 2"},
      {gpt2_pair, "n_embd", "24", "n_embd is 24, but model.width is 48"},
      {gpt2_pair, "n_head", "3", "n_head is 3, but model.heads is 6"},
      {gpt2_pair, "n_head", nullptr, "n_head is missing (gpt2: 12), but model.heads is 6"},
      {gpt2_pair, "n_inner", "null", "n_inner is null (192), but model.ffn_width is 80"},
      {gpt2_pair, "n_positions", "128",
       "n_positions is 128, but training.sequence_length is 64; to train on shorter sequences, set "
       "model.max_positions = 128"},
      {gpt2_pair, "n_positions", "32",
       "n_positions is 32, but training.sequence_length is 64; learned positions are as many as"},
      {gpt2_pair, "layer_norm_epsilon", "1e-12",
       "layer_norm_epsilon is 1e-12, but model.norm_epsilon is 1e-05"},
      {gpt2_pair, "tie_word_embeddings", "false",
       "tie_word_embeddings is false, but model.tie_embeddings is true"},
      {starcoder2_pair, "norm_epsilon", "1e-3",
       "norm_epsilon is 0.001, but model.norm_epsilon is 1e-05"},
      {starcoder2_pair, "tie_word_embeddings", nullptr,
       "tie_word_embeddings is missing (starcoder2: true), but model.tie_embeddings is false"},
      {mixtral_pair, "num_local_experts", "8", "num_local_experts is 8, but model.experts is 4"},
      {mixtral_pair, "num_local_experts", nullptr,
       "num_local_experts is missing (mixtral: 8), but model.experts is 4"},
      {mixtral_pair, "num_experts", "5", "num_experts is 5, but model.experts is 4"},
      {mixtral_pair, "num_experts_per_tok", "1",
       "num_experts_per_tok is 1, but model.experts_per_token is 2"},
      {mixtral_pair, "intermediate_size", "81",
       "intermediate_size is 81, but model.expert_width is 80"},
      {mixtral_pair, "router_jitter_noise", "0.1", "adds no noise to what the router reads"},
      {mixtral_pair, "rope_theta", nullptr,
       "rope_theta is missing (mixtral: 1000000.0), but model.rotary_base is 500000.0"},
      {qwen3_moe_pair, "num_experts", "8", "num_experts is 8, but model.experts is 4"},
      {qwen3_moe_pair, "moe_intermediate_size", "81",
       "moe_intermediate_size is 81, but model.expert_width is 80"},
      {qwen3_moe_pair, "norm_topk_prob", "true",
       "norm_topk_prob is true, but model.router_normalize is false"},
      {qwen3_moe_pair, "head_dim", "10", "head_dim is 10, but model.head_width is"},
      {qwen3_moe_pair, "decoder_sparse_step", "2",
       "all layers of this program have experts, or none has"},
      {qwen3_moe_pair, "mlp_only_layers", "[0]",
       "all layers of this program have experts, or none has"},
      {qwen3_moe_pair, "use_sliding_window", "true", "this program attends to all tokens before"},
      {qwen3_moe_pair, "model_type", "\"mixtral\"", "query_key_norm of mixtral is false"},
      {mixtral_pair, "model_type", "\"llama\"", "experts of llama is 0, but model.experts is 4"},
      {llama_pair, "model_type", "\"mixtral\"",
       "experts of mixtral is more than 0, but model.experts is 0"},
      {phi3_pair, "rope_theta", "1e4", "rope_theta is 10000.0, but model.rotary_base is 500000.0"},
      // windows
      {mistral_pair, "sliding_window", "63",
       "sliding_window is 63, but training.sequence_length is 64"},
      {starcoder2_pair, "sliding_window", "1", "sliding_window is 1, but training.sequence_length"},
      {phi3_pair, "sliding_window", "32", "sliding_window is 32, but training.sequence_length"},
      // features that Decoder does not compute
      {llama_pair, "rope_scaling", R"({"rope_type": "llama3", "factor": 8.0})",
       R"(rope_scaling is {"factor":8.0,"rope_type":"llama3"}; this program does not scale)"},
      {llama_pair, "rope_scaling", R"({"type": "linear", "factor": 4.0})",
       R"(rope_scaling is {"factor":4.0,"type":"linear"}; this program does not scale)"},
      {llama_pair, "rope_parameters", R"({"rope_type": "yarn", "rope_theta": 500000})",
       R"(rope_parameters is {"rope_theta":500000,"rope_type":"yarn"}; this program)"},
      {llama_pair, "partial_rotary_factor", "0.5", "partial_rotary_factor is 0.5; this program"},
      {llama_pair, "rope_interleaved", "true", "rope_interleaved is true; this program turns"},
      {llama_pair, "hidden_act", "\"gelu\"", "hidden_act is \"gelu\"; this program computes silu"},
      {starcoder2_pair, "hidden_act", "\"gelu\"", "hidden_act is \"gelu\"; this program computes"},
      {starcoder2_pair, "use_bias", "false", "use_bias is false; this program"},
      {gpt2_pair, "activation_function", "\"gelu\"", "activation_function is \"gelu\"; this"},
      {gpt2_pair, "activation_function", "\"relu\"", "activation_function is \"relu\"; this"},
      {gpt2_pair, "scale_attn_weights", "false", "scale_attn_weights is false; this program"},
      {gpt2_pair, "scale_attn_by_inverse_layer_idx", "true", "scale_attn_by_inverse_layer_idx is"},
      {gpt2_pair, "reorder_and_upcast_attn", "true", "reorder_and_upcast_attn is true; this"},
      {gpt2_pair, "add_cross_attention", "true", "add_cross_attention is true; this program"},
      {gpt_bigcode_pair, "multi_query", "false", "multi_query is false; this program"},
      {mistral_pair, "layer_types", R"(["full_attention", "sliding_attention"])",
       R"(layer_types is ["full_attention","sliding_attention"])"},
      // other models
      {llama_pair, "model_type", "\"gemma\"", "model_type is \"gemma\"; this program computes"},
      {llama_pair, "model_type", "\"granite\"", "model_type is \"granite\"; this program"},
      {llama_pair, "model_type", "\"smollm3\"", "model_type is \"smollm3\"; this program"},
      {llama_pair, "model_type", "\"qwen2\"", "model_type is \"qwen2\"; this program computes"},
      {llama_pair, "model_type", nullptr, "model_type is missing; this program computes"},
      {llama_pair, "architectures", R"(["BitnetForCausalLM"])", "architectures is ["},
      {llama_pair, "quantization_config", R"({"bits": 4})", "quantization_config is {\"bits\":4}"},
      // unknown keys
      {llama_pair, "logits_scaling", "8.0", "logits_scaling is 8.0; this program does not know"},
      {llama_pair, "no_rope_layers", "[1, 0]", "no_rope_layers is [1,0]; this program does not"},
      {gpt2_pair, "n_hidden", "48", "n_hidden is 48; this program does not know the key"},
  };
  return all;
}

Pair changed(const Difference& difference) {
  Pair pair = difference.pair();
  if (difference.value == nullptr)
    pair.config.erase(difference.key);
  else
    pair.config[difference.key] = Json::parse(difference.value);
  return pair;
}

TEST(HuggingFaceCompare, OneDifferenceIsRefusedByName) {
  EXPECT_GE(differences().size(), 40U);
  for (const Difference& difference : differences()) {
    EXPECT_EQ(compared(difference.pair()), "no error") << difference.said;
    const std::string error = compared(changed(difference));
    EXPECT_NE(error.find(difference.said), std::string::npos) << error << "\nwithout\n"
                                                              << difference.said;
    EXPECT_NE(error.find("config.json"), std::string::npos) << error;
  }
}

/// Changes the deck instead of the config.json.
TEST(HuggingFaceCompare, OneDifferenceOfTheDeckIsRefusedByName) {
  const auto refused = [](MakePair make, void (*change)(DecoderSettings&), const char* said) {
    Pair pair = make();
    change(pair.deck);
    const std::string error = compared(pair);
    EXPECT_NE(error.find(said), std::string::npos) << error << "\nwithout\n" << said;
  };
  refused(
      llama_pair, [](DecoderSettings& s) { s.norm = math::NormKind::layernorm; },
      "norm of llama is rmsnorm, but model.norm is layernorm");
  refused(
      llama_pair, [](DecoderSettings& s) { s.positions = model::Positions::learned; },
      "positions of llama is rotary, but model.positions is learned");
  refused(
      llama_pair, [](DecoderSettings& s) { s.activation = model::Activation::gelu; },
      "activation of llama is swiglu, but model.activation is gelu");
  refused(
      llama_pair, [](DecoderSettings& s) { s.bias = true; },
      "attention_bias is false, but model.bias is true");
  refused(
      gpt2_pair, [](DecoderSettings& s) { s.max_positions = 128; },
      "n_positions is 64, but model.max_positions is 128");
  refused(
      gpt2_pair, [](DecoderSettings& s) { s.own_mlp_bias = false; },
      "mlp_bias of gpt2 is true, but model.mlp_bias is false");
  refused(
      mistral_pair, [](DecoderSettings& s) { s.bias = true; },
      "bias of mistral is false, but model.bias is true");
  refused(
      gpt2_pair, [](DecoderSettings& s) { s.kv_heads = 2; },
      "kv_heads of gpt2 is 6, but model.kv_heads is 2");
  refused(
      gpt_bigcode_pair, [](DecoderSettings& s) { s.kv_heads = 6; },
      "kv_heads of gpt_bigcode is 1, but model.kv_heads is 6");
  refused(
      starcoder2_pair, [](DecoderSettings& s) { s.rotary_base = 1e4; },
      "rope_theta is 500000.0, but model.rotary_base is 10000.0");
}

TEST(HuggingFaceCompare, AllDifferencesAreInOneMessage) {
  Pair pair = mistral_pair();
  pair.config["rms_norm_eps"] = 1e-6;
  pair.config["sliding_window"] = 8;
  pair.config["unheard_of"] = 1;
  pair.deck.rotary_base = 1e4;
  const std::string error = compared(pair);
  for (const char* said :
       {"'config.json' is not of the model that the deck describes:\n", "\n  rms_norm_eps is",
        "\n  sliding_window is 8", "\n  unheard_of is 1", "\n  rope_theta is 500000.0, but"})
    EXPECT_NE(error.find(said), std::string::npos) << error << "\nwithout\n" << said;
}

TEST(HuggingFaceCompare, WhatChangesNothingIsAccepted) {
  const auto accepted = [](MakePair make, const char* key, const char* value) {
    EXPECT_EQ(compared(changed({make, key, value, ""})), "no error") << key << " " << value;
  };
  accepted(llama_pair, "rms_norm_eps", "9.999999747378752e-06");  // equal in fp32
  accepted(llama_pair, "rope_theta", "500000");
  accepted(llama_pair, "rope_scaling", R"({"rope_type": "default"})");
  accepted(llama_pair, "rope_parameters", R"({"rope_theta": 500000.0, "rope_type": "default"})");
  accepted(llama_pair, "max_position_embeddings", "16");
  accepted(llama_pair, "head_dim", "8");
  accepted(llama_pair, "head_dim", "null");
  accepted(llama_pair, "mlp_bias", "false");
  accepted(llama_pair, "mlp_bias", "null");
  accepted(llama_pair, "some_new_feature", "null");
  Pair shorter = gpt2_pair();
  shorter.deck.max_positions = 128;
  shorter.config["n_positions"] = 128;
  EXPECT_EQ(compared(shorter), "no error");
  accepted(llama_pair, "pretraining_tp", "2");
  accepted(llama_pair, "eos_token_id", "[1, 2]");
  accepted(llama_pair, "architectures", R"(["LlamaForCausalLM"])");
  accepted(llama_pair, "auto_map", R"({"AutoModel": "a.B"})");
  accepted(llama_pair, "tie_word_embeddings", nullptr);
  accepted(llama_pair, "hidden_act", "\"swish\"");
  accepted(llama_pair, "hidden_act", nullptr);
  accepted(llama_pair, "torch_dtype", "\"bfloat16\"");
  accepted(llama_pair, "dtype", "\"float16\"");
  accepted(gpt2_pair, "activation_function", "\"gelu_pytorch_tanh\"");
  accepted(gpt2_pair, "activation_function", "\"gelu_fast\"");
  accepted(gpt2_pair, "activation_function", nullptr);
  accepted(gpt2_pair, "layer_norm_epsilon", nullptr);
  accepted(gpt2_pair, "task_specific_params", R"({"text-generation": {"max_length": 50}})");
  accepted(mistral_pair, "sliding_window", "null");
  accepted(mistral_pair, "sliding_window", "4096");
  accepted(mistral_pair, "sliding_window", nullptr);
  accepted(starcoder2_pair, "sliding_window", nullptr);
  accepted(starcoder2_pair, "use_bias", "true");
  accepted(mixtral_pair, "router_jitter_noise", "0.0");
  accepted(mixtral_pair, "output_router_logits", "true");
  accepted(mixtral_pair, "num_experts", "4");
  accepted(qwen3_moe_pair, "norm_topk_prob", "false");
  accepted(qwen3_moe_pair, "num_local_experts", "4");
  accepted(qwen3_moe_pair, "intermediate_size", "999");
  accepted(qwen3_moe_pair, "mlp_only_layers", "[]");
  accepted(phi3_pair, "original_max_position_embeddings", "4096");
  accepted(gpt_bigcode_pair, "attention_softmax_in_fp32", "true");
}

}  // namespace
}  // namespace ostrakon::checkpoint
