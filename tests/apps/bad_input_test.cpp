// SPDX-License-Identifier: Apache-2.0
// Decks and settings that are refused.
#include "bad_inputs.hpp"

namespace ostrakon::testing {
namespace {

TEST(Commands, AreEndedAtTheirTimeLimit) {
  Command command;
  command.arguments = {"sh", "-c", "echo begun; echo error >&2; exec sleep 30"};
  command.time_limit = 3.0;  // the first output comes before, on a busy machine too
  const Outcome outcome = run_command(command);
  EXPECT_TRUE(outcome.timed_out);
  EXPECT_EQ(outcome.status, -1);
  EXPECT_EQ(outcome.out, "begun\n");
  EXPECT_EQ(outcome.err, "error\n");
}

TEST_F(BadInputs, DecksThatCannotBeRead) {
  expect_refused(
      "ostrakon-train", one_and_two,
      {bad_deck("not-yaml", "ostrakon:\n  model: {layers: 2\n",
                {"not-yaml.yaml", "not valid YAML"}),
       bad_deck("prose", "Dear program, please train my model.\n",
                {"prose.yaml: line 1", "expected the root key ostrakon", "found text"}),
       bad_deck("tabs", "ostrakon:\n  model:\n\tlayers: 2\n", {"tabs.yaml", "line 3", "spaces"}),
       bad_deck("empty", "\n", {"is empty", "root key ostrakon"}),
       bad_deck("only-a-comment", "# later\n", {"is empty"}),
       bad_deck("two-roots", deck_with() + "other:\n  model:\n    layers: 1\n",
                {"line 14", "other is a second root key"}),
       bad_deck("other-root", "training:\n  model:\n    layers: 1\n",
                {"the root key is training", "expected ostrakon"}),
       bad_deck("twice", deck_with("model", "    bias: true\n    bias: false\n"),
                {"bias is given twice"}),
       bad_deck("no-sections", "ostrakon:\n  layers: 2\n",
                {"layers = 2: no such section", "did you mean model.layers?"}),
       bad_deck("four-levels", deck_with("parallel", "    sharding:\n      model: full\n"),
                {"parallel.sharding", "three levels"}),
       bad_deck("controls", "ostrakon:\n  data:\n    path: \"a\x01z\"\n", {"controls.yaml"})},
      R"(
nowhere.yaml | nowhere.yaml: can't be read .. No such file
a-folder | a-folder: is a folder; expected a file
good-train.h5 | good-train.h5 .. too long; expected at most
/dev/zero | /dev/zero .. too long; expected at most
)");
}

TEST_F(BadInputs, KeysAndTypes) {
  expect_refused("ostrakon-train", one_and_two,
                 {bad_key("list", "training", "steps: [1, 2]", {"training.steps", "found a list"}),
                  bad_key("nothing", "training", "seed:", {"training.seed", "found nothing"})},
                 R"(
key model.widht: 32 | model.widht = 32: no such key; did you mean model.width?
key training.learning_rate: 0.1 | did you mean optimizer.learning_rate?
key trainig.steps: 5 | trainig: no such section; did you mean training?
key training.steps: many | training.steps = "many" .. expected an integer >= 1
key model.layers: 2.5 | model.layers = 2.5 .. expected an integer
key model.bias: perhaps | model.bias = "perhaps" .. expected true or false
key output.directory: 5 | output.directory = 5 .. quotes
key model.activation: silu | model.activation = "silu" .. expected gelu, gelu_exact, relu, 
key precision.parameters: bf16 | precision.parameters = "bf16" .. the only value that this version accepts
key precision.gather: float16 | precision.gather = "float16": expected fp32, bf16, fp16 or fp8
key optimizer.name: adagrad | optimizer.name = "adagrad": expected adamw, sgd, lion or muon
key memory.activation_checkpointing: yes
    | memory.activation_checkpointing = true: expected none, full, every N
key memory.activation_checkpointing: selective softmax
    | memory.activation_checkpointing = "selective softmax" .. one or more of attention, norms and mlp
key parallel.sharding: fully | parallel.sharding = "fully" .. expected none, optimizer, gradients or full
key parallel.forward_prefech: 2 | forward_prefech = 2: no such key; did you mean parallel.forward_prefetch?
key parallel.prefetch: 2
    | parallel.prefetch = 2: no such key; did you mean parallel.forward_prefetch or parallel.backward_prefetch?
key checkpoint.evry: 5 | checkpoint.evry = 5: no such key; did you mean checkpoint.every?
key checkpoint.files: ranks | checkpoint.files = "ranks": expected rank, node or single
key checkpoint.async: 1 | checkpoint.async = 1: expected true or false
key runtime.streams: parallel | runtime.streams = "parallel" .. expected inline, threads or auto
)");
}

TEST_F(BadInputs, RulesForUnits) {
  expect_refused("ostrakon-train", one_and_two, R"(
key parallel.units: block.*: forward_prefetch 2 | not valid YAML: line 15 .. lacks quotes
key parallel.units: block.* | parallel.units: rule "block.*": expected PATTERN: SETTING VALUE
key parallel.units: "block.*:: forward_prefetch 2"
    | parallel.units: rule "block.*:: forward_prefetch 2": expected one ':'
key parallel.units: "block.*: forward_prefech 2"
    | "forward_prefech": no such setting; did you mean forward_prefetch?
set parallel.units=block.*: reshard_after_forward 1e30
    | --set parallel.units: rule "block.*: reshard_after_forward 1e30" .. reshard_after_forward = 1e30: expected default, always, never, end_of_step or
set parallel.units=block.0: forward_prefetch block.1 block.0
    | --set parallel.units: rule "block.0: forward_prefetch block.1 block.0" .. forward_prefetch names block.0 itself
set parallel.units=blocks.*: forward_prefetch 2 | parallel.units .. blocks.*
)");
}

TEST_F(BadInputs, Values) {
  expect_refused("ostrakon-train", one_and_two, R"(
key model.layers: 0 | model.layers = 0 .. expected an integer from 1 to
key model.width: -32 | model.width = -32
key model.heads: 0 | model.heads = 0
key model.vocabulary: 1 | model.vocabulary = 1
key training.steps: 0 | training.steps = 0
key training.sequence_length: 0 | training.sequence_length = 0
key training.global_batch_size: -8 | training.global_batch_size = -8
key runtime.threads: 0 | runtime.threads = 0 .. expected auto or an integer from 1 to 4096
key optimizer.learning_rate: nan | optimizer.learning_rate .. nan .. expected a number from 0 to 1e30
key optimizer.weight_decay: inf | optimizer.weight_decay .. inf .. expected a number from 0 to 1e30
set optimizer.learning_rate=1e-400
    | --set optimizer.learning_rate=1e-400: expected a number from 0 to 1e30 .. 1e-400 is beyond the range of a double
set optimizer.learning_rate=1e400 | optimizer.learning_rate .. 1e400
key optimizer.beta2: 1.0 | optimizer.beta2 = 1 .. < 1
key optimizer.epsilon: 0.0 | optimizer.epsilon = 0 .. from 1.2e-38 to 1
key model.norm_epsilon: 1e-46 | model.norm_epsilon = 1e-46 .. from 1.2e-38 to 1
key model.rotary_base: 1e300 | model.rotary_base = 1e300 .. from 1 to 1e12
key parallel.backward_prefetch: -1 | parallel.backward_prefetch = -1: expected an integer from 0 to 1000
key parallel.in_flight_reductions: 1e9
    | parallel.in_flight_reductions = 1e9: expected an integer from 0 to 1000
key parallel.in_flight_gathers: 0 | parallel.in_flight_gathers = 0: expected unlimited, an integer from 1 to
key parallel.in_flight_gathers: 8 Gib | parallel.in_flight_gathers = "8 Gib": expected unlimited .. GiB
key parallel.reshard_after_forward: 1
    | parallel.reshard_after_forward = 1: expected default, always, never, end_of_step or
key model.blocks_per_unit: 0.5 | model.blocks_per_unit = 0.5: expected auto or an integer from 1 to
key output.trace: -1 | output.trace = -1: expected an integer >= 0
key precision.loss_scale: 1000 | precision.loss_scale = 1000: expected a power of two from 1 to 16777216
key optimizer.momentum: 1 | optimizer.momentum = 1 .. < 1
key training.outlier_window: 1 | training.outlier_window = 1: expected an integer >= 2
key schedule.final_fraction: 1.5 | schedule.final_fraction = 1.5 .. from 0 to 1
key checkpoint.every: -1 | checkpoint.every = -1: expected an integer >= 0
key checkpoint.keep: 0 | checkpoint.keep = 0: expected an integer >= 1
key checkpoint.keep_every: 0.5 | checkpoint.keep_every = 0.5: expected an integer >= 0
key checkpoint.bandwidth: -100 | checkpoint.bandwidth = -100: expected a number >= 0
key runtime.wall_time: -5 | runtime.wall_time = -5: expected a time as minutes, minutes:seconds
set runtime.wall_time=1:2:3:4
    | --set runtime.wall_time="1:2:3:4": expected a time as minutes .. days-hours:minutes:seconds
set runtime.wall_time=99999-0 | --set runtime.wall_time="99999-0" .. expected a time
set training.steps=1e300 | training.steps .. <=
set optimizer.learning_rate=1e30; output.directory=diverged
    | step 2 .. not finite .. lower optimizer.learning_rate
)");
}

TEST_F(BadInputs, SettingsThatDoNotFitTogether) {
  expect_refused("ostrakon-train", one_and_two,
                 {bad_deck("no-data-path", "ostrakon:\n  data:\n    dataset: tokens\n",
                           {"data.path is missing", "ostrakon-data"})},
                 R"(
key model.heads: 5 | model.heads = 5 does not divide model.width = 32 (32 = 5 x 6 + 2)
key model.kv_heads: 3 | model.kv_heads = 3 does not divide model.heads = 4
key model.blocks_per_unit: 3 | model.blocks_per_unit = 3 is more than model.layers = 2
key model.width: 36 | rotary .. must be even .. 36 / 4 = 9
key training.micro_batch_size: 3
    | training.micro_batch_size = 3 .. does not divide .. training.global_batch_size = 8 (8 = 3 x 2 + 2)
key precision.activations: bf16
    | precision.activations = bf16 is not precision.gather = fp32 .. the gather dtype
set data.dataset=tokens; data.path=good-train.h5; training.validate_every=1
    | training.validate_every = 1 .. data.validation_path
set model.width=67108864; model.layers=100000 | model.layers x model.width .. more than
set training.global_batch_size=1000000; training.micro_batch_size=1
    | a step is too long to plan .. 4 x 1000000 / 1 / .. more than 1,000,000 .. raise training.micro_batch_size
set training.micro_batch_size=8; training.sequence_length=1e9
    | training.micro_batch_size x training.sequence_length
)");
}

TEST_F(BadInputs, RanksThatDoNotFit) {
  expect_refused("ostrakon-train", {2}, R"(
key training.micro_batch_size: 8 | 8 / 8 = 1 leaf, fewer than 2 ranks .. use 1 rank
set training.global_batch_size=6 | 6 / 2 = 3 leaves .. 2 ranks can't share evenly (3 = 2 x 1 + 1)
key parallel.ranks_per_node: 3 | parallel.ranks_per_node = 3 does not divide the 2 ranks
key parallel.in_flight_gathers: 1 B | parallel.in_flight_gathers = 1 B:  .. when gathered
)");
  expect_refused("ostrakon-train", {3},
                 {bad_settings("four-leaves-on-three", {},
                               {"8 / 2 = 4 leaves", "3 ranks", "4 = 3 x 1 + 1", "use 1, 2 or 4",
                                "a multiple of 3 x 2 = 6"})},
                 R"(
set training.global_batch_size=6; parallel.reshard_after_forward=2
    | parallel.reshard_after_forward = 2 does not divide the 3 ranks of a shard group (3 = 2 x 1 + 1); use 3
set training.global_batch_size=6; parallel.units=block.*: reshard_after_forward 2
    | parallel.units: rule "block.*: reshard_after_forward 2":  .. reshard_after_forward = 2 does not divide the 3 ranks
)");
  expect_refused("ostrakon-train", {1},
                 {bad_key("node-of-two", "parallel", "ranks_per_node: 2",
                          {"parallel.ranks_per_node = 2 does not divide the 1 rank"})});
}

}  // namespace
}  // namespace ostrakon::testing
