// SPDX-License-Identifier: Apache-2.0
// Unknown keys, and invalid values.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/bad_decks.hpp"

namespace ostrakon::config {
namespace {

TEST(BadDecks, UnknownKeys) {
  for (const std::vector<std::string>& row : testing::rows_of(R"(
model.widht: 256 | model.widht = 256: no such key; did you mean model.width?
model.xyzzy: 5 | model.xyzzy = 5: no such key; ostrakon-train --print-defaults lists the keys of model
model.hidden_size: 64 | model.hidden_size = 64: no such key; did you mean model.width?
model.num_attention_heads: 4 | did you mean model.heads?
model.attention_bias: true | did you mean model.qkv_bias and model.out_bias?
model.rope_theta: 1e6 | did you mean model.rotary_base?
model.hidden_act: silu | did you mean model.activation?
training.max_position_embeddings: 64 | did you mean training.sequence_length?
model.sliding_window: 64 | did you mean model.attention_window?
model.n_routed_experts: 8 | did you mean model.experts?
model.steps: 5 | model.steps = 5: no such key; did you mean training.steps?
training.learning_rate: 0.1 | training.learning_rate = 0.1: no such key; did you mean optimizer.learning_rate?
training.Steps: 5 | training.Steps = 5: no such key; did you mean training.steps?
training.lerning_rate: 1 | training.lerning_rate = 1: no such key; did you mean optimizer.learning_rate?
training.wall_time: 90 | training.wall_time = 90: no such key; did you mean runtime.wall_time?
precision.xyzzy: on | precision.xyzzy = "on": no such key; the keys of precision are parameters, gather,
optimizer.beta3: [1, 2] | optimizer.beta3: no such key; did you mean optimizer.beta1?
checkpoint.evry: 5 | checkpoint.evry = 5: no such key; did you mean checkpoint.every?
checkpoint.asnyc: true | checkpoint.asnyc = true: no such key; did you mean checkpoint.async?
checkpoints.every: 5 | checkpoints: no such section; did you mean checkpoint?
memory.checkpointing: full
    | memory.checkpointing = "full": no such key; did you mean memory.activation_checkpointing?
parallel.prefetch: 2 | did you mean parallel.forward_prefetch or parallel.backward_prefetch?
parallel.gathers: 2 | parallel.gathers = 2: no such key; did you mean parallel.in_flight_gathers?
parallel.forward_prefech: 2 | did you mean parallel.forward_prefetch?
parallel.xyzzy: 2 | parallel.xyzzy = 2: no such key; the keys of parallel are choose, .. and ranks_per_node
trainig.steps: 5 | trainig: no such section; did you mean training?
qqqqqqqqqq.steps: 5 | qqqqqqqqqq: no such section; the sections are model, lora, data, .. and runtime
training.steps: [1, 2] | training.steps: expected an integer >= 1, found a list
training.steps: | training.steps: expected an integer >= 1, found nothing
memory.activation_checkpointing: [attention, mlp]
    | memory.activation_checkpointing: expected none, .. found a list
runtime.wall_time: [1] | runtime.wall_time: expected a time as minutes, .. found a list
)")) {
    const std::size_t dot = row[0].find('.');
    expect_refused({{with(row[0].substr(0, dot), row[0].substr(dot + 1)), row[1]}}, "deck.yaml");
  }
  expect_refused(
      {{"ostrakon:\n  steps: 5\n", "steps = 5: no such section; did you mean training.steps?"},
       {"ostrakon:\n  rope_theta: 5\n",
        "rope_theta = 5: no such section; did you mean model.rotary_base?"},
       {"ostrakon:\n  setps: 5\n", "setps = 5: no such section; did you mean training.steps?"},
       {"ostrakon:\n  model: 5\n", "model = 5: expected a section, with keys below it"},
       {"ostrakon:\n  model: [1, 2]\n", "model: expected a section, .. found a list"},
       {with("training", "steps:\n      more: 5"),
        "training.steps: expected an integer >= 1, found a section"},
       {"ostrakon:\n  data:\n    dataset: synthetic\n    synthetic_noise: 1.5\n",
        "data.synthetic_noise = 1.5: expected a number from 0 to 1"},
       {"ostrakon:\n  data:\n    dataset: imagenet\n",
        "data.dataset = \"imagenet\": expected tokens or synthetic"}},
      "deck.yaml");
}

TEST(BadDecks, ImpossibleValues) {
  expect_values_refused(R"(
training.steps | an integer >= 1 | -5 | 0 | 1.5 | "5" | five | true | 1_000
training.steps | an integer >= 1 and <= 9007199254740991 | 1e30
training.seed | an integer >= 0 and <= 9007199254740991 | 18446744073709551615 | 9223372036854775807
training.seed | an integer >= 0 | -123456789012345678901
training.sequence_length | an integer >= 1 | 0
training.global_batch_size | an integer >= 1 | 0
training.micro_batch_size | an integer >= 1 | 0
training.sum_grain | 0 or a power of two up to 1073741824 | 6 | -8 | 0.5
training.context_grain | a power of two up to 1073741824 | 0 | 3
training.leaf | micro_batch or sequence | token
training.time_limit_minutes | a number >= 0 | -1
model.layers | an integer from 1 to 100000 | 0 | 100001
model.width | an integer from 1 to 67108864 | -256
model.heads | an integer from 1 to 67108864 | 0
model.delta_convolution | an integer from 1 to 16 | 0 | 17
model.vocabulary | an integer from 2 to 2147483647 | 2147483648
model.norm | layernorm or rmsnorm | batchnorm | 5
model.bias | true or false | 1 | on
model.norm_epsilon | a number from 1.2e-38 to 1 | 0 | 1e-46
lora.rank | an integer from 0 to 65536 | -1 | 65537
lora.alpha | a number from 1e-30 to 1e30 | 0 | -1
lora.targets | some of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj | q | "" | 5 | all-linear
precision.frozen | fp32 or gather | bf16 | true
optimizer.beta1 | a number >= 0 and < 1 | 1
optimizer.beta2 | a number >= 0 and < 1 | -0.1
optimizer.learning_rate | a number from 0 to 1e30 | nan | .inf | 1e39
optimizer.learning_rate | a number from 0 to 1e30; 1e999 is beyond the range of a | 1e999
optimizer.epsilon | a number from 1.2e-38 to 1 | 0 | 1e-46
model.initializer_deviation | a number from 1e-30 to 1e30 | 1e300
model.mlp_bias | auto, true or false | some
model.activation | gelu, gelu_exact, relu, relu_squared, swiglu, geglu, geglu_exact or | silu | 5
model.head_bias | true or false | auto
model.logit_scale | a number from 1e-30 to 1e30 | 0 | -1
model.logit_soft_cap | a number >= 0 | -1
model.router_bias | true or false | 1
model.router_group_score | sum_of_two or max | sum
model.shared_gate | true or false | sigmoid
model.attention_gate | true or false | sigmoid
model.shared_expert_width | an integer from 0 to 67108864 | -1 | auto
model.rotary_base | a number from 1 to 1e12 | 0.5 | 1e13
optimizer.weight_decay | a number from 0 to 1e30 | 1e39
optimizer.clip_norm | a number from 0 to 1e30 | 1e39
optimizer.name | adamw, sgd, lion or muon | adam
optimizer.momentum | a number >= 0 and < 1 | 1 | -0.1
optimizer.nesterov | true or false | 1
optimizer.moments | fp32 or bf16 | fp16
precision.parameters | fp32, the only value that this version accepts | bf16
precision.gather | fp32, bf16, fp16 or fp8 | fp64 | 16 | auto
precision.reduce | fp32, bf16 or fp16 | fp8
precision.activations | auto, fp32, bf16 or fp16 | float
precision.products | auto, fp8 or mxfp8 | bf16 | mxfp4 | 8
precision.fp8_layers | auto, all, none, every 6th, first 3 | every | -1 | 1.5
precision.fp8_gradients | e4m3 or e5m2 | e5m3 | 8
training.on_non_finite | stop or skip | ignore | yes
training.skip_outliers | a number >= 0 | -1 | yes
training.outlier_window | an integer >= 2 | 1
schedule.decay_steps | an integer >= 0 | -1 | 0.1
memory.offload | none, optimizer, parameters or all | host | yes
memory.pinned | true or false | 1 | host
memory.activations | device or host | disk | bf16
optimizer.muon_iterations | an integer from 1 to 1000 | 0 | 2.5 | 4294967297
optimizer.muon_rate_factor | a number from 1e-30 to 1e30 | 0 | -1
parallel.sharding | none, optimizer, gradients or full | zero3
parallel.accumulation | auto, reduce_each, shard_each or reduce_last | automatic
parallel.shard_group | world, node or an integer from 1 to 1048576 | nodes | 0 | 2.5 | 1048577
parallel.shard_optimizer_over | shard_group or world | node
parallel.ranks_per_node | an integer from 0 to 1048576 | -1
schedule.final_fraction | a number from 0 to 1 | 1.1
schedule.warmup_steps | an integer >= 0 | -1
schedule.tail | cosine, linear, constant, warmup_stable_decay or | exponential
output.directory | a path that is not empty (numbers and yes/no need quotes) | "" | 2026
output.every | an integer >= 1 | 0
runtime.threads | auto or an integer from 1 to 4096 | 0
parallel.reshard_after_forward | default, always, never, end_of_step or an integer from 2 to | yes
    | sometimes | 1 | 2.5 | -2 | 1e18 | "4"
parallel.forward_prefetch | an integer from 0 to 1000 | -1 | block.1
parallel.backward_prefetch | an integer from 0 to 1000 | 0.5 | 1001
parallel.in_flight_reductions | an integer from 0 to 1000 | 1e300 | unlimited
model.blocks_per_unit | auto or an integer from 1 to 100000 | 0 | -1 | 1.5 | 1e9 | automatic
runtime.streams | inline, threads or auto | 2 | thread
runtime.paths_from | deck or working_directory | here
output.trace | an integer >= 0 | -1 | yes
output.trace | an integer >= 0 and <= 9007199254740991 | 1e20
checkpoint.every | an integer >= 0 | -1 | 0.5 | never
checkpoint.every | an integer >= 0 and <= 9007199254740991 | 1e300
checkpoint.keep | an integer >= 1 | 0 | all
checkpoint.keep_every | an integer >= 0 | -5
checkpoint.files | rank, node or single | 1 | ranks
checkpoint.async | true or false | 1
checkpoint.verify | true or false | always
checkpoint.bandwidth | a number >= 0 | -1 | .inf | 100 MB/s
checkpoint.initial_weights | a path as text (numbers and yes/no need quotes) | 5
runtime.wall_time | a time as minutes, minutes:seconds, hours:minutes:seconds | -5 | 1.5 | 1e15 | yes
    | "1:2:3:4" | 1 hour
precision.loss_scale | a power of two from 1 to 16777216 | 0 | -2 | 0.5 | 3 | 65535 | 65536.5 | 33554432
    | 1e300
precision.loss_scale | a power of two from 1 to 16777216 | 1e-300 | true | auto | 2^16 | nan | inf
)");
}

/// Quoted values: blanks and an empty text count.
TEST(BadDecks, TextsInTheirOwnForms) {
  expect_values_refused(R"(
memory.activation_checkpointing | none, full, every N with N from 1 to 100000, selective | true | 0
    | 2 | ""
memory.activation_checkpointing | none | "None" | "all" | "full 2" | "none none" | "every" | "every 0"
    | "every -1"
memory.activation_checkpointing | none | "every 1.5" | "every 100001" | "every 1e300" | "every block"
    | "every 2 3"
memory.activation_checkpointing | none | "every2" | "every yes" | "selective" | "selective atention"
    | "selective 2"
memory.activation_checkpointing | none | "selective attention,mlp" | "selective attention attention"
memory.activation_checkpointing | none | "selective attention full" | "attention mlp" | "selective none"
memory.activation_checkpointing | none | "selective mlp every 2" | "selectively mlp"
memory.activation_checkpointing | none | "keep" | "keep mlp" | "keep norms norms" | "auto auto"
memory.limit | auto, or bytes up to 4096 TiB in B, kB, KiB | 0 | 1 | true | "" | "none" | "0 GiB" | "8 gb"
parallel.in_flight_gathers | unlimited, an integer from 1 to 1000000 (units), or bytes | 0 | -1 | 1.5
    | -2.5 | true
parallel.in_flight_gathers | unlimited | "" | "8 Gib" | "8 GIB" | "8 gb" | "500 mB" | "500 KB" | "500 kb"
    | "8 G"
parallel.in_flight_gathers | unlimited | "8GiBs" | "8  GiB" | " 8 GiB" | "8 GiB " | "8 bytes" | "GiB"
    | ". GiB"
parallel.in_flight_gathers | unlimited | "1.2.3 GB" | "-8 GiB" | "+8 GiB" | "1e3 MB" | "1,5 GiB" | "0 B"
    | "0.4 B"
parallel.in_flight_gathers | unlimited | "0 GiB" | "0.0001 kB" | "none" | "Unlimited" | "auto" | "8 PiB"
    | "4097 TiB"
parallel.in_flight_gathers | unlimited | "5000 TB" | "1e999" | "nan GiB" | "8 units" | "0x10 B" | "8 GiB 1 MB"
parallel.in_flight_gathers | unlimited | "inf B" | "8 GiB/rank" | "8_000 B" | "1/2 GiB" | 1e16
parallel.in_flight_gathers | unlimited | 99999999999999999999999 TiB
)"
                        "parallel.in_flight_gathers | unlimited | \"\xD9\xA3 GB\"");
}

TEST(BadDecks, ValuesThatDoNotGoTogether) {
  expect_together_refused(R"(
model.heads: 3 | model.heads = 3 .. model.width = 256 .. (256 = 3 x 85 + 1)
model.kv_heads: 3 | model.kv_heads = 3 .. model.heads = 4 .. (4 = 3 x 1 + 1)
model.kv_heads: 8 | model.kv_heads = 8 .. model.heads = 4 .. (4 = 8 x 0 + 4)
model.experts: 4; model.experts_per_token: 5 | model.experts_per_token = 5 .. model.experts = 4
model.experts: 4; parallel.tensor: 2 | parallel.expert = 1 .. parallel.tensor = 2 .. model.experts = 4
model.experts: 4; parallel.tensor: 2; parallel.expert: 2; parallel.rank_order: shard_first
    | parallel.rank_order = shard_first .. parallel.tensor = 2 .. model.experts = 4
model.experts: 3; model.tensor_grain: 2 | model.tensor_grain = 2 .. model.experts = 3 .. (3 = 2 x 1 + 1)
model.experts: 4; model.shared_experts: 1; model.expert_width: 5; model.tensor_grain: 2
    | model.tensor_grain = 2 .. model.shared_experts x model.expert_width = 5 .. (5 = 2 x 2 + 1)
model.experts: 4; model.shared_experts: 1; model.shared_expert_width: 7; model.tensor_grain: 2
    | model.tensor_grain = 2 .. model.shared_expert_width = 7 .. (7 = 2 x 3 + 1)
model.experts: 4; model.expert_layers: first 1; model.ffn_width: 5; model.tensor_grain: 2
    | model.tensor_grain = 2 .. model.ffn_width = 5 .. (5 = 2 x 2 + 1)
model.experts: 4; model.expert_layers: "9" | model.expert_layers = 9 names layers that model.layers = 4
model.experts: 4; model.blocks_per_unit: 2; model.tensor_grain: 2
    | model.blocks_per_unit = 2 .. model.tensor_grain = 2
parallel.expert: 2 | parallel.expert = 2 .. model.experts = 0 .. expected 1, or some experts
model.experts: 12; parallel.expert: 3 | parallel.expert = 3 .. model.experts = 12
model.experts: 6; parallel.expert: 4 | parallel.expert = 4 .. model.experts = 6
model.experts: 12; model.router_groups: 5 | model.router_groups = 5 .. model.experts = 12 .. (12 = 5 x 2 + 2)
model.experts: 12; model.router_groups: 4; model.router_groups_per_token: 5
    | model.router_groups_per_token = 5 .. model.router_groups = 4
model.experts: 12; model.router_groups: 4; model.experts_per_token: 4
    | model.experts_per_token = 4 .. model.router_groups_per_token = 1 .. model.router_groups = 4)
model.experts: 4; model.blocks_per_unit: 2; parallel.expert: 2
    | model.blocks_per_unit = 2 .. parallel.expert = 2
model.delta_value_heads: 4 | model.delta_value_heads = 4 .. model.delta_key_heads = 0 .. expected 0
model.delta_key_heads: 4 | model.delta_value_heads = 0 .. model.delta_key_heads = 4
model.delta_key_heads: 4; model.delta_value_heads: 6
    | model.delta_value_heads = 6 .. model.delta_key_heads = 4 .. or a multiple
model.delta_key_heads: 4; model.delta_value_heads: 4; model.delta_layers: "9"
    | model.delta_layers = 9 names layers that model.layers = 4
model.delta_key_heads: 4; model.delta_value_heads: 4; parallel.context: 2
    | parallel.context = 2 .. model.delta_key_heads = 4 .. expected 1
model.delta_key_heads: 3; model.delta_value_heads: 3; parallel.tensor: 2
    | parallel.tensor = 2 .. model.delta_key_heads = 3 .. (3 = 2 x 1 + 1)
model.delta_key_heads: 4; model.delta_value_heads: 4; model.delta_value_width: 7; parallel.tensor: 2
    | parallel.tensor = 2 .. model.delta_value_width = 7 .. (7 = 2 x 3 + 1)
model.attention_gate: true; model.kv_rank: 32; model.rotary_width: 8
    | model.attention_gate = true .. model.kv_rank = 32 .. expected false
lora.rank: 8; parallel.tensor: 2 | parallel.tensor = 2 with lora.rank = 8 .. expected 1
lora.rank: 8; model.tensor_grain: 2 | model.tensor_grain = 2 with lora.rank = 8 .. expected 1
lora.rank: 8; model.experts: 4 | model.experts = 4 with lora.rank = 8 .. expected 0
lora.rank: 8; model.kv_rank: 32; model.rotary_width: 8 | model.kv_rank = 32 with lora.rank = 8 .. expected 0
lora.rank: 8; model.attention_gate: true | model.attention_gate = true with lora.rank = 8 .. expected false
lora.rank: 8; model.delta_key_heads: 4; model.delta_value_heads: 4
    | model.delta_key_heads = 4 with lora.rank = 8 .. expected 0
lora.rank: 8; model.multi_token_depth: 1; model.tie_embeddings: false
    | model.multi_token_depth = 1 with lora.rank = 8 .. expected 0
lora.rank: 8; lora.targets: gate_proj; model.activation: gelu | gate_proj with model.activation = gelu
lora.rank: 8; lora.initial: adapters | lora.initial = adapters without checkpoint.initial_weights
lora.initial: adapters | lora.initial = adapters with lora.rank = 0
lora.targets: o_proj | lora.targets = o_proj with lora.rank = 0 .. expected a rank
lora.targets: "v_proj, q_proj" | lora.targets = q_proj, v_proj with lora.rank = 0 .. expected a rank
lora.targets: o_proj; lora.rank: 0 | lora.targets = o_proj with lora.rank = 0
lora.rank: 8; lora.targets: [q_proj, v_proj, q_proj] | lora.targets: q_proj is given twice
lora.rank: 8; lora.targets: "q_proj, v_proj, q_proj" | lora.targets: q_proj is given twice
lora.rank: 8; optimizer.parameters: "*.norm.*: trained"
    | optimizer.parameters trains block.0.attention.norm.weight with lora.rank = 8
lora.rank: 8; optimizer.parameters: "*.lora_*: frozen" | all parameters are frozen
precision.gather: fp8; precision.products: fp8; precision.frozen: gather
    | precision.gather = fp8 with precision.frozen = gather .. expected fp32
model.query_rank: 64 | model.query_rank = 64 .. model.kv_rank = 0 .. expected 0, or a kv_rank
model.rotary_width: 8 | model.rotary_width = 8 .. model.kv_rank = 0 .. expected 0, or a kv_rank
model.value_width: 8 | model.value_width = 8 .. model.kv_rank = 0 .. expected 0, or a kv_rank
model.kv_rank: 32 | model.rotary_width = 0 .. model.kv_rank = 32 .. less than model.head_width = 64
model.kv_rank: 32; model.rotary_width: 64 | model.rotary_width = 64 .. less than model.head_width = 64
model.kv_rank: 32; model.rotary_width: 7 | model.positions = rotary .. model.rotary_width = 7
model.kv_rank: 32; model.rotary_width: 8; model.kv_heads: 2
    | model.kv_heads = 2 .. model.kv_rank = 32 .. expected model.heads = 4
model.multi_token_depth: 1
    | model.tie_embeddings = true with model.multi_token_depth = 1 .. expected false
model.multi_token_depth: 1; model.tie_embeddings: false; parallel.context: 2
    | parallel.context = 2 with model.multi_token_depth = 1 .. expected 1
model.multi_token_depth: 1; model.tie_embeddings: false; training.context_grain: 2
    | training.context_grain = 2 with model.multi_token_depth = 1 .. expected 1
model.multi_token_depth: 1; model.tie_embeddings: false; training.sequence_length: 1
    | training.sequence_length = 1 with model.multi_token_depth = 1 .. expected 2 or more
model.kv_rank: 32; model.rotary_width: 8; model.bias: true
    | model.bias = true .. model.kv_rank = 32 .. expected model.qkv_bias = false
model.kv_rank: 32; model.rotary_width: 8; model.qkv_bias: true | model.qkv_bias = true .. model.kv_rank = 32
model.kv_rank: 32; model.rotary_width: 8; model.query_key_norm: true
    | model.query_key_norm is set .. model.kv_rank = 32 .. expected false
model.kv_rank: 32; model.rotary_width: 8; model.rotary_share: 0.5
    | model.rotary_share = 0.5 .. model.kv_rank = 32 .. model.rotary_width .. expected 1
model.kv_rank: 30; model.rotary_width: 8; model.tensor_grain: 4
    | model.tensor_grain = 4 .. model.kv_rank = 30 .. (30 = 4 x 7 + 2)
model.kv_rank: 32; model.rotary_width: 8; model.query_rank: 6; parallel.tensor: 4
    | parallel.tensor = 4 .. model.query_rank = 6 .. (6 = 4 x 1 + 2)
model.kv_rank: 32; model.rotary_width: 2; parallel.tensor: 4
    | parallel.tensor = 4 .. model.rotary_width = 2 .. (2 = 4 x 0 + 2)
model.experts: 4096; model.layers: 100000; model.expert_width: 67108864
    | model.layers x model.experts x model.width x model.expert_width = 100000 x 4096 x 256 x 67108864
model.blocks_per_unit: 5 | model.blocks_per_unit = 5 .. model.layers = 4
model.heads: 256 | model.positions = rotary .. model.width / model.heads = 256 / 256 = 1
model.rotary_share: 0.3 | model.rotary_share = 0.3 .. 64 .. 19 elements .. expected an even number
model.rotary_share: 0.01 | model.rotary_share = 0.01 .. 0 elements .. expected an even number
model.rotary_scaling: llama3; model.rotary_factor: 8
    | model.rotary_original_length = 0 with model.rotary_scaling = llama3 .. expected 1 or more tokens
model.rotary_scaling: yarn | model.rotary_original_length = 0 with model.rotary_scaling = yarn
model.rotary_scaling: longrope | model.rotary_original_length = 0 with model.rotary_scaling = longrope
model.rotary_scaling: llama3; model.rotary_original_length: 64; model.rotary_low_factor: 4
    | model.rotary_high_factor = 4 with model.rotary_scaling = llama3 .. more than model.rotary_low_factor = 4
model.rotary_scaling: yarn; model.rotary_original_length: 64; model.rotary_base: 1
    | model.rotary_base = 1 with model.rotary_scaling = yarn; expected more than 1
model.rotary_scaling: yarn; model.rotary_original_length: 64; model.rotary_beta_slow: 40
    | model.rotary_beta_fast = 32 with model.rotary_scaling = yarn .. model.rotary_beta_slow = 40
model.rotary_scaling: longrope; model.rotary_original_length: 64; model.rotary_short_factors: "1, 2"
    | model.rotary_short_factors has 2 numbers with model.rotary_scaling = longrope; expected 32
model.heads: 64; model.rotary_scaling: longrope; model.rotary_original_length: 64; model.rotary_short_factors: "1, 2"
    | model.rotary_long_factors has 0 numbers with model.rotary_scaling = longrope; expected 2
training.micro_batch_size: 3
    | training.micro_batch_size = 3 .. training.global_batch_size = 8 .. (8 = 3 x 2 + 2)
training.micro_batch_size: 16
    | training.micro_batch_size = 16 .. training.global_batch_size = 8 .. (8 = 16 x 0 + 8)
parallel.context: 3 | parallel.context = 3 .. training.sequence_length = 256 .. (256 = 6 x 42 + 4)
training.sequence_length: 100; training.context_grain: 8
    | training.context_grain = 8 .. training.sequence_length = 100 .. (100 = 16 x 6 + 4)
training.context_grain: 2; parallel.context: 4
    | parallel.context = 4 .. training.context_grain = 2 .. (2 = 4 x 0 + 2)
training.micro_batch_size: 2; training.context_grain: 4
    | training.context_grain = 4 .. training.micro_batch_size = 2 .. training.leaf = micro_batch
training.micro_batch_size: 4; training.leaf: sequence; parallel.context: 2
    | training.leaf = sequence .. parallel.context = 2
training.micro_batch_size: 4; training.leaf: sequence; training.sum_grain: 2
    | training.sum_grain = 2 .. training.leaf .. training.micro_batch_size = 4
parallel.pipeline: 2; parallel.pipeline_chunks: 2 | parallel.pipeline_chunks = 2 .. parallel.schedule = 1f1b
parallel.pipeline: 2; parallel.schedule: interleaved
    | parallel.pipeline_chunks = 1 .. parallel.schedule = interleaved
parallel.schedule: interleaved; parallel.pipeline_chunks: 2
    | parallel.schedule = interleaved .. parallel.pipeline = 1
parallel.pipeline_units: 3 3 | parallel.pipeline_units .. parallel.pipeline = 1
parallel.tensor_chunks: 2 | parallel.tensor_chunks = 2 .. parallel.tensor = 1
parallel.tensor: 2; parallel.tensor_chunks: 3 | parallel.tensor_chunks = 3
parallel.tensor: 8 | parallel.tensor = 8 .. model.heads = 4 .. (4 = 8 x 0 + 4)
model.kv_heads: 2; model.tensor_grain: 4 | model.tensor_grain = 4 .. model.kv_heads = 2 .. (2 = 4 x 0 + 2)
model.tensor_grain: 2; parallel.tensor: 4 | parallel.tensor = 4 .. model.tensor_grain = 2 .. (2 = 4 x 0 + 2)
model.head_width: 6; model.query_key_norm: true; model.tensor_grain: 4
    | model.tensor_grain = 4 .. model.head_width = 6 .. (6 = 4 x 1 + 2) .. model.query_key_norm = true
model.width: 40; model.query_key_norm: true; parallel.tensor: 4
    | parallel.tensor = 4 .. model.width / model.heads = 10 .. (10 = 4 x 2 + 2) .. model.query_key_norm = true
model.head_width: 6; model.query_key_norm: rotated; model.tensor_grain: 4
    | model.tensor_grain = 4 .. model.head_width = 6 .. (6 = 4 x 1 + 2) .. model.query_key_norm = rotated
model.query_key_norm: whole; model.query_key_norm_kind: layernorm
    | model.query_key_norm = whole .. model.query_key_norm_kind = layernorm .. expected rmsnorm
model.vocabulary: 9; model.tensor_grain: 4 | model.tensor_grain = 4 .. model.vocabulary = 9
model.tensor_grain: 4; training.sequence_length: 6 | model.tensor_grain = 4 .. (6 = 4 x 1 + 2)
parallel.sharding: none; parallel.shard_optimizer_over: world
    | parallel.shard_optimizer_over = world .. parallel.sharding = none
precision.activations: bf16 | precision.activations = bf16 .. precision.gather = fp32 .. expected auto or fp32
precision.gather: bf16; precision.activations: fp32 | precision.activations = fp32 .. precision.gather = bf16
precision.products: fp8; precision.gather: fp16
    | precision.products = fp8 .. precision.gather = fp16 .. expected bf16 or fp32
precision.products: mxfp8; precision.gather: fp16
    | precision.products = mxfp8 .. precision.gather = fp16 .. expected bf16 or fp32
precision.gather: fp8 | precision.gather = fp8 .. precision.products = auto .. expected fp8 or mxfp8
precision.gather: fp8; precision.products: fp8; parallel.sharding: gradients
    | precision.gather = fp8 .. parallel.sharding = gradients .. expected full
precision.gather: fp8; precision.products: mxfp8; parallel.sharding: full; memory.offload: all
    | precision.gather = fp8 .. memory.offload = all .. expected none
precision.gather: fp8; precision.activations: fp32 | precision.activations = fp32 .. expected auto or bf16
precision.products: fp8; model.layers: 2
    | precision.products = fp8 .. precision.fp8_layers = auto .. none of the 2 layers .. products: auto
precision.products: fp8; precision.fp8_layers: none | precision.products = fp8 .. precision.fp8_layers = none
precision.products: fp8; precision.fp8_layers: 2-4; model.layers: 4
    | precision.fp8_layers = 2-4 .. model.layers = 4 .. expected layers up to 3
precision.products: fp8; model.layers: 4; model.kv_rank: 32; model.rotary_width: 8
    | precision.products = fp8 .. model.kv_rank = 32 .. expected auto
precision.products: fp8; model.layers: 4; model.experts: 4
    | precision.products = fp8 in layer 1 .. model.experts = 4 .. precision.fp8_layers
model.vocabulary: 2147483647; model.width: 4194304 | model.vocabulary x model.width = 2147483647 x 4194304
model.layers: 100000; model.width: 1048576
    | model.layers x model.width x model.width = 100000 x 1048576 x 1048576
training.sequence_length: 4294967296 | training.micro_batch_size x training.sequence_length = 1 x 4294967296
training.steps: 9007199254740991
    | training.steps x training.global_batch_size x training.sequence_length = 9007199254740991 x 8 x 256
model.attention_scale: 1e-7 | model.attention_scale = 1e-07; expected 0, or 1e-06 to 1e+06
model.attention_soft_cap: 1e-9 | model.attention_soft_cap = 1e-09; expected 0, or 1e-06 to 1e+06
model.clip_qkv: 1e7 | model.clip_qkv = 1e+07; expected 0, or 1e-06 to 1e+06
model.positions: learned; model.max_positions: 7 | model.max_positions = 7 .. training.sequence_length = 256
)");
  expect_refused({{"ostrakon:\n", "data.path is missing: data.dataset = tokens needs a token file"},
                  {"ostrakon:\n  data:\n    path: x.h5\n  training:\n    validate_every: 10\n",
                   "training.validate_every = 10 needs data.validation_path, which is empty"}},
                 "deck.yaml");
  expect_together_refused(R"(
training.validate_ema: true | training.validate_ema = true .. training.ema = 0 .. expected training.ema above 0
training.ema: 0.9; training.validate_ema: true; parallel.pipeline: 2
    | training.validate_ema = true with parallel.pipeline = 2 .. model.tie_embeddings = true .. expected false
training.evaluate: q.jsonl | training.evaluate_every = 0 with training.evaluate = .. q.jsonl .. expected both
training.evaluate_every: 5 | training.evaluate_every = 5 with training.evaluate = .. expected both
training.evaluate: q.jsonl; training.evaluate_every: 5 | data.dataset = synthetic .. expected tokens
)");
  const std::string asks =
      "ostrakon:\n  training: {evaluate: q.jsonl, evaluate_every: 5}\n  data: {path: x.h5";
  expect_refused({{asks + ", documents: separate}\n",
                   "training.evaluate = .. with data.documents = separate .. expected continue"},
                  {asks + "}\n  model: {multi_token_depth: 1, tie_embeddings: false}\n",
                   "training.evaluate = .. with model.multi_token_depth = 1 .. expected 0"}},
                 "deck.yaml");
  const std::string pairs = "ostrakon:\n  data: {path: x.h5";
  const auto dpo = [&](const std::string& more) {
    return pairs + "}\n  training: {objective: dpo}\n  " + more + "\n";
  };
  expect_refused(
      {{pairs + ", dataset: synthetic}\n  training: {objective: dpo}\n",
        "training.objective = dpo with data.dataset = synthetic .. expected tokens"},
       {pairs + ", documents: separate}\n  training: {objective: dpo}\n",
        "training.objective = dpo with data.documents = separate .. expected continue, the "
        "default"},
       {dpo("parallel: {tensor: 2}"), "dpo with parallel.tensor = 2 .. expected 1"},
       {pairs + "}\n  training: {objective: dpo, z_loss: 0.1}\n",
        "dpo with training.z_loss = 0.1 .. expected 0"},
       {pairs + "}\n  training: {objective: dpo, label_smoothing: 0.1}\n",
        "dpo with training.label_smoothing = 0.1 .. expected 0"},
       {pairs + "}\n  training: {objective: dpo, evaluate: q.jsonl, evaluate_every: 5}\n",
        "dpo with training.evaluate = .. q.jsonl .. expected none"},
       {dpo("model: {tensor_grain: 2}"), "dpo with model.tensor_grain = 2 .. expected 1"},
       {dpo("parallel: {context: 2}"), "dpo with parallel.context = 2 .. expected 1"},
       {pairs + "}\n  training: {objective: dpo, context_grain: 4}\n",
        "dpo with training.context_grain = 4 .. expected 1"},
       {dpo("model: {experts: 4, router_balance: loss}"), "dpo with model.router_balance = loss"},
       {dpo("model: {delta_key_heads: 4, delta_value_heads: 4}"),
        "dpo with model.delta_key_heads = 4 .. expected a model without"},
       {dpo("model: {multi_token_depth: 1, tie_embeddings: false}"),
        "dpo with model.multi_token_depth = 1 .. expected 0"}},
      "deck.yaml");
  const std::string separate = "ostrakon:\n  data: {path: x.h5, documents: separate";
  expect_refused(
      {{separate + ", dataset: synthetic}\n",
        "data.documents = separate with data.dataset = synthetic .. expected tokens, or"},
       {separate + "}\n  model: {multi_token_depth: 1, tie_embeddings: false}\n",
        "data.documents = separate with model.multi_token_depth = 1 .. expected 0, or"},
       {separate + "}\n  model: {delta_key_heads: 4, delta_value_heads: 4}\n",
        "data.documents = separate with model.delta_key_heads = 4 .. expected a model without, "
        "or"}},
      "deck.yaml");
}

}  // namespace
}  // namespace ostrakon::config
