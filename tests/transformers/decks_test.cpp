// SPDX-License-Identifier: Apache-2.0

// Decks and config.json files of which one says something else than the other.

#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/config/deck.hpp>
#include <string>
#include <vector>

#include "expected_model.hpp"
#include "support/messages.hpp"
#include "support/table.hpp"

namespace ostrakon::test::transformers {
namespace {

using Json = nlohmann::json;

/// Rows "model of expected/ | line of the deck's section model, or - | key of config.json and its
/// value, or - | what is said".
const char* const differences = R"(
llama | layers: 4 | - | num_hidden_layers is 3, but model.layers is 4
llama | width: 48 | - | hidden_size is 32, but model.width is 48
llama-3.1 | heads: 8 | - | num_attention_heads is 4, but model.heads is 8
llama | kv_heads: 2 | - | num_key_value_heads is 4, but model.kv_heads is 2
llama | ffn_width: 64 | - | intermediate_size is 48, but model.ffn_width is 64
llama | vocabulary: 100 | - | vocab_size is 97, but model.vocabulary is 100
llama | tie_embeddings: true | - | tie_word_embeddings is false, but model.tie_embeddings is true
llama | norm: layernorm | - | norm of llama is rmsnorm, but model.norm is layernorm
llama | norm_epsilon: 1e-6 | - | rms_norm_eps is 1e-05, but model.norm_epsilon is 1e-06
llama | norm_weight: one_plus | -
    | norm_weight of llama is plain, but model.norm_weight is one_plus
llama | norm_placement: both | -
    | norm_placement of llama is before, but model.norm_placement is both
llama | block: parallel | - | block of llama is sequential, but model.block is parallel
llama | positions: alibi | - | positions of llama is rotary, but model.positions is alibi
llama | activation: geglu | - | hidden_act is "silu", but model.activation is geglu
llama | query_key_norm: true | -
    | query_key_norm of llama is false, but model.query_key_norm is true
llama | qkv_bias: true | - | attention_bias is false, but model.qkv_bias is true
llama | out_bias: true | - | attention_bias is false, but model.out_bias is true
llama | mlp_bias: true | - | mlp_bias is false, but model.mlp_bias is true
llama | head_bias: true | - | head_bias of llama is false, but model.head_bias is true
llama | rotary_base: 500 | -
    | rope_parameters.rope_theta is 10000.0, but model.rotary_base is 500.0
llama | rotary_scaling: linear | - | rope_parameters is { .. }, but model.rotary_scaling is linear
llama | attention_window: 8 | - | attention_window of llama is 0, but model.attention_window is 8
llama | embedding_norm: true | -
    | embedding_norm of llama is false, but model.embedding_norm is true
llama-3.1 | rotary_factor: 32 | - | rope_parameters is { .. }, but model.rotary_factor is 32.0
llama-3.1 | rotary_low_factor: 2 | -
    | rope_parameters is { .. }, but model.rotary_low_factor is 2.0
llama-3.1 | rotary_high_factor: 8 | -
    | rope_parameters is { .. }, but model.rotary_high_factor is 8.0
llama-3.1 | rotary_original_length: 8 | -
    | rope_parameters is { .. }, but model.rotary_original_length is 8
llama-3.2 | head_width: 8 | - | head_dim is 12, but model.head_width is 8
llama-yarn | rotary_beta_fast: 16 | -
    | rope_parameters is { .. }, but model.rotary_beta_fast is 16.0
llama-yarn | rotary_beta_slow: 2 | -
    | rope_parameters is { .. }, but model.rotary_beta_slow is 2.0
llama-yarn | rotary_attention_factor: 1.5 | -
    | rope_parameters is { .. }, but model.rotary_attention_factor is 1.5
llama-linear | - | rope_parameters = {"rope_theta": 1e5, "rope_type": "linear", "factor": 2.0}
    | rope_parameters is { .. }, but model.rotary_factor is 4.0
mistral-window | attention_window: 16 | - | sliding_window is 8, but model.attention_window is 16
mistral-window | window_layers: every 2nd | -
    | sliding_window is 8, but model.window_layers is every 2nd
mistral-nemo | - | sliding_window = 8 | sliding_window is 8, but model.attention_window is 0
mixtral | experts: 8 | - | num_local_experts is 4, but model.experts is 8
mixtral | experts_per_token: 1 | - | num_experts_per_tok is 2, but model.experts_per_token is 1
mixtral | expert_width: 32 | - | intermediate_size is 48, but model.expert_width is 32
mixtral | - | num_experts_per_tok = 3 | num_experts_per_tok is 3, but model.experts_per_token is 2
phi3 | - | sliding_window = 16 | sliding_window is 16, but model.attention_window is 12
glm4 | rotary_share: 1 | -
    | rope_parameters.partial_rotary_factor is 0.5, but model.rotary_share is 1.0
phi4-mini | rotary_short_factors: 1, 1, 1 | -
    | rope_parameters is { .. }, but model.rotary_short_factors is [1.0,1.0,1.0]
phi4-mini | rotary_long_factors: 2, 2, 2 | -
    | rope_parameters is { .. }, but model.rotary_long_factors is [2.0,2.0,2.0]
granite | attention_scale: 0.5 | -
    | attention_multiplier is 0.25, but model.attention_scale is 0.5
granite | embedding_scale: 1 | - | embedding_multiplier is 12.0, but model.embedding_scale is 1.0
granite | residual_scale: 1 | - | residual_multiplier is 0.22, but model.residual_scale is 1.0
granite | logit_scale: 1 | - | logits_scaling is 2.0, but model.logit_scale is 1.0
smollm3 | rotary_layers: all | - | no_rope_layers is [1,1,1,0], but model.rotary_layers is all
smollm3 | - | no_rope_layers = [1, 0, 1, 0]
    | no_rope_layers is [1,0,1,0], but model.rotary_layers is first 3
arcee | activation: relu | - | hidden_act is "relu2", but model.activation is relu
seed_oss | - | attention_out_bias = true | attention_out_bias is true, but model.out_bias is false
hunyuan_v1_dense | query_key_norm: true | -
    | query_key_norm of hunyuan_v1_dense is rotated, but model.query_key_norm is true
qwen2 | qkv_bias: false | - | qkv_bias of qwen2 is true, but model.qkv_bias is false
qwen2-window | window_layers: all | -
    | layer_types is ["full_attention","sliding_attention","sliding_attention"], but model.window_layers is all
qwen2_moe | shared_gate: false | -
    | shared_gate of qwen2_moe is true, but model.shared_gate is false
glm4_moe | shared_experts: 2 | - | n_shared_experts is 1, but model.shared_experts is 2
qwen2_moe | shared_expert_width: 40 | -
    | shared_expert_intermediate_size is 24, but model.shared_expert_width is 40
qwen2_moe | router_normalize: true | -
    | norm_topk_prob is false, but model.router_normalize is true
qwen3 | query_key_norm: false | -
    | query_key_norm of qwen3 is true, but model.query_key_norm is false
qwen3_moe | expert_layers: all but first 1 | -
    | decoder_sparse_step is 1, mlp_only_layers is [], but model.expert_layers is all but first 1
qwen3_moe | - | mlp_only_layers = [1] | intermediate_size is 48, but model.ffn_width is 704
qwen3_next | attention_gate: false | -
    | attention_gate of qwen3_next is true, but model.attention_gate is false
qwen3_next | delta_key_heads: 4 | -
    | linear_num_key_heads is 2, but model.delta_key_heads is 4
qwen3_next | delta_value_heads: 2 | -
    | linear_num_value_heads is 4, but model.delta_value_heads is 2
qwen3_next | delta_key_width: 8 | - | linear_key_head_dim is 6, but model.delta_key_width is 8
qwen3_5_text | delta_value_width: 4 | -
    | linear_value_head_dim is 8, but model.delta_value_width is 4
qwen3_5_text | delta_convolution: 3 | -
    | linear_conv_kernel_dim is 4, but model.delta_convolution is 3
qwen3_5_text | delta_layers: all | -
    | layer_types is ["linear_attention","linear_attention","full_attention"], but model.delta_layers is all
gemma | norm_weight: plain | - | norm_weight of gemma is one_plus, but model.norm_weight is plain
gemma | activation: swiglu | - | activation of gemma is geglu, but model.activation is swiglu
gemma2 | attention_soft_cap: 50 | -
    | attn_logit_softcapping is 5.0, but model.attention_soft_cap is 50.0
gemma2 | logit_soft_cap: 0 | - | final_logit_softcapping is 10.0, but model.logit_soft_cap is 0.0
gemma2 | - | query_pre_attn_scalar = 12
    | query_pre_attn_scalar is 12, but model.attention_scale is 0.25
gemma3_text | window_rotary_base: 1000 | -
    | rope_parameters.sliding_attention.rope_theta is 10000.0, but model.window_rotary_base is 1000.0
gemma3_text | embedding_scale: 1 | -
    | embedding_scale of gemma3_text is 5.656854249492381, but model.embedding_scale is 1.0
olmo | clip_qkv: 8 | - | clip_qkv is 0.75, but model.clip_qkv is 8.0
olmo2 | norm_placement: before | -
    | norm_placement of olmo2 is after, but model.norm_placement is before
olmo3 | query_key_norm: true | -
    | query_key_norm of olmo3 is whole, but model.query_key_norm is true
olmoe | - | norm_topk_prob = true | norm_topk_prob is true, but model.router_normalize is false
exaone4 | rotary_layers: all | -
    | layer_types is ["sliding_attention","sliding_attention","sliding_attention","full_attention"], but model.rotary_layers is all
cohere | block: sequential | - | block of cohere is parallel, but model.block is sequential
cohere-norms | query_key_norm: true | - | use_qk_norm is true, but model.query_key_norm is true
stablelm-norms | query_key_norm_kind: rmsnorm | -
    | qk_layernorm is true, but model.query_key_norm_kind is rmsnorm
cohere2 | logit_scale: 0.0625 | - | logit_scale is 0.25, but model.logit_scale is 0.0625
glm | - | rope_parameters = {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.25}
    | rope_parameters.partial_rotary_factor is 0.25, but model.rotary_share is 0.5
glm4 | norm_placement: after | -
    | norm_placement of glm4 is both, but model.norm_placement is after
glm4_moe | router_scale: 1 | - | routed_scaling_factor is 1.5, but model.router_scale is 1.0
glm4_moe | router_balance: loss | -
    | router_balance of glm4_moe is bias, but model.router_balance is none or loss
glm4_moe | router_score: softmax | -
    | router_score of glm4_moe is sigmoid, but model.router_score is softmax
deepseek_v2 | kv_rank: 16 | - | kv_lora_rank is 24, but model.kv_rank is 16
deepseek_v2 | query_rank: 16 | - | q_lora_rank is null, but model.query_rank is 16
deepseek_v2 | router_group_score: sum_of_two | -
    | router_group_score of deepseek_v2 is max, but model.router_group_score is sum_of_two
deepseek_v3 | rotary_width: 2 | - | qk_rope_head_dim is 4, but model.rotary_width is 2
deepseek_v3 | value_width: 8 | - | v_head_dim is 6, but model.value_width is 8
deepseek_v3 | router_groups: 2 | - | n_group is 4, but model.router_groups is 2
deepseek_v3 | router_groups_per_token: 3 | -
    | topk_group is 2, but model.router_groups_per_token is 3
deepseek_v3 | latent_norm_epsilon: 1e-5 | -
    | latent_norm_epsilon of deepseek_v3 is 1e-06, but model.latent_norm_epsilon is 1e-05
gpt_oss | attention_sinks: false | -
    | attention_sinks of gpt_oss is true, but model.attention_sinks is false
gpt_oss | router_bias: false | - | router_bias of gpt_oss is true, but model.router_bias is false
gpt_oss | rotary_truncate: true | - | rope_parameters is { .. }, but model.rotary_truncate is true
gpt_neox | - | use_parallel_residual = false
    | use_parallel_residual is false, but model.block is parallel_two_norms
falcon-7b | - | bias = true | bias is true, but model.qkv_bias is false
falcon-40b | - | num_kv_heads = 4 | num_kv_heads is 4, but model.kv_heads is 2
phi | head_bias: false | - | head_bias of phi is true, but model.head_bias is false
gptj | rotary_share: 1 | - | rotary_dim is 4, but model.rotary_share is 1.0
bloom | positions: rotary | - | positions of bloom is alibi, but model.positions is rotary
mpt | positions: none | - | positions of mpt is alibi, but model.positions is none
gpt2 | max_positions: 32 | - | n_positions is 64, but model.max_positions is 32
gpt2 | positions: rotary | - | positions of gpt2 is learned, but model.positions is rotary
gpt_bigcode | kv_heads: 4 | - | kv_heads of gpt_bigcode is 1, but model.kv_heads is 4
starcoder2 | - | use_bias = false | use_bias is false, but model.qkv_bias is true
stablelm | norm_bias: false | - | norm_bias of stablelm is true, but model.norm_bias is false
nemotron | - | norm_eps = 1e-6 | norm_eps is 1e-06, but model.norm_epsilon is 1e-05
ernie4_5 | - | rope_parameters = {"rope_theta": 1e4, "rope_type": "default"}
    | rope_parameters.rope_theta is 10000.0, but model.rotary_base is 500000.0
helium | rotary_base: 500 | -
    | rope_parameters.rope_theta is 100000.0, but model.rotary_base is 500.0
nanochat | embedding_norm: false | -
    | embedding_norm of nanochat is true, but model.embedding_norm is false
)";

/// Returns settings of a deck that has all keys of a config.json, and one more line.
config::Settings settings_of(const checkpoint::HuggingFaceConfig& config, const std::string& line) {
  config::Settings settings;
  settings.model = config.model;
  settings.training.sequence_length = 24;
  if (config.model.positions == model::Positions::learned)
    settings.model.max_positions = config.positions;
  std::vector<config::Override> overrides;
  const std::size_t colon = line.find(": ");
  if (colon != std::string::npos)
    overrides = {{"model." + line.substr(0, colon), line.substr(colon + 2)}};
  return config::read_settings(config::write_deck(settings), "deck.yaml", overrides,
                               config::DeckUse::model);
}

/// Returns how a deck and a config.json differ, or "no error".
std::string difference(Json config, const std::string& line, const std::string& change) {
  const auto parsed = [](const Json& json) {
    return checkpoint::parse_huggingface_config(json.dump(), "config.json");
  };
  return testing::error_of([&] {
    const config::Settings deck = settings_of(parsed(config), line);
    const std::size_t equals = change.find(" = ");
    if (equals != std::string::npos)
      config[change.substr(0, equals)] = Json::parse(change.substr(equals + 3));
    require_same_model(parsed(config), deck.model, deck.training.sequence_length);
  });
}

TEST(Decks, OneThatDiffersFromAConfigIsRefusedByBothKeys) {
  for (const std::string& name : expected_names())
    EXPECT_EQ(difference(read_expected(name).config, "-", "-"), "no error") << name;
  const auto rows = testing::rows_of(differences);
  EXPECT_GE(rows.size(), 60U);
  for (const std::vector<std::string>& row : rows) {
    const std::string said = difference(read_expected(row[0]).config, row[1], row[2]);
    EXPECT_PRED2(testing::says, said, row[3]) << row[0] << " | " << row[1] << " | " << row[2];
  }
}

}  // namespace
}  // namespace ostrakon::test::transformers
