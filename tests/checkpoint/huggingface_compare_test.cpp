// SPDX-License-Identifier: Apache-2.0

// Decks and config.json files that differ in one number or key, and some that agree.

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <string>
#include <vector>

#include "support/messages.hpp"
#include "support/table.hpp"

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
  pair.deck.rotary.base = 500000.0;
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
  pair.deck.query_key_norm = model::QueryKeyNorm::head;
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

/// Rows "model | key of config.json | its value as JSON, or -: the key is missing | what is said".
const char* const differences = R"(
llama | num_hidden_layers | 3 | num_hidden_layers is 3, but model.layers is 2
llama | hidden_size | 96 | hidden_size is 96, but model.width is 48
llama | num_attention_heads | 8 | num_attention_heads is 8, but model.heads is 6
llama | num_key_value_heads | 3 | num_key_value_heads is 3, but model.kv_heads is 2
llama | num_key_value_heads | - | num_key_value_heads is missing (llama: 6), but model.kv_heads is 2
llama | intermediate_size | 81 | intermediate_size is 81, but model.ffn_width is 80
llama | vocab_size | 98 | vocab_size is 98, but model.vocabulary is 97
llama | tie_word_embeddings | true | tie_word_embeddings is true, but model.tie_embeddings is false
llama | rms_norm_eps | 1e-6 | rms_norm_eps is 1e-06, but model.norm_epsilon is 1e-05
llama | rms_norm_eps | - | rms_norm_eps is missing (llama: 1e-06), but model.norm_epsilon is 1e-05
llama | rope_theta | 10000.0 | rope_theta is 10000.0, but model.rotary_base is 500000.0
llama | rope_theta | - | rope_theta is missing (llama: 10000.0), but model.rotary_base is 500000.0
llama | rope_parameters | {"rope_theta": 10000} | rope_theta is 500000.0, rope_parameters.rope_theta is 10000.0
llama | head_dim | 16 | head_dim is 16, but model.head_width is 8
llama | attention_bias | true | attention_bias is true, but model.qkv_bias is false
llama | mlp_bias | true | mlp_bias is true, but model.mlp_bias is false
gpt2 | n_layer | 4 | n_layer is 4, but model.layers is 2
gpt2 | n_embd | 24 | n_embd is 24, but model.width is 48
gpt2 | n_head | 3 | n_head is 3, but model.heads is 6
gpt2 | n_head | - | n_head is missing (gpt2: 12), but model.heads is 6
gpt2 | n_inner | null | n_inner is null (192), but model.ffn_width is 80
gpt2 | n_positions | 128
    | n_positions is 128, but training.sequence_length is 64; expected model.max_positions = 128, the rows of its table
gpt2 | n_positions | 32
    | n_positions is 32, but training.sequence_length is 64; sequences can't be longer than its table of learned positions: expected a sequence_length of 32 or less, and model.max_positions = 32
gpt2 | layer_norm_epsilon | 1e-12 | layer_norm_epsilon is 1e-12, but model.norm_epsilon is 1e-05
gpt2 | tie_word_embeddings | false | tie_word_embeddings is false, but model.tie_embeddings is true
starcoder2 | norm_epsilon | 1e-3 | norm_epsilon is 0.001, but model.norm_epsilon is 1e-05
starcoder2 | tie_word_embeddings | -
    | tie_word_embeddings is missing (starcoder2: true), but model.tie_embeddings is false
mixtral | num_local_experts | 8 | num_local_experts is 8, but model.experts is 4
mixtral | num_local_experts | - | num_local_experts is missing (mixtral: 8), but model.experts is 4
mixtral | num_experts | 5 | num_experts is 5; but num_local_experts is 4; expected the same
mixtral | num_experts_per_tok | 1 | num_experts_per_tok is 1, but model.experts_per_token is 2
mixtral | intermediate_size | 81 | intermediate_size is 81, but model.expert_width is 80
mixtral | router_jitter_noise | 0.1 | adds no noise to what the router reads
mixtral | rope_theta | - | rope_theta is missing (mixtral: 1000000.0), but model.rotary_base is 500000.0
qwen3_moe | num_experts | 8 | num_experts is 8, but model.experts is 4
qwen3_moe | moe_intermediate_size | 81 | moe_intermediate_size is 81, but model.expert_width is 80
qwen3_moe | norm_topk_prob | true | norm_topk_prob is true, but model.router_normalize is false
qwen3_moe | head_dim | 10 | head_dim is 10, but model.head_width is
qwen3_moe | decoder_sparse_step | 2
    | decoder_sparse_step is 2, mlp_only_layers is missing (qwen3_moe: []), but model.expert_layers is all
qwen3_moe | mlp_only_layers | [0]
    | decoder_sparse_step is missing (qwen3_moe: 1), mlp_only_layers is [0], but model.expert_layers is all
qwen3_moe | use_sliding_window | true | this program reads Qwen3-MoE without windows
qwen3_moe | model_type | "mixtral" | query_key_norm of mixtral is false
mixtral | model_type | "llama" | experts of llama is 0, but model.experts is 4
llama | model_type | "mixtral"
    | num_local_experts is missing (mixtral: 8), but model.experts is 0
phi3 | rope_theta | 1e4 | rope_theta is 10000.0, but model.rotary_base is 500000.0
mistral | sliding_window | 63 | sliding_window is 63, but model.attention_window is 0
starcoder2 | sliding_window | 1 | sliding_window is 1, but model.attention_window is 0
phi3 | sliding_window | 32 | sliding_window is 32, but model.attention_window is 0
llama | rope_scaling | {"rope_type": "llama3", "factor": 8.0}
    | rope_scaling is {"factor":8.0,"rope_type":"llama3"}; it has no low_freq_factor, which llama3 needs
llama | rope_scaling | {"type": "linear", "factor": 4.0}
    | rope_scaling is {"factor":4.0,"type":"linear"}, but model.rotary_scaling is none
llama | rope_parameters | {"rope_type": "yarn", "rope_theta": 500000, "factor": 4}
    | rope_parameters is {"factor":4,"rope_theta":500000,"rope_type":"yarn"}, but model.rotary_scaling is none
llama | partial_rotary_factor | 0.5 | partial_rotary_factor is 0.5
llama | rope_interleaved | true | rope_interleaved is true; this program turns
llama | hidden_act | "gelu" | hidden_act is "gelu", but model.activation is swiglu
starcoder2 | hidden_act | "gelu" | hidden_act is "gelu", but model.activation is gelu
starcoder2 | use_bias | false | use_bias is false, but model.qkv_bias is true
gpt2 | activation_function | "gelu" | activation_function is "gelu", but model.activation is gelu
gpt2 | activation_function | "relu" | activation_function is "relu", but model.activation is gelu
gpt2 | scale_attn_weights | false | scale_attn_weights is false
gpt2 | scale_attn_by_inverse_layer_idx | true | scale_attn_by_inverse_layer_idx is
gpt2 | reorder_and_upcast_attn | true | reorder_and_upcast_attn is true
gpt2 | add_cross_attention | true | add_cross_attention is true
gpt_bigcode | multi_query | false | multi_query is false
mistral | layer_types | ["full_attention", "sliding_attention"]
    | layer_types is ["full_attention","sliding_attention"]
llama | model_type | "mamba" | model_type is "mamba"; this program computes
llama | model_type | "granite" | attention_multiplier is missing (granite: 1.0), but model.attention_scale is 0.0
llama | model_type | "glm4" | norm_placement of glm4 is both, but model.norm_placement is before
llama | model_type | "qwen2" | qkv_bias of qwen2 is true, but model.qkv_bias is false
llama | model_type | - | model_type is missing; this program computes
llama | architectures | ["BitnetForCausalLM"] | architectures is [
llama | quantization_config | {"bits": 4} | quantization_config is {"bits":4}
llama | logits_scaling | 8.0 | logits_scaling is 8.0; this program does not know
llama | no_rope_layers | [1, 0] | no_rope_layers is [1,0]; this program does not
gpt2 | n_hidden | 48 | n_hidden is 48; this program does not know the key
)";

const std::map<std::string, Pair (*)()> pairs = {
    {"gpt2", gpt2_pair},       {"gpt_bigcode", gpt_bigcode_pair}, {"llama", llama_pair},
    {"mistral", mistral_pair}, {"mixtral", mixtral_pair},         {"qwen3_moe", qwen3_moe_pair},
    {"phi3", phi3_pair},       {"starcoder2", starcoder2_pair}};

/// Returns the pair of a row, with its key changed.
Pair changed(const std::vector<std::string>& row) {
  Pair pair = pairs.at(row[0])();
  if (row[2] == "-")
    pair.config.erase(row[1]);
  else
    pair.config[row[1]] = Json::parse(row[2]);
  return pair;
}

TEST(HuggingFaceCompare, OneDifferenceIsRefusedByName) {
  for (const auto& [name, pair] : pairs) EXPECT_EQ(compared(pair()), "no error") << name;
  for (const std::vector<std::string>& row : testing::rows_of(differences)) {
    const std::string error = compared(changed(row));
    EXPECT_HAS(error, row[3]);
    EXPECT_HAS(error, "config.json");
  }
}

/// Changes the deck instead of the config.json.
TEST(HuggingFaceCompare, OneDifferenceOfTheDeckIsRefusedByName) {
  const auto refused = [](MakePair make, void (*change)(DecoderSettings&), const char* said) {
    Pair pair = make();
    change(pair.deck);
    const std::string error = compared(pair);
    EXPECT_HAS(error, said);
  };
  refused(
      llama_pair, [](DecoderSettings& s) { s.norm = math::NormKind::layernorm; },
      "norm of llama is rmsnorm, but model.norm is layernorm");
  refused(
      llama_pair, [](DecoderSettings& s) { s.positions = model::Positions::learned; },
      "positions of llama is rotary, but model.positions is learned");
  refused(
      llama_pair, [](DecoderSettings& s) { s.activation = model::Activation::gelu; },
      "hidden_act is \"silu\", but model.activation is gelu");
  refused(
      llama_pair, [](DecoderSettings& s) { s.bias = true; },
      "attention_bias is false, but model.qkv_bias is true");
  refused(
      gpt2_pair, [](DecoderSettings& s) { s.max_positions = 128; },
      "n_positions is 64, but model.max_positions is 128; expected the same");
  refused(
      gpt2_pair, [](DecoderSettings& s) { s.own_mlp_bias = false; },
      "mlp_bias of gpt2 is true, but model.mlp_bias is false");
  refused(
      mistral_pair, [](DecoderSettings& s) { s.bias = true; },
      "qkv_bias of mistral is false, but model.qkv_bias is true");
  refused(
      gpt2_pair, [](DecoderSettings& s) { s.kv_heads = 2; },
      "kv_heads of gpt2 is 6, but model.kv_heads is 2");
  refused(
      gpt_bigcode_pair, [](DecoderSettings& s) { s.kv_heads = 6; },
      "kv_heads of gpt_bigcode is 1, but model.kv_heads is 6");
  refused(
      starcoder2_pair, [](DecoderSettings& s) { s.rotary.base = 1e4; },
      "rope_theta is 500000.0, but model.rotary_base is 10000.0");
}

TEST(HuggingFaceCompare, AllDifferencesAreInOneMessage) {
  Pair pair = mistral_pair();
  pair.config["rms_norm_eps"] = 1e-6;
  pair.config["sliding_window"] = 8;
  pair.config["unheard_of"] = 1;
  pair.deck.rotary.base = 1e4;
  const std::string error = compared(pair);
  for (const char* said :
       {"'config.json' is not of the model that the deck describes:\n", "\n  rms_norm_eps is",
        "\n  sliding_window is 8", "\n  unheard_of is 1", "\n  rope_theta is 500000.0, but"})
    EXPECT_HAS(error, said);
}

TEST(HuggingFaceCompare, WhatChangesNothingIsAccepted) {
  // The first value is equal in fp32.
  for (const std::vector<std::string>& row : testing::rows_of(R"(
llama | rms_norm_eps | 9.999999747378752e-06
llama | rope_theta | 500000
llama | rope_scaling | {"rope_type": "default"}
llama | rope_parameters | {"rope_theta": 500000.0, "rope_type": "default"}
llama | max_position_embeddings | 16
llama | head_dim | 8
llama | head_dim | null
llama | mlp_bias | false
llama | mlp_bias | null
llama | some_new_feature | null
llama | pretraining_tp | 2
llama | eos_token_id | [1, 2]
llama | architectures | ["LlamaForCausalLM"]
llama | auto_map | {"AutoModel": "a.B"}
llama | tie_word_embeddings | -
llama | hidden_act | "swish"
llama | hidden_act | -
llama | torch_dtype | "bfloat16"
llama | dtype | "float16"
gpt2 | activation_function | "gelu_pytorch_tanh"
gpt2 | activation_function | "gelu_fast"
gpt2 | activation_function | -
gpt2 | layer_norm_epsilon | -
gpt2 | task_specific_params | {"text-generation": {"max_length": 50}}
mistral | sliding_window | null
mistral | sliding_window | 4096
mistral | sliding_window | -
starcoder2 | sliding_window | -
starcoder2 | use_bias | true
mixtral | router_jitter_noise | 0.0
mixtral | output_router_logits | true
mixtral | num_experts | 4
qwen3_moe | norm_topk_prob | false
qwen3_moe | num_local_experts | 4
qwen3_moe | intermediate_size | 999
qwen3_moe | mlp_only_layers | []
phi3 | original_max_position_embeddings | 4096
gpt_bigcode | attention_softmax_in_fp32 | true
)"))
    EXPECT_EQ(compared(changed(row)), "no error") << row[0] << " " << row[1] << " " << row[2];
  Pair shorter = gpt2_pair();
  shorter.deck.max_positions = 128;
  shorter.config["n_positions"] = 128;
  EXPECT_EQ(compared(shorter), "no error");
}

}  // namespace
}  // namespace ostrakon::checkpoint
