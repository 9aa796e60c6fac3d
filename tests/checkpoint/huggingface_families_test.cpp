// SPDX-License-Identifier: Apache-2.0

// What the config.json of published models say, and what is refused of them.

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <ostrakon/checkpoint/families/model_settings.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/config/keys.hpp>
#include <set>
#include <string>
#include <vector>

#include "support/messages.hpp"
#include "support/scratch_folder.hpp"
#include "support/table.hpp"

namespace ostrakon::checkpoint {
namespace {

using Json = nlohmann::json;
using model::DecoderSettings;
using ostrakon::testing::error_of;
using ostrakon::testing::rows_of;

constexpr std::int64_t any_length = std::numeric_limits<std::int64_t>::max();

/// Rows "model | config.json | its settings, besides sizes, that are not those of a plain Llama
/// with tied embeddings".
const char* const published_files = R"(
Llama-3.1-8B | {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "attention_bias": false,
      "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
      "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false,
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1,
      "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
      "rope_theta": 500000.0, "tie_word_embeddings": false, "vocab_size": 128256}
    | tie_embeddings false; rotary_base 500000.0; rotary_scaling llama3; rotary_factor 8.0; rotary_original_length 8192
Llama-3.2-1B | {"model_type": "llama", "head_dim": 64, "hidden_size": 2048, "num_attention_heads": 32,
      "num_hidden_layers": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
      "rope_scaling": {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
      "tie_word_embeddings": true}
    | rotary_base 500000.0; rotary_scaling llama3; rotary_factor 32.0; rotary_original_length 8192
Mistral-7B-v0.1 | {"model_type": "mistral", "hidden_act": "silu", "hidden_size": 4096,
      "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
      "sliding_window": 4096, "tie_word_embeddings": false, "vocab_size": 32000}
    | tie_embeddings false; attention_window 4096
Qwen2.5-7B | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
      "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
      "max_position_embeddings": 131072, "max_window_layers": 28, "num_attention_heads": 28,
      "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
      "sliding_window": 131072, "tie_word_embeddings": false, "use_mrope": false,
      "use_sliding_window": false, "vocab_size": 152064}
    | tie_embeddings false; norm_epsilon 1e-06; qkv_bias true; rotary_base 1000000.0
Qwen2-7B with its window | {"model_type": "qwen2", "num_hidden_layers": 28, "max_window_layers": 21,
      "sliding_window": 4096, "use_sliding_window": true, "rope_theta": 1000000.0}
    | tie_embeddings false; norm_epsilon 1e-06; qkv_bias true; attention_window 4096; window_layers all but first 21; rotary_base 1000000.0
Qwen2.5 with YaRN | {"model_type": "qwen2", "rope_theta": 1000000.0, "tie_word_embeddings": true,
      "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}}
    | norm_epsilon 1e-06; qkv_bias true; rotary_base 1000000.0; rotary_scaling yarn; rotary_factor 4.0; rotary_original_length 32768
Qwen3 with some dense layers | {"model_type": "qwen3_moe", "num_hidden_layers": 4, "decoder_sparse_step": 2,
      "tie_word_embeddings": true} | norm_epsilon 1e-06; query_key_norm true; expert_layers every 2nd; router_normalize false
Phi-3.5 in small | {"model_type": "phi3", "hidden_size": 32, "num_attention_heads": 4,
      "max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
      "partial_rotary_factor": 0.5, "tie_word_embeddings": true, "sliding_window": 262144,
      "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.25], "long_factor": [2.0, 4]}}
    | attention_window 262144; rotary_share 0.5; rotary_scaling longrope; rotary_factor 32.0; rotary_original_length 4096; rotary_short_factors [1.0,1.25]; rotary_long_factors [2.0,4.0]
gemma-2b | {"model_type": "gemma", "architectures": ["GemmaForCausalLM"], "attention_bias": false,
      "head_dim": 256, "hidden_act": "gelu", "hidden_size": 2048, "intermediate_size": 16384,
      "max_position_embeddings": 8192, "num_attention_heads": 8, "num_hidden_layers": 18,
      "num_key_value_heads": 1, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000.0,
      "vocab_size": 256000}
    | norm_weight one_plus; norm_epsilon 1e-06; activation geglu; embedding_scale 45.254833995939045
gemma-2-2b | {"model_type": "gemma2", "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid",
      "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
      "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "num_attention_heads": 8,
      "num_hidden_layers": 26, "num_key_value_heads": 4, "query_pre_attn_scalar": 256,
      "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096}
    | norm_weight one_plus; norm_placement both; norm_epsilon 1e-06; activation geglu; attention_soft_cap 50.0; attention_window 4096; window_layers all but every 2nd; embedding_scale 48.0; logit_soft_cap 30.0
gemma-2-27b | {"model_type": "gemma2", "head_dim": 128, "hidden_size": 4608, "num_attention_heads": 32,
      "num_hidden_layers": 46, "query_pre_attn_scalar": 144, "attn_logit_softcapping": null,
      "final_logit_softcapping": null, "sliding_window": null}
    | norm_weight one_plus; norm_placement both; norm_epsilon 1e-06; activation geglu; attention_scale 0.08333333333333333; embedding_scale 67.88225099390856
gemma-3-1b | {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"],
      "attn_logit_softcapping": null, "cache_implementation": "hybrid", "final_logit_softcapping": null,
      "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
      "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
      "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
      "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6}
    | norm_weight one_plus; norm_placement both; norm_epsilon 1e-06; activation geglu; query_key_norm true; attention_window 512; window_layers all but every 6th; rotary_base 1000000.0; window_rotary_base 10000.0; embedding_scale 33.94112549695428
gemma3_text of version 5 | {"model_type": "gemma3_text", "num_hidden_layers": 2, "hidden_size": 4,
      "layer_types": ["full_attention", "sliding_attention"], "rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}
    | norm_weight one_plus; norm_placement both; norm_epsilon 1e-06; activation geglu; query_key_norm true; attention_window 4096; window_layers all but first 1; rotary_base 1000000.0; window_rotary_base 10000.0; rotary_scaling linear; rotary_factor 8.0; embedding_scale 2.0
OLMo-1.7-7B | {"model_type": "olmo", "clip_qkv": 8.0, "rope_theta": 10000.0, "tie_word_embeddings": false}
    | tie_embeddings false; norm layernorm; norm_weight none; clip_qkv 8.0
OLMo-2-7B | {"model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"], "attention_bias": false,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-06, "rope_theta": 500000,
      "tie_word_embeddings": false} | tie_embeddings false; norm_placement after; norm_epsilon 1e-06; query_key_norm whole; rotary_base 500000.0
Olmo-3-7B in small | {"model_type": "olmo3", "num_hidden_layers": 4, "rms_norm_eps": 1e-06,
      "rope_theta": 500000, "sliding_window": 4096, "layer_types": ["sliding_attention",
      "sliding_attention", "sliding_attention", "full_attention"], "rope_scaling": {
      "attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0,
      "original_max_position_embeddings": 8192, "rope_type": "yarn"}}
    | tie_embeddings false; norm_placement after; norm_epsilon 1e-06; query_key_norm whole; attention_window 4096; window_layers first 3; rotary_base 500000.0; window_rotary_base 500000.0; rotary_scaling yarn; rotary_factor 8.0; rotary_original_length 8192; rotary_attention_factor 1.2079441541679836
OLMoE-1B-7B | {"model_type": "olmoe", "clip_qkv": null, "norm_topk_prob": false, "num_experts": 64,
      "num_experts_per_tok": 8, "output_router_logits": false, "router_aux_loss_coef": 0.01}
    | tie_embeddings false; query_key_norm whole; router_normalize false
granite-3.1-2b | {"model_type": "granite", "attention_multiplier": 0.015625, "embedding_multiplier": 12.0,
      "logits_scaling": 8.0, "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "hidden_size": 2048,
      "num_attention_heads": 32, "num_key_value_heads": 8, "rope_theta": 5000000.0,
      "tie_word_embeddings": true} | attention_scale 0.015625; rotary_base 5000000.0; embedding_scale 12.0; residual_scale 0.22; logit_scale 0.125
SmolLM3-3B | {"model_type": "smollm3", "max_window_layers": 28, "no_rope_layer_interval": 4,
      "num_hidden_layers": 36, "rms_norm_eps": 1e-06, "rope_theta": 5000000.0, "sliding_window": null,
      "use_sliding_window": false} | norm_epsilon 1e-06; rotary_base 5000000.0; rotary_layers all but every 4th
SmolLM3 with a list | {"model_type": "smollm3", "num_hidden_layers": 4, "no_rope_layers": [1, 0, 1, 1],
      "use_sliding_window": true, "sliding_window": 16, "rope_theta": 10000.0}
    | norm_epsilon 1e-06; attention_window 16; window_layers 1; rotary_layers 0, 2-3
stablelm-2-1_6b | {"model_type": "stablelm", "layer_norm_eps": 1e-05, "partial_rotary_factor": 0.25,
      "use_qkv_bias": true, "qk_layernorm": false, "use_parallel_residual": false, "rope_theta": 10000}
    | tie_embeddings false; norm layernorm; qkv_bias true; norm_bias true; rotary_share 0.25
stablelm-2-12b | {"model_type": "stablelm", "hidden_size": 5120, "layer_norm_eps": 1e-05,
      "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
      "partial_rotary_factor": 0.25, "qk_layernorm": true, "rope_theta": 10000, "use_qkv_bias": false,
      "use_parallel_residual": true, "vocab_size": 100352}
    | tie_embeddings false; norm layernorm; block parallel; query_key_norm each_head; query_key_norm_kind layernorm; norm_bias true; rotary_share 0.25
phi-2 | {"model_type": "phi", "hidden_act": "gelu_new", "layer_norm_eps": 1e-05,
      "partial_rotary_factor": 0.4, "qk_layernorm": false, "resid_pdrop": 0.1}
    | tie_embeddings false; norm layernorm; block parallel; activation gelu; qkv_bias true; out_bias true; mlp_bias true; norm_bias true; head_bias true; rotary_share 0.4
pythia-410m | {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_act": "gelu",
      "layer_norm_eps": 1e-05, "rotary_emb_base": 10000, "rotary_pct": 0.25,
      "tie_word_embeddings": false, "use_parallel_residual": true}
    | tie_embeddings false; norm layernorm; block parallel_two_norms; activation gelu_exact; qkv_bias true; out_bias true; mlp_bias true; norm_bias true; rotary_share 0.25
falcon-7b | {"model_type": "falcon", "alibi": false, "apply_residual_connection_post_layernorm": false,
      "bias": false, "hidden_size": 4544, "layer_norm_epsilon": 1e-05, "multi_query": true,
      "new_decoder_architecture": false, "num_attention_heads": 71, "parallel_attn": true}
    | norm layernorm; block parallel; activation gelu_exact; norm_bias true
falcon-40b | {"model_type": "falcon", "new_decoder_architecture": true, "num_kv_heads": 8,
      "num_attention_heads": 128, "hidden_size": 8192}
    | norm layernorm; block parallel_two_norms; activation gelu_exact; norm_bias true
falcon-11b | {"model_type": "falcon", "new_decoder_architecture": true, "num_kv_heads": 8,
      "num_attention_heads": 32, "hidden_size": 4096, "num_ln_in_parallel_attn": 1}
    | norm layernorm; block parallel; activation gelu_exact; norm_bias true
gpt-j-6b | {"model_type": "gptj", "activation_function": "gelu_new", "rotary": true, "rotary_dim": 64,
      "scale_attn_weights": true, "tie_word_embeddings": false}
    | tie_embeddings false; norm layernorm; block parallel; activation gelu; mlp_bias true; norm_bias true; head_bias true; rotary_share 0.25
bloom-560m | {"model_type": "bloom", "attention_softmax_in_fp32": true, "n_embed": 1024, "n_layer": 24,
      "num_attention_heads": 16, "offset_alibi": 100, "skip_bias_add_qkv": false, "seq_length": 2048}
    | norm layernorm; positions alibi; activation gelu; qkv_bias true; out_bias true; mlp_bias true; norm_bias true; embedding_norm true
mpt-7b | {"model_type": "mpt", "architectures": ["MPTForCausalLM"], "attn_config": {"alibi": true,
      "alibi_bias_max": 8, "attn_impl": "torch", "attn_pdrop": 0, "attn_type": "multihead_attention",
      "attn_uses_sequence_id": false, "clip_qkv": 6, "prefix_lm": false, "qk_ln": false,
      "softmax_scale": null}, "d_model": 4096, "n_heads": 32, "n_layers": 32, "no_bias": true,
      "norm_type": "low_precision_layernorm", "expansion_ratio": 4}
    | norm layernorm; positions alibi; activation gelu_exact; clip_qkv 6.0
command-r-v01 | {"model_type": "cohere", "logit_scale": 0.0625, "rope_theta": 8000000.0, "use_qk_norm": false}
    | norm layernorm; block parallel; rotary_base 8000000.0; logit_scale 0.0625
command-r-plus | {"model_type": "cohere", "hidden_size": 12288, "intermediate_size": 33792,
      "logit_scale": 0.8333333333333334, "num_attention_heads": 96, "num_hidden_layers": 64,
      "num_key_value_heads": 8, "rope_theta": 75000000.0, "use_qk_norm": true}
    | norm layernorm; block parallel; query_key_norm each_head; query_key_norm_kind layernorm; rotary_base 75000000.0; logit_scale 0.8333333333333334
command-r7b | {"model_type": "cohere2", "head_dim": 128, "hidden_size": 4096, "layer_switch": 4,
      "logit_scale": 0.25, "num_attention_heads": 32, "num_hidden_layers": 32,
      "order_of_interleaved_layers": "local_attn_first", "position_embedding_type": "rope_gptj",
      "rope_theta": 50000, "rotary_pct": 1.0, "sliding_window": 4096, "sliding_window_pattern": 4}
    | norm layernorm; block parallel; attention_window 4096; window_layers all but every 4th; rotary_base 50000.0; rotary_layers all but every 4th; logit_scale 0.25
Minitron-4B | {"model_type": "nemotron", "hidden_act": "relu2", "norm_eps": 1e-05,
      "partial_rotary_factor": 0.5, "rope_theta": 10000}
    | tie_embeddings false; norm layernorm; norm_weight one_plus; activation relu_squared; norm_bias true; rotary_share 0.5
EXAONE-4.0-1.2B | {"model_type": "exaone4", "rope_theta": 1000000, "sliding_window": null,
      "tie_word_embeddings": true} | norm_placement after; query_key_norm true; rotary_base 1000000.0
EXAONE-4.0-32B in small | {"model_type": "exaone4", "num_hidden_layers": 4, "rope_theta": 1000000,
      "sliding_window": 4096, "sliding_window_pattern": "LLLG", "layer_types": ["sliding_attention",
      "sliding_attention", "sliding_attention", "full_attention"]}
    | tie_embeddings false; norm_placement after; query_key_norm true; attention_window 4096; window_layers first 3; rotary_base 1000000.0; rotary_layers first 3
glm-4-9b-hf | {"model_type": "glm", "attention_bias": true, "rms_norm_eps": 1.5625e-07,
      "partial_rotary_factor": 0.5} | tie_embeddings false; norm_epsilon 1.5625e-07; qkv_bias true; rotary_share 0.5
GLM-4-9B-0414 | {"model_type": "glm4", "attention_bias": true, "rms_norm_eps": 1e-05}
    | tie_embeddings false; norm_placement both; qkv_bias true; rotary_share 0.5
GLM-4.5-Air | {"model_type": "glm4_moe", "attention_bias": true, "first_k_dense_replace": 1, "n_group": 1,
      "n_routed_experts": 128, "n_shared_experts": 1, "norm_topk_prob": true,
      "num_nextn_predict_layers": 1, "partial_rotary_factor": 0.5, "rope_theta": 1000000,
      "routed_scaling_factor": 1.0, "topk_group": 1, "use_qk_norm": false}
    | tie_embeddings false; qkv_bias true; expert_layers all but first 1; shared_experts 1; router_score sigmoid; router_balance bias; rotary_base 1000000.0; rotary_share 0.5
Seed-OSS-36B | {"model_type": "seed_oss", "attention_bias": true, "attention_out_bias": false,
      "mlp_bias": false, "residual_dropout": 0.1, "rope_theta": 10000000.0}
    | tie_embeddings false; norm_epsilon 1e-06; qkv_bias true; rotary_base 10000000.0
AFM-4.5B | {"model_type": "arcee", "hidden_act": "relu2", "rope_theta": 10000.0}
    | tie_embeddings false; activation relu_squared
ERNIE-4.5-0.3B | {"model_type": "ernie4_5", "use_bias": false, "rope_theta": 500000.0} | rotary_base 500000.0
helium-1-2b | {"model_type": "helium", "rms_norm_eps": 1e-08, "rope_theta": 20000.0}
    | tie_embeddings false; norm_epsilon 1e-08; rotary_base 20000.0
Hunyuan-0.5B | {"model_type": "hunyuan_v1_dense", "head_dim": 4, "use_qk_norm": true, "rope_theta": 10000.0,
      "rope_scaling": {"alpha": 100.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
      "mscale_all_dim": 1.0, "type": "dynamic"}, "tie_word_embeddings": true}
    | query_key_norm rotated; rotary_base 100000000.0
nanochat-d20 | {"model_type": "nanochat", "final_logit_softcapping": 15.0, "hidden_act": "relu2"}
    | tie_embeddings false; norm_weight none; norm_epsilon 1e-06; activation relu_squared; query_key_norm rotated; embedding_norm true; logit_soft_cap 15.0
DeepSeek-V2-Lite | {"model_type": "deepseek_v2", "architectures": ["DeepseekV2ForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "auto_map": {"AutoConfig":
      "configuration_deepseek.DeepseekV2Config"}, "aux_loss_alpha": 0.001, "bos_token_id": 100000,
      "eos_token_id": 100001, "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048,
      "initializer_range": 0.02, "intermediate_size": 10944, "kv_lora_rank": 512,
      "max_position_embeddings": 163840, "moe_intermediate_size": 1408, "moe_layer_freq": 1,
      "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
      "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
      "num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": null, "qk_nope_head_dim": 128,
      "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1,
      "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096,
      "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax",
      "seq_aux": true, "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy",
      "v_head_dim": 128, "vocab_size": 102400}
    | kv_rank 512; rotary_width 64; value_width 128; tie_embeddings false; norm_epsilon 1e-06; attention_scale 0.11472138679292612; expert_layers all but first 1; shared_experts 2; router_normalize false; rotary_scaling yarn; rotary_factor 40.0; rotary_original_length 4096; rotary_attention_factor 1.0
DeepSeek-V2 | {"model_type": "deepseek_v2", "hidden_size": 5120, "n_group": 8, "n_routed_experts": 160,
      "num_attention_heads": 128, "num_experts_per_tok": 6, "num_hidden_layers": 60,
      "num_key_value_heads": 128, "q_lora_rank": 1536, "first_k_dense_replace": 1,
      "routed_scaling_factor": 16.0, "topk_group": 3, "topk_method": "group_limited_greedy"}
    | kv_rank 512; query_rank 1536; rotary_width 64; value_width 128; tie_embeddings false; norm_epsilon 1e-06; expert_layers all but first 1; shared_experts 2; router_normalize false; router_scale 16.0; router_groups 8; router_groups_per_token 3; router_group_score max
DeepSeek-V3 | {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "aux_loss_alpha": 0.001, "bos_token_id": 0,
      "eos_token_id": 1, "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu",
      "hidden_size": 7168, "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512,
      "max_position_embeddings": 163840, "moe_intermediate_size": 2048, "moe_layer_freq": 1,
      "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
      "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
      "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "pretraining_tp": 1,
      "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "quantization_config":
      {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
      "weight_block_size": [128, 128]}, "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32,
      "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
      "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "seq_aux": true,
      "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc", "v_head_dim": 128,
      "vocab_size": 129280}
    | kv_rank 512; query_rank 1536; rotary_width 64; value_width 128; tie_embeddings false; norm_epsilon 1e-06; attention_scale 0.1352337788608801; expert_layers all but first 3; shared_experts 1; router_score sigmoid; router_scale 2.5; router_groups 8; router_groups_per_token 4; router_balance bias; rotary_scaling yarn; rotary_factor 40.0; rotary_original_length 4096; rotary_attention_factor 1.0
DeepSeek-V3 as transformers writes it | {"model_type": "deepseek_v3", "head_dim": 64, "qk_head_dim": 192,
      "rope_interleave": true, "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0,
      "factor": 40.0, "mscale_all_dim": 0.5, "original_max_position_embeddings": 4096}}
    | kv_rank 512; query_rank 1536; rotary_width 64; value_width 128; tie_embeddings false; norm_epsilon 1e-06; attention_scale 0.10124612961325219; expert_layers all but first 3; shared_experts 1; router_score sigmoid; router_scale 2.5; router_groups 8; router_groups_per_token 4; router_balance bias; rotary_scaling yarn; rotary_factor 40.0; rotary_original_length 4096
Kimi-K2 | {"model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"], "aux_loss_alpha": 0.001,
      "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "ep_size": 1,
      "first_k_dense_replace": 1, "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
      "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 384,
      "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 64,
      "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 64,
      "num_nextn_predict_layers": 0, "pretraining_tp": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
      "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 1.0,
      "beta_slow": 1.0, "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 50000.0,
      "routed_scaling_factor": 2.827, "scoring_func": "sigmoid", "seq_aux": true, "topk_group": 1,
      "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 163840}
    | kv_rank 512; query_rank 1536; rotary_width 64; value_width 128; tie_embeddings false; norm_epsilon 1e-06; attention_scale 0.13086079996295008; expert_layers all but first 1; shared_experts 1; router_score sigmoid; router_scale 2.827; router_balance bias; rotary_base 50000.0; rotary_scaling yarn; rotary_factor 32.0; rotary_original_length 4096; rotary_beta_fast 1.0; rotary_attention_factor 1.0
gpt-oss-20b | {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "attention_bias": true,
      "attention_dropout": 0.0, "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64,
      "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
      "initializer_range": 0.02, "intermediate_size": 2880, "layer_types": ["sliding_attention",
      "full_attention", "sliding_attention", "full_attention"], "max_position_embeddings": 131072,
      "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 4,
      "num_key_value_heads": 8, "num_local_experts": 32, "output_router_logits": false,
      "pad_token_id": 199999, "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn",
      "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"},
      "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
      "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false},
      "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0,
      "tie_word_embeddings": false, "use_cache": true, "vocab_size": 201088}
    | tie_embeddings false; activation swiglu_clamped; qkv_bias true; out_bias true; mlp_bias true; attention_window 128; window_layers all but every 2nd; attention_sinks true; router_bias true; rotary_base 150000.0; rotary_scaling yarn; rotary_factor 32.0; rotary_original_length 4096; rotary_truncate false
gpt-oss without scaling | {"model_type": "gpt_oss", "rope_parameters": {"rope_type": "default"}}
    | tie_embeddings false; activation swiglu_clamped; qkv_bias true; out_bias true; mlp_bias true; attention_window 128; window_layers all but every 2nd; attention_sinks true; router_bias true; rotary_base 150000.0
Qwen3-Next-80B-A3B | {"model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643, "decoder_sparse_step": 1,
      "eos_token_id": 151645, "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu",
      "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5120, "linear_conv_kernel_dim": 4,
      "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
      "linear_value_head_dim": 128, "max_position_embeddings": 262144, "mlp_only_layers": [],
      "moe_intermediate_size": 512, "norm_topk_prob": true, "num_attention_heads": 16, "num_experts": 512,
      "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2,
      "output_router_logits": false, "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06,
      "rope_scaling": null, "rope_theta": 10000000, "router_aux_loss_coef": 0.001,
      "shared_expert_intermediate_size": 512, "tie_word_embeddings": false, "use_cache": true,
      "use_sliding_window": false, "vocab_size": 151936}
    | tie_embeddings false; norm_weight one_plus; norm_epsilon 1e-06; query_key_norm true; attention_gate true; delta_key_heads 16; delta_value_heads 32; delta_layers all but every 4th; shared_experts 1; shared_gate true; rotary_base 10000000.0; rotary_share 0.25
Qwen3-Next with a list of layers | {"model_type": "qwen3_next", "num_hidden_layers": 3, "linear_key_head_dim": 64,
      "linear_value_head_dim": 96, "linear_conv_kernel_dim": 3, "layer_types": ["full_attention",
      "linear_attention", "full_attention"]}
    | tie_embeddings false; norm_weight one_plus; norm_epsilon 1e-06; query_key_norm true; attention_gate true; delta_key_heads 16; delta_value_heads 32; delta_key_width 64; delta_value_width 96; delta_convolution 3; delta_layers every 2nd; shared_experts 1; shared_gate true; rotary_share 0.25
text_config of Qwen3.5-27B, with 8 of its 64 layers | {"model_type": "qwen3_5_text",
      "attention_bias": false, "attention_dropout": 0.0, "attn_output_gate": true, "bos_token_id": 248044,
      "dtype": "bfloat16", "eos_token_id": 248044, "full_attention_interval": 4, "head_dim": 256,
      "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 17408,
      "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention",
      "linear_attention", "linear_attention", "linear_attention", "full_attention"],
      "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
      "linear_num_value_heads": 48, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
      "max_position_embeddings": 262144, "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false,
      "num_attention_heads": 24, "num_hidden_layers": 8, "num_key_value_heads": 4,
      "output_gate_type": "swish", "pad_token_id": null, "partial_rotary_factor": 0.25,
      "rms_norm_eps": 1e-06, "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10],
      "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type": "default"},
      "tie_word_embeddings": false, "use_cache": true, "vocab_size": 248320}
    | tie_embeddings false; norm_weight one_plus; norm_epsilon 1e-06; query_key_norm true; attention_gate true; delta_key_heads 16; delta_value_heads 48; delta_layers all but every 4th; rotary_base 10000000.0; rotary_share 0.25
Qwen1.5-MoE-A2.7B | {"model_type": "qwen2_moe", "architectures": ["Qwen2MoeForCausalLM"],
      "attention_dropout": 0.0, "decoder_sparse_step": 1, "hidden_act": "silu", "hidden_size": 2048,
      "intermediate_size": 5632, "max_position_embeddings": 8192, "max_window_layers": 21,
      "moe_intermediate_size": 1408, "norm_topk_prob": false, "num_attention_heads": 16,
      "num_experts": 60, "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16,
      "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
      "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 5632, "sliding_window": 32768,
      "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936}
    | tie_embeddings false; norm_epsilon 1e-06; qkv_bias true; shared_experts 4; shared_gate true; router_normalize false; rotary_base 1000000.0
Qwen2-57B-A14B in small | {"model_type": "qwen2_moe", "num_hidden_layers": 4, "mlp_only_layers": [0],
      "decoder_sparse_step": 2, "moe_intermediate_size": 2560, "shared_expert_intermediate_size": 20481}
    | tie_embeddings false; norm_epsilon 1e-06; qkv_bias true; expert_layers every 2nd; shared_experts 1; shared_expert_width 20481; shared_gate true; router_normalize false
starcoder2-7b | {"model_type": "starcoder2", "hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-05,
      "sliding_window": 4096, "use_bias": true, "rope_theta": 1000000}
    | norm layernorm; activation gelu; qkv_bias true; out_bias true; mlp_bias true; norm_bias true; attention_window 4096; rotary_base 1000000.0
)";

/// Joins lines that begin with six blanks or more to those before.
std::string on_one_line(std::string table) {
  for (std::size_t at; (at = table.find("\n      ")) != std::string::npos;) table.erase(at, 6);
  return table;
}

HuggingFaceConfig parsed(const std::string& file) {
  return parse_huggingface_config(file, "config.json");
}

/// Returns "key value; key value" of settings, besides sizes, that are not the default.
std::string special_settings(const DecoderSettings& settings) {
  static const std::set<std::string> sizes = {
      "layers",    "width",      "heads",   "kv_heads",          "head_width",
      "ffn_width", "vocabulary", "experts", "experts_per_token", "expert_width"};
  DecoderSettings plain;
  plain.experts.count = settings.experts.count;
  plain.head_dim = settings.head_width();
  plain.layers = settings.layers;
  std::string list;
  for (const ModelDifference& one : model_differences(settings, plain, any_length))
    if (sizes.count(one.key) == 0) list += (list.empty() ? "" : "; ") + one.key + " " + one.theirs;
  return list;
}

TEST(HuggingFaceFamilies, PublishedModelsAreRead) {
  const auto rows = rows_of(on_one_line(published_files));
  EXPECT_GE(rows.size(), 40U);
  for (const std::vector<std::string>& row : rows) {
    ASSERT_EQ(row.size(), 3U) << row[0];
    const HuggingFaceConfig config = parsed(row[1]);
    EXPECT_EQ(special_settings(config.model), row[2]) << row[0];
    EXPECT_TRUE(config.problems.empty()) << row[0] << ": " << config.problems.front();
  }
}

/// Settings that a model gets later are compared, or are listed here.
TEST(HuggingFaceFamilies, EveryKeyOfADecksModelIsComparedIfItChangesWhatIsComputed) {
  std::set<std::string> known = {// These change units, sums, initial values and training.
                                 "blocks_per_unit", "tensor_grain", "initializer_deviation",
                                 "router_balance_rate", "multi_token_factor",
                                 // It is compared with positions, and each bias by itself.
                                 "max_positions", "bias",
                                 // It is a config.json, which sets the others.
                                 "from"};
  for (const ModelKey& key : model_keys()) EXPECT_TRUE(known.insert(key.name).second) << key.name;
  std::set<std::string> in_decks;
  for (const config::Key& key : config::model_section().keys) in_decks.insert(key.name);
  EXPECT_EQ(known, in_decks);
}

/// A model is written in another family only if that says the same.
TEST(HuggingFaceFamilies, WhatIsWrittenWithoutASourceIsReadBack) {
  for (const std::vector<std::string>& row : rows_of(on_one_line(published_files))) {
    const HuggingFaceConfig config = parsed(row[1]);
    HuggingFaceModel model;
    model.settings = config.model;
    model.tokens = config.positions;
    const HuggingFaceConfig back = parsed(write_huggingface_config(model));
    EXPECT_EQ(model_differences(back.model, config.model, any_length).size(), 0U)
        << row[0] << " as " << back.family->model_type;
    EXPECT_TRUE(back.problems.empty()) << row[0] << ": " << back.problems.front();
    EXPECT_EQ(error_of([&] { require_same_model(back, config.model, config.positions); }),
              "no error")
        << row[0];
    model.source = config.text;
    EXPECT_EQ(parsed(write_huggingface_config(model)).family, config.family) << row[0];
    // The modules of multi-token prediction of a source are not written.
    EXPECT_EQ(Json::parse(write_huggingface_config(model)).value("mtp_num_hidden_layers", 0), 0);
  }
}

/// Rows "family | key | its value as JSON | what is said", for a file with that key alone.
const char* const refused_keys = R"(
qwen2 | use_sliding_window | 3 | use_sliding_window is 3; expected true or false
qwen2 | layer_types | ["full_attention"] | expected a list with an entry for each of the 32 layers
qwen2 | use_mrope | true | this program reads text alone
qwen3 | hidden_act | "relu" | hidden_act is "relu"; expected one of "silu", "swish"
qwen3_moe | mlp_only_layers | 3 | mlp_only_layers is 3; expected a list of layers
qwen3_5_text | attn_output_gate | false | attention of this family has a gate; expected true
qwen3_5_text | mamba_ssm_dtype | "bfloat16" | this program has states of delta nets in float32; expected "float32"
qwen3_5_text | output_gate_type | "sigmoid" | have this gate of their output; expected one of "swish", "silu"
qwen3 | rope_parameters | {"mrope_section": [24, 20, 20]} | this program does not know its mrope_section with default
qwen3_next | layer_types | ["sliding_attention"] | layer_types is ["sliding_attention"]
llama | rope_scaling | {"type": "dynamic", "factor": 2.0} | this program scales rotary frequencies as linear
llama | rope_scaling | {"type": "llama3", "factor": 8.0} | it has no low_freq_factor, which llama3 needs
llama | rope_scaling | {"type": "linear", "factor": "2"} | expected a number as its factor
llama | rope_scaling | {"type": "linear", "factor": 2.0, "alpha": 1} | does not know its alpha with linear
llama | rope_parameters | {"full_attention": {"rope_theta": 5.0}} | the same rotary positions in all layers
llama | partial_rotary_factor | 0.5 | this family rotates whole heads
llama | layer_types | ["sliding_attention"] | this family has full_attention in all layers
llama | sliding_window | 16 | Llama attends to all tokens before
llama | rope_interleaved | true | this program turns element i
mistral | mlp_bias | true | Mistral has no biases
mistral | layer_types | ["chunked_attention"] | this family has sliding_attention in all layers
phi3 | lm_head_bias | true | Phi-3 has no biases
phi3 | rope_scaling | {"type": "longrope", "short_factor": [1], "long_factor": ["1"]} | expected numbers as its long_factor
phi3 | rope_scaling | {"type": "longrope", "short_factor": [1]} | which longrope needs
gemma | hidden_activation | "relu" | Gemma has the tanh form of GELU
gemma | use_bidirectional_attention | true | this program attends to tokens before
gemma2 | hidden_activation | "relu" | expected one of "silu", "swish", "gelu_new"
gemma2 | attn_logit_softcapping | true | attn_logit_softcapping is true; expected a number
gemma3_text | rope_parameters | {"sliding_attention": {"rope_type": "linear", "factor": 2.0}} | layers with a window have unscaled frequencies
gemma3_text | rope_parameters | {"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {"rope_type": "linear", "factor": 8.0}} | layers with a window have unscaled frequencies
gemma3_text | rope_parameters | {"rope_type": "linear", "factor": 8.0} | an object for each type of layers
gemma3_text | sliding_window_pattern | "LG" | expected a whole number from 1
olmo | rms_norm_eps | 1e-5 | this program does not know the key
smollm3 | no_rope_layers | [1] | expected a list with an entry for each of the 36 layers
stablelm | qk_layernorm | 1 | expected true or false
cohere2 | layer_switch | 3 | Command R7B has this value alone
phi | qk_layernorm | true | no layer norm of queries and keys
falcon | num_ln_in_parallel_attn | 2 | but new_decoder_architecture is missing (falcon: false); expected 1
falcon | alibi | true | Falcon scales its ALiBi slopes
bloom | apply_residual_connection_post_layernorm | true | this program adds to what norms take
mpt | attn_config | {"alibi": false} | expected alibi true
mpt | attn_config | {"qk_ln": true} | expected qk_ln false
mpt | no_bias | false | MPT has this value alone
mpt | expansion_ratio | 0 | expected a number by which d_model = 2048 becomes a whole number of columns
mpt | expansion_ratio | 1.0001 | expected a number by which d_model = 2048 becomes a whole number
mpt | logit_scale | 0.5 | MPT has this value alone
gptj | rotary_dim | 0 | expected a whole number from 1
gptj | rotary_dim | null | GPT-J rotates so many elements of a head
glm4_moe | first_k_dense_replace | -1 | expected a whole number from 0
hunyuan_v1_dense | use_cla | true | keys and values of its own
hunyuan_v1_dense | rope_scaling | {"type": "dynamic", "factor": 2.0} | this program scales rotary
nanochat | hidden_act | "gelu_10" | expected one of "gelu_new"
ernie4_5 | num_key_value_heads | 0 | expected a whole number from 1
deepseek_v2 | norm_topk_prob | true | programs differ in what DeepSeek-V2 does with it
deepseek_v2 | num_experts_per_tok | null | expected a whole number
deepseek_v2 | scoring_func | "sigmoid" | DeepSeek-V2 has this one; expected "softmax"
deepseek_v2 | topk_method | "noaux_tc" | expected "greedy" or "group_limited_greedy"
deepseek_v3 | attention_bias | true | this program has no biases of latents
deepseek_v3 | head_dim | 128 | but qk_rope_head_dim is missing (deepseek_v3: 64); expected the same
deepseek_v3 | moe_layer_freq | 2 | all layers behind the dense ones have experts
deepseek_v3 | num_key_value_heads | 8 | but num_attention_heads is missing (deepseek_v3: 128); expected the same
deepseek_v3 | q_lora_rank | 0 | expected a whole number from 1
deepseek_v3 | quantization_config | {"quant_method": "gptq"} | quant_method is "gptq"; expected weights of fp8, mxfp4
deepseek_v3 | rope_interleave | false | whose rotated pairs are neighbours
deepseek_v3 | scoring_func | "softmax" | DeepSeek-V3 has this one; expected "sigmoid"
deepseek_v3 | topk_method | "greedy" | DeepSeek-V3 has this one; expected "noaux_tc"
deepseek_v32 | q_lora_rank | 8 | model_type is "deepseek_v32"; this program computes arcee,
gpt_oss | experts_per_token | 4 | but num_experts_per_tok is 2; expected the same
gpt_oss | hidden_act | "gelu" | gpt-oss has this activation alone
gpt_oss | swiglu_alpha | 1.5 | gpt-oss has this activation alone; expected 1.702
gpt_oss | swiglu_limit | 8.0 | gpt-oss has this activation alone; expected 7.0
qwen2_moe | shared_expert_intermediate_size | 0 | expected a whole number from 1
qwen2_moe | use_sliding_window | true | this program reads Qwen2-MoE without windows
gemma3 | text_config | {"model_type": "gemma3_text"} | model_type is "gemma3"; its model of text alone, text_config, has the type gemma3_text, which is computed
llava | text_config | {"model_type": "mamba"} | model_type is "llava"; this program computes arcee,
mamba2 | n_groups | 8 | model_type is "mamba2"; this program computes arcee,
)";

TEST(HuggingFaceFamilies, WhatIsNotComputedIsRefusedByKey) {
  for (const std::vector<std::string>& row : rows_of(refused_keys)) {
    Json file = {{"model_type", row[0]}, {"num_experts_per_tok", 2}};
    if (row[0] != "deepseek_v2" && row[0] != "gpt_oss") file.erase("num_experts_per_tok");
    file[row[1]] = Json::parse(row[2]);
    const std::string error = error_of([&] { require_computed(parsed(file.dump()), 1); });
    EXPECT_HAS(error, row[3]) << row[0] << " " << row[1];
    if (row[3].find("model_type") == std::string::npos) {
      EXPECT_HAS(error, row[1] + " is ");
    }
  }
}

/// Keys that are said twice count as in transformers, or are refused.
TEST(HuggingFaceFamilies, WhatIsSaidTwiceIsOneOrRefused) {
  const auto refusal = [](const char* file) {
    return error_of([&] { require_computed(parsed(file), 1); });
  };
  EXPECT_HAS(refusal(R"({"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0},
                         "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}})"),
             "rope_parameters is another; expected one of them");
  const std::string llama3 = R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0)";
  const std::string beside = R"({"model_type": "llama", "original_max_position_embeddings": 64, )";
  EXPECT_HAS(refusal((beside + llama3 + R"(, "original_max_position_embeddings": 1024}})").c_str()),
             "is not that beside it, 64; expected one length");
  EXPECT_EQ(parsed(beside + llama3 + "}}").model.rotary.original_length, 64);
  EXPECT_HAS(refusal(R"({"model_type": "qwen2", "num_hidden_layers": 1,
                         "layer_types": ["sliding_attention"]})"),
             "no window is said for these layers");
  EXPECT_HAS(refusal(R"({"model_type": "falcon", "new_decoder_architecture": true,
                         "parallel_attn": false})"),
             "parallel_attn is false; but new_decoder_architecture is true; expected true");
  // A base beside the objects of both types of layers is not that of layers with a window.
  const auto olmo3 = parsed(R"({"model_type": "olmo3", "rope_theta": 10000.0})").model;
  EXPECT_EQ(olmo3.rotary.base, 10000.0);
  EXPECT_EQ(olmo3.window_rotary_base, 500000.0);
}

/// What follows from the longest context is not changed by training on longer sequences.
TEST(HuggingFaceFamilies, ALongerContextChangesNoScaling) {
  const std::string sizes = R"("hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 64,
    "max_position_embeddings": 64)";
  const auto exported = [&](const std::string& type) {
    const HuggingFaceConfig source = parsed("{" + type + ", " + sizes + "}");
    HuggingFaceModel model;
    model.settings = source.model;
    model.tokens = 128;
    model.source = source.text;
    return Json::parse(write_huggingface_config(model)).at("max_position_embeddings");
  };
  EXPECT_EQ(exported(R"("model_type": "llama")"), 128);
  EXPECT_EQ(exported(R"("model_type": "phi3", "original_max_position_embeddings": 32,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3],
                     "long_factor": [2.0, 2.1, 2.2, 2.3]})"),
            64);
}

/// Rows "family | key of a deck | key of its config.json that says it | value there, as JSON".
const char* const differing_keys = R"(
qwen2 | qkv_bias | - | -
mistral | attention_window | sliding_window | 8
gemma2 | attention_soft_cap | attn_logit_softcapping | 20.0
gemma2 | logit_soft_cap | final_logit_softcapping | null
gemma2 | attention_scale | query_pre_attn_scalar | 64
gemma2 | window_layers | layer_types | ["full_attention", "sliding_attention"]
gemma2 | activation | hidden_activation | "gelu"
gemma3_text | window_rotary_base | rope_local_base_freq | 5000.0
gemma3_text | embedding_scale | - | -
olmo | clip_qkv | clip_qkv | 4.0
olmo2 | norm_placement | - | -
olmo2 | query_key_norm | - | -
granite | residual_scale | residual_multiplier | 0.5
granite | embedding_scale | embedding_multiplier | 3
granite | logit_scale | logits_scaling | 4
granite | attention_scale | attention_multiplier | 0.5
smollm3 | rotary_layers | no_rope_layers | [0, 1]
stablelm | rotary_share | partial_rotary_factor | 0.5
stablelm | block | use_parallel_residual | true
stablelm | query_key_norm | qk_layernorm | true
cohere | query_key_norm | use_qk_norm | true
mpt | ffn_width | expansion_ratio | 3
gpt_neox | rotary_share | rotary_pct | 0.5
gpt_neox | rotary_base | rotary_emb_base | 500
gpt_neox | block | use_parallel_residual | false
falcon | kv_heads | multi_query | false
falcon | block | parallel_attn | false
falcon | qkv_bias | bias | true
cohere2 | window_layers | layer_types | ["full_attention", "sliding_attention"]
seed_oss | out_bias | attention_out_bias | true
deepseek_v3 | kv_rank | kv_lora_rank | 256
deepseek_v3 | query_rank | q_lora_rank | null
deepseek_v3 | rotary_width | qk_rope_head_dim | 32
deepseek_v3 | head_width | qk_nope_head_dim | 64
deepseek_v3 | value_width | v_head_dim | 64
deepseek_v3 | router_groups | n_group | 4
deepseek_v3 | router_normalize | norm_topk_prob | false
deepseek_v3 | attention_scale | rope_scaling | {"type": "yarn", "factor": 4, "mscale_all_dim": 1}
deepseek_v3 | router_balance | - | -
gpt_oss | attention_sinks | - | -
gpt_oss | router_bias | - | -
gpt_oss | rotary_truncate | rope_scaling | {"type": "yarn", "factor": 32, "original_max_position_embeddings": 4096}
gpt_oss | window_layers | layer_types | ["full_attention", "sliding_attention"]
qwen2_moe | shared_gate | - | -
qwen2_moe | shared_experts | shared_expert_intermediate_size | 1408
glm4_moe | expert_layers | first_k_dense_replace | 0
glm4_moe | router_scale | routed_scaling_factor | 2.5
glm4_moe | shared_experts | n_shared_experts | 2
glm4_moe | query_key_norm | use_qk_norm | true
llama | multi_token_depth | - | -
llama | rotary_scaling | rope_scaling | {"type": "linear", "factor": 3.0}
mpt | positions | - | -
nanochat | norm_weight | - | -
nanochat | logit_soft_cap | final_logit_softcapping | 10.0
)";

/// A deck that says something else than the file is refused by both names.
TEST(HuggingFaceFamilies, DecksThatDifferAreRefusedByBothKeys) {
  for (const std::vector<std::string>& row : rows_of(differing_keys)) {
    const bool by_family = row[2] == "-";
    Json file = {{"model_type", row[0]}};
    // A deck of the family's default model, of two layers, and a file with one more key.
    for (const char* layers : {"num_hidden_layers", "n_layer", "n_layers"})
      if (row[0] == "mpt" ? std::string(layers) == "n_layers"
                          : std::string(layers) == "num_hidden_layers")
        file[layers] = 2;
    if (row[0] == "deepseek_v3") file["first_k_dense_replace"] = 1;
    DecoderSettings deck = parsed(file.dump()).model;
    if (by_family) deck = DecoderSettings();
    if (row[1] == "multi_token_depth") deck.multi_token_depth = 1;
    if (!by_family) file[row[2]] = Json::parse(row[3]);
    const std::string error =
        error_of([&] { require_same_model(parsed(file.dump()), deck, any_length); });
    EXPECT_HAS(error, ", but model." + row[1] + " is ") << row[0] << " " << row[2];
    EXPECT_HAS(error, by_family ? row[1] + " of " + row[0] + " is " : row[2] + " is ")
        << row[0] << " " << row[2];
  }
}

/// Modules that files have are read where a deck has them, and written where there are weights.
TEST(HuggingFaceFamilies, ADeckSaysWhetherModulesAreRead) {
  for (const char* type : {"deepseek_v3", "glm4_moe"}) {
    Json file = {{"model_type", type}, {"num_nextn_predict_layers", 1}};
    const HuggingFaceConfig config = parsed(file.dump());
    EXPECT_EQ(config.model.multi_token_depth, 0);
    EXPECT_EQ(config.multi_token_depth, 1);
    HuggingFaceModel model;
    model.settings = config.model;
    model.tokens = config.positions;
    for (const std::int64_t depth : {0, 1})
      for (const bool has_source : {false, true}) {
        model.settings.multi_token_depth = depth;
        model.source = has_source ? config.text : "";
        EXPECT_EQ(error_of([&] { require_same_model(config, model.settings, any_length); }),
                  "no error");
        const HuggingFaceConfig back = parsed(write_huggingface_config(model));
        EXPECT_EQ(back.family, config.family);
        EXPECT_EQ(back.multi_token_depth, depth);
      }
    file["num_nextn_predict_layers"] = 0;
    EXPECT_HAS(
        error_of([&] { require_same_model(parsed(file.dump()), model.settings, any_length); }),
        "num_nextn_predict_layers is 0, but model.multi_token_depth is 1");
  }
}

}  // namespace
}  // namespace ostrakon::checkpoint
