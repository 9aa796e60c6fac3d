// SPDX-License-Identifier: Apache-2.0

// What is wrong with a deck, and the message that says so. Messages are whole: they are what users
// see.

#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/config/deck.hpp>
#include <string>
#include <vector>

namespace ostrakon::config {
namespace {

struct BadDeck {
  std::string deck;
  std::string message;
};

std::string message_of(const std::string& deck, const std::string& name,
                       const std::vector<Override>& overrides = {}) {
  try {
    read_settings(deck, name, overrides);
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

void expect_messages(const std::vector<BadDeck>& decks, const std::string& name) {
  for (const BadDeck& bad : decks) EXPECT_EQ(message_of(bad.deck, name), bad.message) << bad.deck;
}

/// A deck with synthetic data that says one thing more.
std::string with(const std::string& section, const std::string& line) {
  return "ostrakon:\n  data:\n    dataset: synthetic\n  " + section + ":\n    " + line + "\n";
}

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
        "deck.yaml: training.steps = 1e+30: expected an integer >= 1 and <= 9007199254740991"},
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
        "deck.yaml: optimizer.learning_rate = \".inf\": expected a number from 0 to 1e30"},
       {with("optimizer", "learning_rate: 1e999"),
        "deck.yaml: optimizer.learning_rate = \"1e999\": expected a number from 0 to 1e30"},
       {with("optimizer", "epsilon: 0"),
        "deck.yaml: optimizer.epsilon = 0: expected a number from 1.2e-38 to 1"},
       {with("optimizer", "epsilon: 1e-46"),
        "deck.yaml: optimizer.epsilon = 1e-46: expected a number from 1.2e-38 to 1"},
       {with("model", "norm_epsilon: 1e-46"),
        "deck.yaml: model.norm_epsilon = 1e-46: expected a number from 1.2e-38 to 1"},
       {with("model", "initializer_deviation: 1e300"),
        "deck.yaml: model.initializer_deviation = 1e+300: expected a number from 1e-30 to 1e30"},
       {with("model", "rotary_base: 0.5"),
        "deck.yaml: model.rotary_base = 0.5: expected a number from 1 to 1e12"},
       {with("model", "rotary_base: 1e13"),
        "deck.yaml: model.rotary_base = 10000000000000: expected a number from 1 to 1e12"},
       {with("optimizer", "learning_rate: 1e39"),
        "deck.yaml: optimizer.learning_rate = 1e+39: expected a number from 0 to 1e30"},
       {with("optimizer", "weight_decay: 1e39"),
        "deck.yaml: optimizer.weight_decay = 1e+39: expected a number from 0 to 1e30"},
       {with("optimizer", "clip_norm: 1e39"),
        "deck.yaml: optimizer.clip_norm = 1e+39: expected a number from 0 to 1e30"},
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
        "deck.yaml: precision.parameters = \"bf16\": expected fp32, the one value that this "
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
              text("deck.yaml: precision.loss_scale = ",
                   number == std::string("1e300") ? "1e+300" : number, expected));
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
  const std::string reshard = "expected default, always, never or an integer from 2 to 1048576";
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
        "deck.yaml: parallel.reshard_after_forward = 1e+18: " + reshard},
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
        "deck.yaml: parallel.in_flight_reductions = 1e+300: " + ahead},
       {with("parallel", "in_flight_reductions: unlimited"),
        "deck.yaml: parallel.in_flight_reductions = \"unlimited\": " + ahead},
       {with("parallel", "prefetch: 2"),
        "deck.yaml: parallel.prefetch = 2: no such key; did you mean parallel.forward_prefetch or "
        "parallel.backward_prefetch?"},
       {with("parallel", "gathers: 2"),
        "deck.yaml: parallel.gathers = 2: no such key; did you mean parallel.in_flight_gathers?"},
       {with("parallel", "xyzzy: 2"),
        "deck.yaml: parallel.xyzzy = 2: no such key; the keys of parallel are sharding, "
        "shard_group, shard_optimizer_over, accumulation, leaf_order, reshard_after_forward, "
        "forward_prefetch, backward_prefetch, in_flight_gathers, in_flight_reductions, units, "
        "reduction, hierarchical_collectives and ranks_per_node"},
       {with("parallel", "forward_prefech: 2"),
        "deck.yaml: parallel.forward_prefech = 2: no such key; did you mean "
        "parallel.forward_prefetch?"},
       {with("model", "blocks_per_unit: 0"), "deck.yaml: model.blocks_per_unit = 0: " + blocks},
       {with("model", "blocks_per_unit: -1"), "deck.yaml: model.blocks_per_unit = -1: " + blocks},
       {with("model", "blocks_per_unit: 1.5"), "deck.yaml: model.blocks_per_unit = 1.5: " + blocks},
       {with("model", "blocks_per_unit: 1e9"),
        "deck.yaml: model.blocks_per_unit = 1000000000: " + blocks},
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
        "deck.yaml: output.trace = 1e+20: expected an integer >= 0 and <= 9007199254740991"}},
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
            place + " = 1e+16" + expected);
}

TEST(BadDecks, RulesForUnits) {
  const std::string settings =
      "the settings are reshard_after_forward, forward_prefetch and backward_prefetch";
  const std::string empty = "expected SETTING VALUE after the colon and each comma; " + settings;
  const std::string reshard = "expected default, always, never or an integer from 2 to 1048576";
  const std::string ahead =
      "expected an integer from 0 to 1000, or names of units with blanks between";
  const std::string colon = "expected PATTERN: SETTING VALUE, SETTING VALUE ..., found no ':'";
  const std::string colons = "expected one ':', after the pattern; ';' separates rules";
  const std::string pattern = "expected one pattern before the colon, such as block.*";
  struct BadRule {
    std::string rule, problem;
  };
  const std::vector<BadRule> rules = {
      {"block.*", colon},
      {"block.* forward_prefetch 2", colon},
      {"forward_prefetch=2", colon},
      {"2", colon},
      {"block.*:", empty},
      {"block.*: ,", empty},
      {"block.*: forward_prefetch 2,", empty},
      {"block.*: forward_prefetch 2,, backward_prefetch 1", empty},
      {":", pattern},
      {": forward_prefetch 2", pattern},
      {"block 0: forward_prefetch 2", pattern},
      {"block.0, block.1: forward_prefetch 2", pattern},
      {"block.*:: forward_prefetch 2", colons},
      {"block.*: : forward_prefetch 2", colons},
      {"block.*: forward_prefetch: 2", colons},
      {"block.*: forward_prefetch 2, block.0: backward_prefetch 1", colons},
      {"block.*: forward_prefech 2",
       "\"forward_prefech\": no such setting; did you mean forward_prefetch?"},
      {"block.*: backwards_prefetch 2",
       "\"backwards_prefetch\": no such setting; did you mean backward_prefetch?"},
      {"block.*: forward_prefetch=2",
       "\"forward_prefetch=2\": no such setting; did you mean forward_prefetch?"},
      {"block.*: Reshard_after_forward never",
       "\"Reshard_after_forward\": no such setting; did you mean reshard_after_forward?"},
      {"block.*: sharding full", "\"sharding\": no such setting; " + settings},
      {"block.*: never", "\"never\": no such setting; " + settings},
      {"block.*: in_flight_gathers 2", "\"in_flight_gathers\": no such setting; " + settings},
      {"block.*: reshard_after_forward", "reshard_after_forward: " + reshard},
      {"block.*: reshard_after_forward 1", "reshard_after_forward = 1: " + reshard},
      {"block.*: reshard_after_forward -4", "reshard_after_forward = -4: " + reshard},
      {"block.*: reshard_after_forward 2.5", "reshard_after_forward = 2.5: " + reshard},
      {"block.*: reshard_after_forward 1048577", "reshard_after_forward = 1048577: " + reshard},
      {"block.*: reshard_after_forward yes", "reshard_after_forward = true: " + reshard},
      {"block.*: reshard_after_forward never always",
       "reshard_after_forward = \"never always\": " + reshard},
      {"block.*: forward_prefetch", "forward_prefetch: " + ahead},
      {"block.*: forward_prefetch -1", "forward_prefetch = -1: " + ahead},
      {"block.*: forward_prefetch 0.5", "forward_prefetch = 0.5: " + ahead},
      {"block.*: backward_prefetch 1001", "backward_prefetch = 1001: " + ahead},
      {"block.*: backward_prefetch 1e18", "backward_prefetch = 1e18: " + ahead},
      {"block.*: backward_prefetch 1e999", "backward_prefetch = \"1e999\": " + ahead},
      {"block.*: forward_prefetch 1 2", "forward_prefetch = \"1 2\": " + ahead},
      {"block.*: forward_prefetch 2 block.1", "forward_prefetch = \"2 block.1\": " + ahead},
      {"block.*: forward_prefetch block.1 2", "forward_prefetch = \"block.1 2\": " + ahead},
      {"block.*: prefetch 2",
       "\"prefetch\": no such setting; did you mean forward_prefetch or backward_prefetch?"},
      {"block.1: forward_prefetch block.1",
       "forward_prefetch names block.1 itself, which is there when it computes; expected other "
       "units"},
      {"head: forward_prefetch 1, backward_prefetch block.1 head",
       "backward_prefetch names head itself, which is there when it computes; expected other "
       "units"},
      {"block.*: forward_prefetch 1, forward_prefetch 2", "forward_prefetch is given twice"},
      {"block.*: reshard_after_forward never, reshard_after_forward never",
       "reshard_after_forward is given twice"}};
  for (const BadRule& bad : rules) {
    const std::string message = "parallel.units: rule \"" + bad.rule + "\": " + bad.problem;
    EXPECT_EQ(message_of(with("parallel", "units: \"" + bad.rule + "\""), "deck.yaml"),
              "deck.yaml: " + message);
    // The rule that is wrong is named, whatever stands around it.
    EXPECT_EQ(message_of(with("parallel", "units: \"head: forward_prefetch 1; " + bad.rule +
                                              " ; embedding: nothing\""),
                         "deck.yaml"),
              "deck.yaml: " + message);
    EXPECT_EQ(
        message_of(with("parallel", "sharding: full"), "deck.yaml", {{"parallel.units", bad.rule}}),
        "--set " + message);
  }
  const std::string expected =
      "expected rules PATTERN: SETTING VALUE, SETTING VALUE ..., separated by ';', as text";
  EXPECT_EQ(message_of(with("parallel", "sharding: full"), "deck.yaml",
                       {{"parallel.units", "a:\x7F forward_prefetch 2"}}),
            "--set parallel.units: \"a:\\x7f forward_prefetch 2\" has the control character \\x7f "
            "at byte 3; expected text without any");
  expect_messages(
      {{with("parallel", "units: 2"), "deck.yaml: parallel.units = 2: " + expected},
       {with("parallel", "units: [a, b]"),
        "deck.yaml: parallel.units: " + expected + ", found a list"},
       {with("parallel", "units: block.*: forward_prefetch 2"),
        "deck.yaml: not valid YAML: line 5: \"units: block.*: forward_prefetch 2\"; a line is "
        "`key: value`, text with any of : % , | > [ ] { } goes in quotes"},
       {with("parallel", "units: \"" + std::string(200, 'a') + '"'),
        "deck.yaml: parallel.units: rule \"" + std::string(100, 'a') + "...\": " + colon}},
      "deck.yaml");
}

TEST(BadDecks, RulesForParameters) {
  const std::string settings = "the settings are frozen, trained, learning_rate and weight_decay";
  const std::string empty = "expected SETTING VALUE after the colon and each comma; " + settings;
  const std::string number = "expected a number from 0 to 1e30";
  struct BadRule {
    std::string rule, problem;
  };
  const std::vector<BadRule> rules = {
      {"head.*", "expected PATTERN: SETTING VALUE, SETTING VALUE ..., found no ':'"},
      {"head.* frozen", "expected PATTERN: SETTING VALUE, SETTING VALUE ..., found no ':'"},
      {"head.*:", empty},
      {"head.*: frozen,", empty},
      {": frozen", "expected one pattern before the colon, such as block.*"},
      {"head embedding: frozen", "expected one pattern before the colon, such as block.*"},
      {"head.*: frozen: yes", "expected one ':', after the pattern; ';' separates rules"},
      {"head.*: frozen, embedding.*: frozen",
       "expected one ':', after the pattern; ';' separates rules"},
      {"head.*: forzen", "\"forzen\": no such setting; did you mean frozen?"},
      {"head.*: freeze", "\"freeze\": no such setting; " + settings},
      {"head.*: decay 0", "\"decay\": no such setting; did you mean weight_decay?"},
      {"head.*: lr 1e-3", "\"lr\": no such setting; " + settings},
      {"head.*: forward_prefetch 1", "\"forward_prefetch\": no such setting; " + settings},
      {"head.*: frozen yes",
       "frozen = true: expected nothing after it, and not trained in the same rule"},
      {"head.*: frozen, trained",
       "trained: expected nothing after it, and not frozen in the same rule"},
      {"head.*: trained, frozen",
       "frozen: expected nothing after it, and not trained in the same rule"},
      {"head.*: frozen, frozen", "frozen is given twice"},
      {"head.*: learning_rate 1, learning_rate 1", "learning_rate is given twice"},
      {"head.*: learning_rate", "learning_rate: " + number},
      {"head.*: learning_rate -1e-3", "learning_rate = -1e-3: " + number},
      {"head.*: learning_rate 1e31", "learning_rate = 1e31: " + number},
      {"head.*: learning_rate 1e-3 1e-4", "learning_rate = \"1e-3 1e-4\": " + number},
      {"head.*: weight_decay nan", "weight_decay = \"nan\": " + number},
      {"head.*: weight_decay no", "weight_decay = false: " + number}};
  for (const BadRule& bad : rules) {
    const std::string message = "optimizer.parameters: rule \"" + bad.rule + "\": " + bad.problem;
    EXPECT_EQ(message_of(with("optimizer", "parameters: \"" + bad.rule + "\""), "deck.yaml"),
              "deck.yaml: " + message);
    EXPECT_EQ(message_of(with("optimizer", "parameters: \"*: weight_decay 0; " + bad.rule +
                                               " ; embedding: nothing\""),
                         "deck.yaml"),
              "deck.yaml: " + message);
    EXPECT_EQ(
        message_of(with("model", "layers: 2"), "deck.yaml", {{"optimizer.parameters", bad.rule}}),
        "--set " + message);
  }
  const std::string expected =
      ": expected rules PATTERN: SETTING VALUE, SETTING VALUE ..., separated by ';', as text";
  expect_messages(
      {{with("optimizer", "parameters: 2"), "deck.yaml: optimizer.parameters = 2" + expected},
       {with("optimizer", "parameters: [embedding.*]"),
        "deck.yaml: optimizer.parameters" + expected + ", found a list"}},
      "deck.yaml");
}

TEST(BadDecks, RulesForParametersThatTheModelDoesNotHave) {
  const std::string none = ": no parameter of the model has such a name; they are ";
  const std::string llama =
      "embedding.token.weight, block.N.attention.norm.weight, block.N.attention.qkv.weight, "
      "block.N.attention.out.weight, block.N.mlp.norm.weight, block.N.mlp.gate_up.weight, "
      "block.N.mlp.down.weight and head.norm.weight, with N from 0 to 3";
  const std::string place = "deck.yaml: optimizer.parameters: rule ";
  for (const char* pattern :
       {"token.weight", "embedding", "block.4.*", "block.N.*", "head.output.weight", "*.bias",
        "embedding.position.weight", "block.0-3.*"}) {
    const std::string rule = text(pattern, ": frozen");
    EXPECT_EQ(message_of(with("optimizer", "parameters: \"" + rule + '"'), "deck.yaml"),
              place + '"' + rule + '"' + none + llama);
    EXPECT_EQ(message_of(with("optimizer", "parameters: \"head.*: frozen; " + rule +
                                               ", weight_decay 0; *: trained\""),
                         "deck.yaml"),
              place + '"' + rule + ", weight_decay 0\"" + none + llama);
  }
  EXPECT_EQ(
      message_of(with("optimizer", "parameters: \"block.12.*: learning_rate 1\""), "deck.yaml",
                 {{"model.norm", "layernorm"},
                  {"model.positions", "learned"},
                  {"model.activation", "gelu"},
                  {"model.bias", "true"},
                  {"model.tie_embeddings", "false"},
                  {"model.layers", "12"},
                  {"model.blocks_per_unit", "auto"}}),
      place + "\"block.12.*: learning_rate 1\"" + none +
          "embedding.token.weight, embedding.position.weight, block.N.attention.norm.weight, "
          "block.N.attention.norm.bias, block.N.attention.qkv.weight, "
          "block.N.attention.qkv.bias, block.N.attention.out.weight, "
          "block.N.attention.out.bias, block.N.mlp.norm.weight, block.N.mlp.norm.bias, "
          "block.N.mlp.up.weight, block.N.mlp.up.bias, block.N.mlp.down.weight, "
          "block.N.mlp.down.bias, head.norm.weight, head.norm.bias and head.output.weight, "
          "with N from 0 to 11");
}

TEST(BadDecks, RulesThatLeaveNothingToTrain) {
  for (const char* rules : {"*: frozen", "*: trained; *: frozen",
                            "embedding.*: frozen; block.*: frozen; head.*: frozen, learning_rate 1",
                            "*.weight: frozen"}) {
    EXPECT_EQ(message_of(with("optimizer", text("parameters: \"", rules, '"')), "deck.yaml"),
              text("deck.yaml: optimizer.parameters = \"", rules,
                   "\": all parameters are frozen, nothing is left to train; expected rules that "
                   "leave some"));
  }
}

TEST(BadDecks, ValuesThatDoNotGoTogether) {
  expect_messages(
      {{with("model", "heads: 3"),
        "deck.yaml: model.heads = 3 does not divide model.width = 256 (256 = 3 x 85 + 1)"},
       {with("model", "kv_heads: 3"),
        "deck.yaml: model.kv_heads = 3 does not divide model.heads = 4 (4 = 3 x 1 + 1)"},
       {with("model", "kv_heads: 8"),
        "deck.yaml: model.kv_heads = 8 does not divide model.heads = 4 (4 = 8 x 0 + 4)"},
       {with("model", "blocks_per_unit: 5"),
        "deck.yaml: model.blocks_per_unit = 5 is more than model.layers = 4"},
       {with("model", "heads: 256"),
        "deck.yaml: model.positions = rotary turns pairs of numbers, so a head's width must be "
        "even: model.width / model.heads = 256 / 256 = 1"},
       {with("training", "micro_batch_size: 3"),
        "deck.yaml: training.micro_batch_size = 3 does not divide training.global_batch_size = 8 "
        "(8 = 3 x 2 + 2)"},
       {with("training", "micro_batch_size: 16"),
        "deck.yaml: training.micro_batch_size = 16 does not divide training.global_batch_size = 8 "
        "(8 = 16 x 0 + 8)"},
       {with("parallel", "sharding: none\n    shard_optimizer_over: world"),
        "deck.yaml: parallel.shard_optimizer_over = world divides optimizer state, which "
        "parallel.sharding = none keeps whole; expected sharding optimizer, gradients or full"},
       {with("precision", "activations: bf16"),
        "deck.yaml: precision.activations = bf16 is not precision.gather = fp32: units compute in "
        "the numbers in which parameters are gathered; expected auto or fp32"},
       {with("precision", "gather: bf16\n    activations: fp32"),
        "deck.yaml: precision.activations = fp32 is not precision.gather = bf16: units compute in "
        "the numbers in which parameters are gathered; expected auto or bf16"},
       {"ostrakon:\n",
        "deck.yaml: data.path is missing: data.dataset = tokens needs a token file, made with "
        "ostrakon-data (data.dataset = synthetic needs none)"},
       {"ostrakon:\n  data:\n    path: x.h5\n  training:\n    validate_every: 10\n",
        "deck.yaml: training.validate_every = 10 needs data.validation_path, which is empty"},
       {with("model", "vocabulary: 2147483647\n    width: 4194304"),
        "deck.yaml: model.vocabulary x model.width = 2147483647 x 4194304 parameters, more than "
        "the 1,125,899,906,842,624 that this program can count"},
       {with("model", "layers: 100000\n    width: 1048576"),
        "deck.yaml: model.layers x model.width x model.width = 100000 x 1048576 x 1048576 "
        "parameters, more than the 1,125,899,906,842,624 that this program can count"},
       {with("training", "sequence_length: 4294967296"),
        "deck.yaml: training.micro_batch_size x training.sequence_length = 1 x 4294967296 tokens, "
        "more than the 2,147,483,647 that this program can count"},
       {with("training", "steps: 9007199254740991"),
        "deck.yaml: training.steps x training.global_batch_size x training.sequence_length = "
        "9007199254740991 x 8 x 256 tokens, more than the 9,007,199,254,740,991 that this program "
        "can count"}},
      "deck.yaml");
}

TEST(BadDecks, Checkpoints) {
  const std::string integer = ": expected an integer >= ";
  const std::string time =
      ": expected a time as minutes, minutes:seconds, hours:minutes:seconds, days-hours, "
      "days-hours:minutes or days-hours:minutes:seconds";
  expect_messages(
      {{with("checkpoint", "every: -1"), "deck.yaml: checkpoint.every = -1" + integer + "0"},
       {with("checkpoint", "every: 0.5"), "deck.yaml: checkpoint.every = 0.5" + integer + "0"},
       {with("checkpoint", "every: never"),
        "deck.yaml: checkpoint.every = \"never\"" + integer + "0"},
       {with("checkpoint", "every: 1e300"),
        "deck.yaml: checkpoint.every = 1e+300" + integer + "0 and <= 9007199254740991"},
       {with("checkpoint", "keep: 0"), "deck.yaml: checkpoint.keep = 0" + integer + "1"},
       {with("checkpoint", "keep: all"), "deck.yaml: checkpoint.keep = \"all\"" + integer + "1"},
       {with("checkpoint", "keep_every: -5"),
        "deck.yaml: checkpoint.keep_every = -5" + integer + "0"},
       {with("checkpoint", "files: 1"),
        "deck.yaml: checkpoint.files = 1: expected rank, node or single"},
       {with("checkpoint", "files: ranks"),
        "deck.yaml: checkpoint.files = \"ranks\": expected rank, node or single"},
       {with("checkpoint", "async: 1"), "deck.yaml: checkpoint.async = 1: expected true or false"},
       {with("checkpoint", "verify: always"),
        "deck.yaml: checkpoint.verify = \"always\": expected true or false"},
       {with("checkpoint", "bandwidth: -1"),
        "deck.yaml: checkpoint.bandwidth = -1: expected a number >= 0"},
       {with("checkpoint", "bandwidth: .inf"),
        "deck.yaml: checkpoint.bandwidth = \".inf\": expected a number >= 0"},
       {with("checkpoint", "bandwidth: 100 MB/s"),
        "deck.yaml: checkpoint.bandwidth = \"100 MB/s\": expected a number >= 0"},
       {with("checkpoint", "initial_weights: 5"),
        "deck.yaml: checkpoint.initial_weights = 5: expected a path as text (numbers and yes/no "
        "need quotes)"},
       {with("checkpoint", "evry: 5"),
        "deck.yaml: checkpoint.evry = 5: no such key; did you mean checkpoint.every?"},
       {with("checkpoint", "asnyc: true"),
        "deck.yaml: checkpoint.asnyc = true: no such key; did you mean checkpoint.async?"},
       {with("checkpoints", "every: 5"),
        "deck.yaml: checkpoints: no such section; did you mean checkpoint?"},
       {with("training", "wall_time: 90"),
        "deck.yaml: training.wall_time = 90: no such key; did you mean runtime.wall_time?"},
       {with("runtime", "wall_time: -5"), "deck.yaml: runtime.wall_time = -5" + time},
       {with("runtime", "wall_time: 1.5"), "deck.yaml: runtime.wall_time = 1.5" + time},
       {with("runtime", "wall_time: 1e15"), "deck.yaml: runtime.wall_time = 1e+15" + time},
       {with("runtime", "wall_time: yes"), "deck.yaml: runtime.wall_time = true" + time},
       {with("runtime", "wall_time: \"1:2:3:4\""),
        "deck.yaml: runtime.wall_time = \"1:2:3:4\"" + time},
       {with("runtime", "wall_time: 1 hour"), "deck.yaml: runtime.wall_time = \"1 hour\"" + time},
       {with("runtime", "wall_time: [1]"),
        "deck.yaml: runtime.wall_time" + time + ", found a list"},
       {with("runtime", "wall_time: 3:55:00"),
        "deck.yaml: not valid YAML: line 5: \"wall_time: 3:55:00\"; a line is `key: value`, text "
        "with any of : % , | > [ ] { } goes in quotes"}},
      "deck.yaml");
}

TEST(BadDecks, TextThatIsNoYaml) {
  const std::string hint =
      "; a line is `key: value`, text with any of : % , | > [ ] { } goes in quotes";
  expect_messages(
      {{"", "deck.yaml: the deck is empty; expected the root key ostrakon with sections below it"},
       {"\n \n# nothing\n",
        "deck.yaml: the deck is empty; expected the root key ostrakon with sections below it"},
       {"ostrakon: 5\n", "deck.yaml: ostrakon: expected sections indented below it"},
       {"model:\n  width: 5\n",
        "deck.yaml: line 1: the root key is model; expected ostrakon, with all sections indented "
        "below it"},
       {"ostrakon:\n  model:\n    width: 5\ntraining:\n  steps: 1\n",
        "deck.yaml: line 4: training is a second root key; everything but ostrakon must be "
        "indented below it"},
       {"ostrakon:\nmodel:\n  width: 5\n",
        "deck.yaml: line 2: model is a second root key; everything but ostrakon must be indented "
        "below it"},
       {"  ostrakon:\n    model:\n",
        "deck.yaml: line 1: the root key must begin in the first column, found \"ostrakon:\""},
       {with("training", "steps: 1\n    steps: 2"),
        "deck.yaml: line 6: steps is given twice in the same section"},
       {"ostrakon:\n  model:\n    width: 8\n  data:\n    verify: no\n  model:\n    layers: 1\n",
        "deck.yaml: line 6: model is given twice in the same section"},
       {with("training", "steps 5"), "deck.yaml: not valid YAML: line 5: \"steps 5\"" + hint},
       {with("training", "steps = 5"), "deck.yaml: not valid YAML: line 5: \"steps = 5\"" + hint},
       {with("output", "directory: a:b"),
        "deck.yaml: not valid YAML: line 5: \"directory: a:b\"" + hint},
       {with("output", "directory: 50%"),
        "deck.yaml: not valid YAML: line 5: \"directory: 50%\"" + hint},
       {with("output", "directory: \"a"),
        "deck.yaml: not valid YAML: line 5: the quote \" is not closed on its line"},
       {with("training", "steps: !!int x"),
        "deck.yaml: not valid YAML: line 5: '!' begins a type tag, which decks don't have; put "
        "text that begins with '!' in quotes"},
       {"ostrakon:\n  model:\n\t\twidth: 5\n",
        "deck.yaml: not valid YAML: line 3: indented with other characters than the lines before; "
        "indent with spaces"},
       {"ostrakon:\n  model:\n    width: 8\n   data:\n    verify: no\n",
        "deck.yaml: not valid YAML: line 4: indented by 3, like no section around it; all keys of "
        "a "
        "section begin in the same column"},
       {"ostrakon:\n  model:\n    width: 8\n      heads: 2\n",
        "deck.yaml: not valid YAML: line 4: indented deeper than the line before, which is not a "
        "section"},
       {"\x89HDF\r\n\x1A\n", "deck.yaml: not valid YAML: line 2: byte 0x1A is not text"},
       {std::string("ostrakon:\n  a\0b", 15),
        "deck.yaml: not valid YAML: line 2: byte 0x00 is not text"},
       {"- ostrakon\n", "deck.yaml: not valid YAML: line 1: \"- ostrakon\"" + hint},
       {"hello\n", "deck.yaml: not valid YAML: line 1: \"hello\"" + hint},
       {"ostrakon: {a: " + std::string(100, '{'),
        "deck.yaml: nested too deeply; decks have three levels: ostrakon, section, key"},
       {std::string(100000, ' '), "deck.yaml: too long for a deck, which has at most 65536 bytes"}},
      "deck.yaml");
}

TEST(BadDecks, TextThatIsNoXml) {
  const auto in_training = [](const std::string& inner) {
    return "<ParameterList name=\"ostrakon\">\n<ParameterList name=\"training\">\n" + inner +
           "\n</ParameterList>\n</ParameterList>\n";
  };
  expect_messages(
      {{"", "deck.xml: not valid XML"},
       {"ostrakon:\n",
        "deck.xml: not valid XML: line 1: document not well-formed: character data outside of an "
        "enclosing tag"},
       {"<ParameterList name=\"ostrakon\">\n",
        "deck.xml: not valid XML: line 2: file ended before closing element 'ParameterList' from "
        "line 1"},
       {"<List/>",
        "deck.xml: the root element is <List>; expected <ParameterList "
        "name=\"ostrakon\">"},
       {"<ParameterList/>", "deck.xml: <ParameterList> has no attribute name"},
       {"<ParameterList name=\"model\"/>",
        "deck.xml: the root list is named model; expected ostrakon"},
       {in_training("<Parameter name=\"steps\" type=\"int\" value=\"5.5\"/>"),
        "deck.xml: training.steps = 5.5: expected an integer >= 1"},
       {in_training("<Parameter name=\"steps\" type=\"int\" value=\"five\"/>"),
        "deck.xml: training.steps: \"five\" is not a value of the type \"int\""},
       {in_training("<Parameter name=\"steps\" type=\"string\" value=\"5\"/>"),
        "deck.xml: training.steps = \"5\": expected an integer >= 1"},
       {in_training("<Parameter name=\"steps\" type=\"Array(int)\" value=\"{5}\"/>"),
        "deck.xml: training.steps: expected an integer >= 1, found a list"},
       {in_training("<Parameter name=\"steps\" value=\"5\"/>"),
        "deck.xml: training.steps: <Parameter> has no attribute type"},
       {in_training("<Parameter name=\"setps\" type=\"int\" value=\"5\"/>"),
        "deck.xml: training.setps = 5: no such key; did you mean training.steps?"},
       {in_training("<Parameter name=\"steps\" type=\"int\" value=\"5\"/>"
                    "<Parameter name=\"steps\" type=\"int\" value=\"6\"/>"),
        "deck.xml: steps is given twice in the same section"},
       {in_training("<Step name=\"steps\"/>"),
        "deck.xml: <Step>: expected <Parameter> or <ParameterList>"},
       {in_training("<ParameterList name=\"steps\"/>"),
        "deck.xml: training.steps: expected an integer >= 1, found a section; decks have three "
        "levels: ostrakon, section, key"}},
      "deck.xml");
}

TEST(BadDecks, Overrides) {
  const std::string deck = "ostrakon:\n  data:\n    dataset: synthetic\n";
  struct BadOverride {
    std::string argument, message;
  };
  const std::vector<BadOverride> overrides = {
      {"model.widht=5", "--set model.widht=5: no such key; did you mean model.width?"},
      {"modle.width=5", "--set modle.width=5: no such key; did you mean model.width?"},
      {"model.steps=5", "--set model.steps=5: no such key; did you mean training.steps?"},
      {"qqqqqqqqq.zzzzzzzz=5",
       "--set qqqqqqqqq.zzzzzzzz=5: no such key; the sections are model, data, training, parallel, "
       "precision, memory, optimizer, schedule, checkpoint, output and runtime"},
      {"training.steps=-5", "--set training.steps=-5: expected an integer >= 1"},
      {"training.steps=1.5", "--set training.steps=1.5: expected an integer >= 1"},
      {"training.steps=", "--set training.steps=\"\": expected an integer >= 1"},
      {"training.steps=12345678901234567890",
       "--set training.steps=12345678901234567890: expected an integer >= 1 and <= "
       "9007199254740991"},
      {"training.steps=five", "--set training.steps=\"five\": expected an integer >= 1"},
      {"model.norm=batch", "--set model.norm=\"batch\": expected layernorm or rmsnorm"},
      {"optimizer.learning_rate=nan",
       "--set optimizer.learning_rate=\"nan\": expected a number from 0 to 1e30"},
      {"output.directory=",
       "--set output.directory=\"\": expected a path that is not empty (numbers and yes/no need "
       "quotes)"},
      {"output.directory=a\nb",
       "--set output.directory: \"a\\nb\" has the control character \\n at byte 2; expected text "
       "without any"},
      {"data.path=\x1b[2J",
       "--set data.path: \"\\x1b[2J\" has the control character \\x1b at byte 1; expected text "
       "without any"},
      {"parallel.reshard_after_forward=1",
       "--set parallel.reshard_after_forward=1: expected default, always, never or an integer from "
       "2 to 1048576"},
      {"parallel.in_flight_gathers=8 Gib",
       "--set parallel.in_flight_gathers=\"8 Gib\": expected unlimited, an integer from 1 to "
       "1000000 (units), "
       "or bytes up to 4096 TiB in B, kB, KiB, MB, MiB, GB, GiB, TB or TiB"},
      {"parallel.units=block.*",
       "--set parallel.units: rule \"block.*\": expected PATTERN: SETTING "
       "VALUE, SETTING VALUE ..., found no ':'"},
      {"training.steps", "--set training.steps: expected section.key=value, found no '='"},
      {"steps=5", "--set steps=5: expected section.key=value; did you mean training.steps?"},
      {"=5", "--set =5: expected section.key=value"},
      {".steps=5", "--set .steps=5: expected section.key=value"},
      {"training.=5", "--set training.=5: expected section.key=value"},
      {"", "--set : expected section.key=value, found no '='"},
      {"model.heads=3",
       "deck.yaml: model.heads = 3 does not divide model.width = 256 (256 = 3 x 85 + 1)"}};
  for (const BadOverride& bad : overrides) {
    std::string message = "(no error)";
    try {
      read_settings(deck, "deck.yaml", {parse_override(bad.argument)});
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_EQ(message, bad.message);
  }
  EXPECT_EQ(message_of(deck, "deck.yaml", {{"steps", "5"}}),
            "--set steps=5: expected section.key=value; did you mean training.steps?");
}

}  // namespace
}  // namespace ostrakon::config
