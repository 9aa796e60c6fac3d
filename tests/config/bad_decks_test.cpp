// SPDX-License-Identifier: Apache-2.0
// Unknown keys, and invalid values.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/bad_decks.hpp"

namespace ostrakon::config {
namespace {

TEST(BadDecks, UnknownKeysAndSections) {
  expect_messages(
      {{with("model", "widht: 256"),
        "deck.yaml: model.widht = 256: no such key; did you mean model.width?"},
       {with("model", "steps: 5"),
        "deck.yaml: model.steps = 5: no such key; did you mean training.steps?"},
       {with("training", "learning_rate: 0.1"),
        "deck.yaml: training.learning_rate = 0.1: no such key; did you mean "
        "optimizer.learning_rate?"},
       {with("training", "Steps: 5"),
        "deck.yaml: training.Steps = 5: no such key; did you mean training.steps?"},
       {with("training", "lerning_rate: 1"),
        "deck.yaml: training.lerning_rate = 1: no such key; did you mean "
        "optimizer.learning_rate?"},
       {with("precision", "xyzzy: on"),
        "deck.yaml: precision.xyzzy = \"on\": no such key; the keys of precision are parameters, "
        "gather, activations, reduce and loss_scale"},
       {with("optimizer", "beta3: [1, 2]"),
        "deck.yaml: optimizer.beta3: no such key; did you mean optimizer.beta1?"},
       {with("trainig", "steps: 5"), "deck.yaml: trainig: no such section; did you mean training?"},
       {"ostrakon:\n  steps: 5\n",
        "deck.yaml: steps = 5: no such section; did you mean training.steps?"},
       {"ostrakon:\n  setps: 5\n",
        "deck.yaml: setps = 5: no such section; did you mean training.steps?"},
       {with("qqqqqqqqqq", "steps: 5"),
        "deck.yaml: qqqqqqqqqq: no such section; the sections are model, data, training, parallel, "
        "precision, memory, optimizer, schedule, checkpoint, output and runtime"},
       {"ostrakon:\n  model: 5\n", "deck.yaml: model = 5: expected a section, with keys below it"},
       {"ostrakon:\n  model: [1, 2]\n",
        "deck.yaml: model: expected a section, with keys below it, found a list"},
       {with("training", "steps:\n      more: 5"),
        "deck.yaml: training.steps: expected an integer >= 1, found a section; decks have three "
        "levels: ostrakon, section, key"},
       {with("training", "steps: [1, 2]"),
        "deck.yaml: training.steps: expected an integer >= 1, found a list"},
       {with("training", "steps:"),
        "deck.yaml: training.steps: expected an integer >= 1, found nothing"}},
      "deck.yaml");
}

TEST(BadDecks, ImpossibleValues) {
  expect_messages(
      {{with("training", "steps: -5"), "deck.yaml: training.steps = -5: expected an integer >= 1"},
       {with("training", "steps: 0"), "deck.yaml: training.steps = 0: expected an integer >= 1"},
       {with("training", "steps: 1.5"),
        "deck.yaml: training.steps = 1.5: expected an integer >= 1"},
       {with("training", "steps: \"5\""),
        "deck.yaml: training.steps = \"5\": expected an integer >= 1"},
       {with("training", "steps: five"),
        "deck.yaml: training.steps = \"five\": expected an integer >= 1"},
       {with("training", "steps: true"),
        "deck.yaml: training.steps = true: expected an integer >= 1"},
       {with("training", "steps: 1_000"),
        "deck.yaml: training.steps = \"1_000\": expected an integer >= 1"},
       {with("training", "steps: 1e30"),
        "deck.yaml: training.steps = 1e30: expected an integer >= 1 and <= 9007199254740991"},
       {with("training", "seed: 18446744073709551615"),
        "deck.yaml: training.seed = 18446744073709551615: expected an integer >= 0 and <= "
        "9007199254740991"},
       {with("training", "seed: 9223372036854775807"),
        "deck.yaml: training.seed = 9223372036854775807: expected an integer >= 0 and <= "
        "9007199254740991"},
       {with("training", "seed: -123456789012345678901  # too long"),
        "deck.yaml: training.seed = -123456789012345678901: expected an integer >= 0"},
       {with("training", "sequence_length: 0"),
        "deck.yaml: training.sequence_length = 0: expected an integer >= 1"},
       {with("training", "global_batch_size: 0"),
        "deck.yaml: training.global_batch_size = 0: expected an integer >= 1"},
       {with("training", "micro_batch_size: 0"),
        "deck.yaml: training.micro_batch_size = 0: expected an integer >= 1"},
       {with("training", "sum_grain: 6"),
        "deck.yaml: training.sum_grain = 6: expected 0 or a power of two up to 1073741824"},
       {with("training", "sum_grain: -8"),
        "deck.yaml: training.sum_grain = -8: expected 0 or a power of two up to 1073741824"},
       {with("training", "sum_grain: 0.5"),
        "deck.yaml: training.sum_grain = 0.5: expected 0 or a power of two up to 1073741824"},
       {with("training", "context_grain: 0"),
        "deck.yaml: training.context_grain = 0: expected a power of two up to 1073741824"},
       {with("training", "context_grain: 3"),
        "deck.yaml: training.context_grain = 3: expected a power of two up to 1073741824"},
       {with("training", "leaf: token"),
        "deck.yaml: training.leaf = \"token\": expected micro_batch or sequence"},
       {with("training", "time_limit_minutes: -1"),
        "deck.yaml: training.time_limit_minutes = -1: expected a number >= 0"},
       {with("model", "layers: 0"),
        "deck.yaml: model.layers = 0: expected an integer from 1 to 100000"},
       {with("model", "width: -256"),
        "deck.yaml: model.width = -256: expected an integer from 1 to 67108864"},
       {with("model", "heads: 0"),
        "deck.yaml: model.heads = 0: expected an integer from 1 to 67108864"},
       {with("model", "vocabulary: 2147483648"),
        "deck.yaml: model.vocabulary = 2147483648: expected an integer from 2 to 2147483647"},
       {with("model", "norm: batchnorm"),
        "deck.yaml: model.norm = \"batchnorm\": expected layernorm or rmsnorm"},
       {with("model", "norm: 5"), "deck.yaml: model.norm = 5: expected layernorm or rmsnorm"},
       {with("model", "bias: 1"), "deck.yaml: model.bias = 1: expected true or false"},
       {with("model", "bias: on"), "deck.yaml: model.bias = \"on\": expected true or false"},
       {with("model", "norm_epsilon: 0"),
        "deck.yaml: model.norm_epsilon = 0: expected a number from 1.2e-38 to 1"},
       {with("optimizer", "beta1: 1"),
        "deck.yaml: optimizer.beta1 = 1: expected a number >= 0 and < 1"},
       {with("optimizer", "beta2: -0.1"),
        "deck.yaml: optimizer.beta2 = -0.1: expected a number >= 0 and < 1"},
       {with("optimizer", "learning_rate: nan"),
        "deck.yaml: optimizer.learning_rate = \"nan\": expected a number from 0 to 1e30"},
       {with("optimizer", "learning_rate: .inf"),
        "deck.yaml: optimizer.learning_rate = .inf: expected a number from 0 to 1e30"},
       {with("optimizer", "learning_rate: 1e999"),
        "deck.yaml: optimizer.learning_rate = 1e999: expected a number from 0 to 1e30; 1e999 is "
        "beyond the "
        "range of a double"},
       {with("optimizer", "epsilon: 0"),
        "deck.yaml: optimizer.epsilon = 0: expected a number from 1.2e-38 to 1"},
       {with("optimizer", "epsilon: 1e-46"),
        "deck.yaml: optimizer.epsilon = 1e-46: expected a number from 1.2e-38 to 1"},
       {with("model", "norm_epsilon: 1e-46"),
        "deck.yaml: model.norm_epsilon = 1e-46: expected a number from 1.2e-38 to 1"},
       {with("model", "initializer_deviation: 1e300"),
        "deck.yaml: model.initializer_deviation = 1e300: expected a number from 1e-30 to 1e30"},
       {with("model", "mlp_bias: some"),
        "deck.yaml: model.mlp_bias = \"some\": expected auto, true or false"},
       {with("model", "positions: learned\n    max_positions: 7"),
        "deck.yaml: model.max_positions = 7 is less than training.sequence_length = 256; expected "
        "auto, "
        "or 256 or more"},
       {with("model", "rotary_base: 0.5"),
        "deck.yaml: model.rotary_base = 0.5: expected a number from 1 to 1e12"},
       {with("model", "rotary_base: 1e13"),
        "deck.yaml: model.rotary_base = 1e13: expected a number from 1 to 1e12"},
       {with("optimizer", "learning_rate: 1e39"),
        "deck.yaml: optimizer.learning_rate = 1e39: expected a number from 0 to 1e30"},
       {with("optimizer", "weight_decay: 1e39"),
        "deck.yaml: optimizer.weight_decay = 1e39: expected a number from 0 to 1e30"},
       {with("optimizer", "clip_norm: 1e39"),
        "deck.yaml: optimizer.clip_norm = 1e39: expected a number from 0 to 1e30"},
       {with("model", "layers: 100001"),
        "deck.yaml: model.layers = 100001: expected an integer from 1 to 100000"},
       {with("optimizer", "name: adam"),
        "deck.yaml: optimizer.name = \"adam\": expected adamw, sgd, lion or muon"},
       {with("optimizer", "momentum: 1"),
        "deck.yaml: optimizer.momentum = 1: expected a number >= 0 and < 1"},
       {with("optimizer", "momentum: -0.1"),
        "deck.yaml: optimizer.momentum = -0.1: expected a number >= 0 and < 1"},
       {with("optimizer", "nesterov: 1"),
        "deck.yaml: optimizer.nesterov = 1: expected true or false"},
       {with("optimizer", "moments: fp16"),
        "deck.yaml: optimizer.moments = \"fp16\": expected fp32 or bf16"},
       {with("precision", "parameters: bf16"),
        "deck.yaml: precision.parameters = \"bf16\": expected fp32, the only value that this "
        "version accepts"},
       {with("precision", "gather: fp64"),
        "deck.yaml: precision.gather = \"fp64\": expected fp32, bf16 or fp16"},
       {with("precision", "gather: 16"),
        "deck.yaml: precision.gather = 16: expected fp32, bf16 or fp16"},
       {with("precision", "gather: auto"),
        "deck.yaml: precision.gather = \"auto\": expected fp32, bf16 or fp16"},
       {with("precision", "reduce: fp8"),
        "deck.yaml: precision.reduce = \"fp8\": expected fp32, bf16 or fp16"},
       {with("precision", "activations: float"),
        "deck.yaml: precision.activations = \"float\": expected auto, fp32, bf16 or fp16"},
       {with("training", "on_non_finite: ignore"),
        "deck.yaml: training.on_non_finite = \"ignore\": expected stop or skip"},
       {with("training", "on_non_finite: yes"),
        "deck.yaml: training.on_non_finite = true: expected stop or skip"},
       {with("training", "skip_outliers: -1"),
        "deck.yaml: training.skip_outliers = -1: expected a number >= 0"},
       {with("training", "skip_outliers: yes"),
        "deck.yaml: training.skip_outliers = true: expected a number >= 0"},
       {with("training", "outlier_window: 1"),
        "deck.yaml: training.outlier_window = 1: expected an integer >= 2"},
       {with("schedule", "decay_steps: -1"),
        "deck.yaml: schedule.decay_steps = -1: expected an integer >= 0"},
       {with("schedule", "decay_steps: 0.1"),
        "deck.yaml: schedule.decay_steps = 0.1: expected an integer >= 0"},
       {with("memory", "offload: host"),
        "deck.yaml: memory.offload = \"host\": expected none, optimizer, parameters or all"},
       {with("memory", "offload: yes"),
        "deck.yaml: memory.offload = true: expected none, optimizer, parameters or all"},
       {with("memory", "pinned: 1"), "deck.yaml: memory.pinned = 1: expected true or false"},
       {with("memory", "pinned: host"),
        "deck.yaml: memory.pinned = \"host\": expected true or false"},
       {with("memory", "activations: disk"),
        "deck.yaml: memory.activations = \"disk\": expected device or host"},
       {with("memory", "activations: bf16"),
        "deck.yaml: memory.activations = \"bf16\": expected device or host"},
       {with("optimizer", "muon_iterations: 0"),
        "deck.yaml: optimizer.muon_iterations = 0: expected an integer from 1 to 1000"},
       {with("optimizer", "muon_iterations: 2.5"),
        "deck.yaml: optimizer.muon_iterations = 2.5: expected an integer from 1 to 1000"},
       {with("optimizer", "muon_iterations: 4294967297"),
        "deck.yaml: optimizer.muon_iterations = 4294967297: expected an integer from 1 to 1000"},
       {with("optimizer", "muon_rate_factor: 0"),
        "deck.yaml: optimizer.muon_rate_factor = 0: expected a number from 1e-30 to 1e30"},
       {with("optimizer", "muon_rate_factor: -1"),
        "deck.yaml: optimizer.muon_rate_factor = -1: expected a number from 1e-30 to 1e30"},
       {with("parallel", "sharding: zero3"),
        "deck.yaml: parallel.sharding = \"zero3\": expected none, optimizer, gradients or "
        "full"},
       {with("parallel", "accumulation: automatic"),
        "deck.yaml: parallel.accumulation = \"automatic\": expected auto, reduce_each, shard_each "
        "or reduce_last"},
       {with("parallel", "shard_group: nodes"),
        "deck.yaml: parallel.shard_group = \"nodes\": expected world, node or an integer from 1 to "
        "1048576"},
       {with("parallel", "shard_group: 0"),
        "deck.yaml: parallel.shard_group = 0: expected world, node or an integer from 1 to "
        "1048576"},
       {with("parallel", "shard_group: 2.5"),
        "deck.yaml: parallel.shard_group = 2.5: expected world, node or an integer from 1 to "
        "1048576"},
       {with("parallel", "shard_optimizer_over: node"),
        "deck.yaml: parallel.shard_optimizer_over = \"node\": expected shard_group or world"},
       {with("parallel", "ranks_per_node: -1"),
        "deck.yaml: parallel.ranks_per_node = -1: expected an integer from 0 to 1048576"},
       {with("schedule", "final_fraction: 1.1"),
        "deck.yaml: schedule.final_fraction = 1.1: expected a number from 0 to 1"},
       {with("schedule", "warmup_steps: -1"),
        "deck.yaml: schedule.warmup_steps = -1: expected an integer >= 0"},
       {with("schedule", "tail: exponential"),
        "deck.yaml: schedule.tail = \"exponential\": expected cosine, linear, constant, "
        "warmup_stable_decay or inverse_square_root"},
       {with("output", "directory: \"\""),
        "deck.yaml: output.directory = \"\": expected a path that is not empty (numbers and yes/no "
        "need quotes)"},
       {with("output", "directory: 2026"),
        "deck.yaml: output.directory = 2026: expected a path that is not empty (numbers and yes/no "
        "need quotes)"},
       {with("output", "every: 0"), "deck.yaml: output.every = 0: expected an integer >= 1"},
       {with("runtime", "threads: 0"),
        "deck.yaml: runtime.threads = 0: expected auto or an integer from 1 to 4096"},
       {"ostrakon:\n  data:\n    dataset: synthetic\n    synthetic_noise: 1.5\n",
        "deck.yaml: data.synthetic_noise = 1.5: expected a number from 0 to 1"},
       {"ostrakon:\n  data:\n    dataset: imagenet\n",
        "deck.yaml: data.dataset = \"imagenet\": expected tokens or synthetic"}},
      "deck.yaml");
}

TEST(BadDecks, LossScalesArePowersOfTwo) {
  const std::string expected = ": expected a power of two from 1 to 16777216";
  for (const char* number :
       {"0", "-2", "0.5", "3", "65535", "65536.5", "33554432", "1e300", "1e-300", "true"}) {
    EXPECT_EQ(message_of(with("precision", text("loss_scale: ", number)), "deck.yaml"),
              text("deck.yaml: precision.loss_scale = ", number, expected));
  }
  for (const char* written : {"auto", "2^16", "nan", "inf"}) {
    EXPECT_EQ(message_of(with("precision", text("loss_scale: ", written)), "deck.yaml"),
              text("deck.yaml: precision.loss_scale = \"", written, '"', expected));
  }
}

TEST(BadDecks, ActivationCheckpointing) {
  const std::string expected =
      ": expected none, full, every N with N from 1 to 100000, or selective followed by one or "
      "more of attention, norms and mlp";
  const std::string place = "deck.yaml: memory.activation_checkpointing";
  for (const char* number : {"true", "0", "2"}) {
    EXPECT_EQ(message_of(with("memory", text("activation_checkpointing: ", number)), "deck.yaml"),
              text(place, " = ", number, expected));
  }
  for (const char* written : {"",
                              "None",
                              "all",
                              "full 2",
                              "none none",
                              "every",
                              "every 0",
                              "every -1",
                              "every 1.5",
                              "every 100001",
                              "every 1e300",
                              "every block",
                              "every 2 3",
                              "every2",
                              "every yes",
                              "selective",
                              "selective atention",
                              "selective 2",
                              "selective attention,mlp",
                              "selective attention attention",
                              "selective attention full",
                              "attention mlp",
                              "selective none",
                              "selective mlp every 2",
                              "selectively mlp"}) {
    EXPECT_EQ(
        message_of(with("memory", text("activation_checkpointing: \"", written, '"')), "deck.yaml"),
        text(place, " = \"", written, '"', expected));
  }
  expect_messages({{with("memory", "activation_checkpointing: [attention, mlp]"),
                    place + expected + ", found a list"},
                   {with("memory", "checkpointing: full"),
                    "deck.yaml: memory.checkpointing = \"full\": no such key; did you mean "
                    "memory.activation_checkpointing?"}},
                  "deck.yaml");
}

TEST(BadDecks, NamesOrNumbers) {
  const std::string reshard =
      "expected default, always, never, end_of_step or an integer from 2 to 1048576";
  const std::string blocks = "expected auto or an integer from 1 to 100000";
  const std::string ahead = "expected an integer from 0 to 1000";
  expect_messages(
      {{with("parallel", "shard_group: 1048577"),
        "deck.yaml: parallel.shard_group = 1048577: expected world, node or an integer from 1 to "
        "1048576"},
       {with("parallel", "reshard_after_forward: yes"),
        "deck.yaml: parallel.reshard_after_forward = true: " + reshard},
       {with("parallel", "reshard_after_forward: sometimes"),
        "deck.yaml: parallel.reshard_after_forward = \"sometimes\": " + reshard},
       {with("parallel", "reshard_after_forward: 1"),
        "deck.yaml: parallel.reshard_after_forward = 1: " + reshard},
       {with("parallel", "reshard_after_forward: 2.5"),
        "deck.yaml: parallel.reshard_after_forward = 2.5: " + reshard},
       {with("parallel", "reshard_after_forward: -2"),
        "deck.yaml: parallel.reshard_after_forward = -2: " + reshard},
       {with("parallel", "reshard_after_forward: 1e18"),
        "deck.yaml: parallel.reshard_after_forward = 1e18: " + reshard},
       {with("parallel", "reshard_after_forward: \"4\""),
        "deck.yaml: parallel.reshard_after_forward = \"4\": " + reshard},
       {with("parallel", "forward_prefetch: -1"),
        "deck.yaml: parallel.forward_prefetch = -1: " + ahead},
       {with("parallel", "forward_prefetch: block.1"),
        "deck.yaml: parallel.forward_prefetch = \"block.1\": " + ahead},
       {with("parallel", "backward_prefetch: 0.5"),
        "deck.yaml: parallel.backward_prefetch = 0.5: " + ahead},
       {with("parallel", "backward_prefetch: 1001"),
        "deck.yaml: parallel.backward_prefetch = 1001: " + ahead},
       {with("parallel", "in_flight_reductions: 1e300"),
        "deck.yaml: parallel.in_flight_reductions = 1e300: " + ahead},
       {with("parallel", "in_flight_reductions: unlimited"),
        "deck.yaml: parallel.in_flight_reductions = \"unlimited\": " + ahead},
       {with("parallel", "prefetch: 2"),
        "deck.yaml: parallel.prefetch = 2: no such key; did you mean parallel.forward_prefetch or "
        "parallel.backward_prefetch?"},
       {with("parallel", "gathers: 2"),
        "deck.yaml: parallel.gathers = 2: no such key; did you mean parallel.in_flight_gathers?"},
       {with("parallel", "xyzzy: 2"),
        "deck.yaml: parallel.xyzzy = 2: no such key; the keys of parallel are choose, sharding, "
        "shard_group, context, pipeline, schedule, zero_bubble_memory, pipeline_chunks, "
        "pipeline_units, expert, "
        "expert_capacity, tensor, "
        "tensor_chunks, rank_order, shard_optimizer_over, "
        "accumulation, leaf_order, reshard_after_forward, forward_prefetch, backward_prefetch, "
        "in_flight_gathers, in_flight_reductions, units, updates, "
        "reduction, hierarchical_collectives, node_windows and ranks_per_node"},
       {with("parallel", "forward_prefech: 2"),
        "deck.yaml: parallel.forward_prefech = 2: no such key; did you mean "
        "parallel.forward_prefetch?"},
       {with("model", "blocks_per_unit: 0"), "deck.yaml: model.blocks_per_unit = 0: " + blocks},
       {with("model", "blocks_per_unit: -1"), "deck.yaml: model.blocks_per_unit = -1: " + blocks},
       {with("model", "blocks_per_unit: 1.5"), "deck.yaml: model.blocks_per_unit = 1.5: " + blocks},
       {with("model", "blocks_per_unit: 1e9"), "deck.yaml: model.blocks_per_unit = 1e9: " + blocks},
       {with("model", "blocks_per_unit: automatic"),
        "deck.yaml: model.blocks_per_unit = \"automatic\": " + blocks},
       {with("runtime", "streams: 2"),
        "deck.yaml: runtime.streams = 2: expected inline, threads or auto"},
       {with("runtime", "streams: thread"),
        "deck.yaml: runtime.streams = \"thread\": expected inline, threads or auto"},
       {with("runtime", "paths_from: here"),
        "deck.yaml: runtime.paths_from = \"here\": expected deck or working_directory"},
       {with("output", "trace: -1"), "deck.yaml: output.trace = -1: expected an integer >= 0"},
       {with("output", "trace: yes"), "deck.yaml: output.trace = true: expected an integer >= 0"},
       {with("output", "trace: 1e20"),
        "deck.yaml: output.trace = 1e20: expected an integer >= 0 and <= 9007199254740991"}},
      "deck.yaml");
}

TEST(BadDecks, LimitsOfGathers) {
  const std::string expected =
      ": expected unlimited, an integer from 1 to 1000000 (units), or bytes up to 4096 TiB in B, "
      "kB, KiB, MB, "
      "MiB, GB, GiB, TB or TiB";
  const std::string place = "deck.yaml: parallel.in_flight_gathers";
  for (const char* number : {"0", "-1", "1.5", "-2.5", "true"}) {
    EXPECT_EQ(message_of(with("parallel", text("in_flight_gathers: ", number)), "deck.yaml"),
              text(place, " = ", number, expected));
  }
  for (const char* written :
       {"",        "8 Gib",      "8 GIB",   "8 gb",     "500 mB",     "500 KB",
        "500 kb",  "8 G",        "8GiBs",   "8  GiB",   " 8 GiB",     "8 GiB ",
        "8 bytes", "GiB",        ". GiB",   "1.2.3 GB", "-8 GiB",     "+8 GiB",
        "1e3 MB",  "1,5 GiB",    "0 B",     "0.4 B",    "0 GiB",      "0.0001 kB",
        "none",    "Unlimited",  "auto",    "8 PiB",    "4097 TiB",   "5000 TB",
        "1e999",   "nan GiB",    "8 units", "0x10 B",   "8 GiB 1 MB", "\xD9\xA3 GB",
        "inf B",   "8 GiB/rank", "8_000 B", "1/2 GiB"}) {
    EXPECT_EQ(
        message_of(with("parallel", text("in_flight_gathers: \"", written, "\"")), "deck.yaml"),
        text(place, " = \"", written, '"', expected));
  }
  EXPECT_EQ(
      message_of(with("parallel", "in_flight_gathers: 99999999999999999999999 TiB"), "deck.yaml"),
      place + " = \"99999999999999999999999 TiB\"" + expected);
  EXPECT_EQ(message_of(with("parallel", "in_flight_gathers: 1e16"), "deck.yaml"),
            place + " = 1e16" + expected);
}

}  // namespace
}  // namespace ostrakon::config
