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
       bad_deck("empty", "\n", {"the deck is empty", "root key ostrakon"}),
       bad_deck("only-a-comment", "# later\n", {"the deck is empty"}),
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
       bad_deck("controls", "ostrakon:\n  data:\n    path: \"a\x01z\"\n", {"controls.yaml"}),
       bad_command("missing", {"nowhere.yaml"}, {"nowhere.yaml: can't be read", "No such file"}),
       bad_command("folder", {"a-folder"}, {"a-folder: is a folder; expected a deck"}),
       bad_command("data-as-deck", {"good-train.h5"}, {"good-train.h5", "too long for a deck"}),
       bad_command("endless-deck", {"/dev/zero"}, {"/dev/zero", "too long for a deck"})});
}

TEST_F(BadInputs, KeysAndTypes) {
  expect_refused(
      "ostrakon-train", one_and_two,
      {bad_key("misspelt", "model", "widht: 32",
               {"model.widht = 32: no such key; did you mean model.width?"}),
       bad_key("misplaced", "training", "learning_rate: 0.1",
               {"did you mean optimizer.learning_rate?"}),
       bad_key("misspelt-section", "trainig", "steps: 5",
               {"trainig: no such section; did you mean training?"}),
       bad_key("text-for-number", "training", "steps: many",
               {"training.steps = \"many\"", "expected an integer >= 1"}),
       bad_key("fraction", "model", "layers: 2.5", {"model.layers = 2.5", "expected an integer"}),
       bad_key("text-for-switch", "model", "bias: perhaps",
               {"model.bias = \"perhaps\"", "expected true or false"}),
       bad_key("list", "training", "steps: [1, 2]", {"training.steps", "found a list"}),
       bad_key("nothing", "training", "seed:", {"training.seed", "found nothing"}),
       bad_key("number-for-path", "output", "directory: 5", {"output.directory = 5", "quotes"}),
       bad_key("unknown-choice", "model", "activation: relu",
               {"model.activation = \"relu\"", "expected gelu or swiglu"}),
       bad_key("later-version", "precision", "parameters: bf16",
               {"precision.parameters = \"bf16\"", "the only value that this version accepts"}),
       bad_key("unknown-number", "precision", "gather: float16",
               {"precision.gather = \"float16\": expected fp32, bf16 or fp16"}),
       bad_key("unknown-optimizer", "optimizer", "name: adagrad",
               {"optimizer.name = \"adagrad\": expected adamw, sgd, lion or muon"}),
       bad_key("checkpointing-of-yes", "memory", "activation_checkpointing: yes",
               {"memory.activation_checkpointing = true: expected none, full, every N"}),
       bad_key("checkpointing-of-unknown-parts", "memory",
               "activation_checkpointing: selective softmax",
               {"memory.activation_checkpointing = \"selective softmax\"",
                "one or more of attention, norms and mlp"}),
       bad_key("unknown-sharding", "parallel", "sharding: fully",
               {"parallel.sharding = \"fully\"", "expected none, optimizer, gradients or full"}),
       bad_key("misspelt-prefetch", "parallel", "forward_prefech: 2",
               {"forward_prefech = 2: no such key; did you mean parallel.forward_prefetch?"}),
       bad_key("half-a-prefetch", "parallel", "prefetch: 2",
               {"parallel.prefetch = 2: no such key; did you mean parallel.forward_prefetch or "
                "parallel.backward_prefetch?"}),
       bad_key("misspelt-checkpoint", "checkpoint", "evry: 5",
               {"checkpoint.evry = 5: no such key; did you mean checkpoint.every?"}),
       bad_key("unknown-files", "checkpoint", "files: ranks",
               {"checkpoint.files = \"ranks\": expected rank, node or single"}),
       bad_key("async-of-one", "checkpoint", "async: 1",
               {"checkpoint.async = 1: expected true or false"}),
       bad_key("unknown-streams", "runtime", "streams: parallel",
               {"runtime.streams = \"parallel\"", "expected inline, threads or auto"})});
}

TEST_F(BadInputs, RulesForUnits) {
  expect_refused(
      "ostrakon-train", one_and_two,
      {bad_key("rule-without-quotes", "parallel", "units: block.*: forward_prefetch 2",
               {"not valid YAML: line 15", "lacks quotes"}),
       bad_key("rule-without-settings", "parallel", "units: block.*",
               {"parallel.units: rule \"block.*\": expected PATTERN: SETTING VALUE"}),
       bad_key("rule-of-two-colons", "parallel", "units: \"block.*:: forward_prefetch 2\"",
               {"parallel.units: rule \"block.*:: forward_prefetch 2\": expected one ':'"}),
       bad_key("rule-of-an-unknown-setting", "parallel", "units: \"block.*: forward_prefech 2\"",
               {"\"forward_prefech\": no such setting; did you mean forward_prefetch?"}),
       bad_settings(
           "rule-of-a-huge-number", {"parallel.units=block.*: reshard_after_forward 1e30"},
           {"--set parallel.units: rule \"block.*: reshard_after_forward 1e30\"",
            "reshard_after_forward = 1e30: expected default, always, never, end_of_step or"}),
       bad_settings("rule-of-itself", {"parallel.units=block.0: forward_prefetch block.1 block.0"},
                    {"--set parallel.units: rule \"block.0: forward_prefetch block.1 block.0\"",
                     "forward_prefetch names block.0 itself"}),
       bad_settings("rule-for-nothing", {"parallel.units=blocks.*: forward_prefetch 2"},
                    {"parallel.units", "blocks.*"})});
}

TEST_F(BadInputs, Values) {
  expect_refused(
      "ostrakon-train", one_and_two,
      {bad_key("zero-layers", "model", "layers: 0",
               {"model.layers = 0", "expected an integer from 1 to"}),
       bad_key("negative-width", "model", "width: -32", {"model.width = -32"}),
       bad_key("zero-heads", "model", "heads: 0", {"model.heads = 0"}),
       bad_key("one-token", "model", "vocabulary: 1", {"model.vocabulary = 1"}),
       bad_key("zero-steps", "training", "steps: 0", {"training.steps = 0"}),
       bad_key("zero-length", "training", "sequence_length: 0", {"training.sequence_length = 0"}),
       bad_key("negative-batch", "training", "global_batch_size: -8",
               {"training.global_batch_size = -8"}),
       bad_key("zero-threads", "runtime", "threads: 0",
               {"runtime.threads = 0", "expected auto or an integer from 1 to 4096"}),
       bad_key("not-a-number", "optimizer", "learning_rate: nan",
               {"optimizer.learning_rate", "nan", "expected a number from 0 to 1e30"}),
       bad_key("infinite", "optimizer", "weight_decay: inf",
               {"optimizer.weight_decay", "inf", "expected a number from 0 to 1e30"}),
       bad_settings("too-small-to-store", {"optimizer.learning_rate=1e-400"},
                    {"--set optimizer.learning_rate=1e-400: expected a number from 0 to 1e30",
                     "1e-400 is beyond the range of a double"}),
       bad_settings("too-large-to-store", {"optimizer.learning_rate=1e400"},
                    {"optimizer.learning_rate", "1e400"}),
       bad_key("beta-of-one", "optimizer", "beta2: 1.0", {"optimizer.beta2 = 1", "< 1"}),
       bad_key("zero-epsilon", "optimizer", "epsilon: 0.0",
               {"optimizer.epsilon = 0", "from 1.2e-38 to 1"}),
       bad_key("epsilon-below-floats", "model", "norm_epsilon: 1e-46",
               {"model.norm_epsilon = 1e-46", "from 1.2e-38 to 1"}),
       bad_key("rotary-base", "model", "rotary_base: 1e300",
               {"model.rotary_base = 1e300", "from 1 to 1e12"}),
       bad_key("negative-prefetch", "parallel", "backward_prefetch: -1",
               {"parallel.backward_prefetch = -1: expected an integer from 0 to 1000"}),
       bad_key("too-many-reductions", "parallel", "in_flight_reductions: 1e9",
               {"parallel.in_flight_reductions = 1e9: expected an integer from 0 to 1000"}),
       bad_key("no-gathers", "parallel", "in_flight_gathers: 0",
               {"parallel.in_flight_gathers = 0: expected unlimited, an integer from 1 to"}),
       bad_key("gibibits", "parallel", "in_flight_gathers: 8 Gib",
               {"parallel.in_flight_gathers = \"8 Gib\": expected unlimited", "GiB"}),
       bad_key(
           "one-part", "parallel", "reshard_after_forward: 1",
           {"parallel.reshard_after_forward = 1: expected default, always, never, end_of_step or"}),
       bad_key("half-a-block", "model", "blocks_per_unit: 0.5",
               {"model.blocks_per_unit = 0.5: expected auto or an integer from 1 to"}),
       bad_key("negative-trace", "output", "trace: -1",
               {"output.trace = -1: expected an integer >= 0"}),
       bad_key("loss-scale", "precision", "loss_scale: 1000",
               {"precision.loss_scale = 1000: expected a power of two from 1 to 16777216"}),
       bad_key("momentum-of-one", "optimizer", "momentum: 1", {"optimizer.momentum = 1", "< 1"}),
       bad_key("window-of-one", "training", "outlier_window: 1",
               {"training.outlier_window = 1: expected an integer >= 2"}),
       bad_key("share-above-one", "schedule", "final_fraction: 1.5",
               {"schedule.final_fraction = 1.5", "from 0 to 1"}),
       bad_key("never-a-checkpoint", "checkpoint", "every: -1",
               {"checkpoint.every = -1: expected an integer >= 0"}),
       bad_key("keep-none", "checkpoint", "keep: 0",
               {"checkpoint.keep = 0: expected an integer >= 1"}),
       bad_key("keep-every-half", "checkpoint", "keep_every: 0.5",
               {"checkpoint.keep_every = 0.5: expected an integer >= 0"}),
       bad_key("negative-bandwidth", "checkpoint", "bandwidth: -100",
               {"checkpoint.bandwidth = -100: expected a number >= 0"}),
       bad_key("negative-wall-time", "runtime", "wall_time: -5",
               {"runtime.wall_time = -5: expected a time as minutes, minutes:seconds"}),
       bad_settings("wall-time-of-four", {"runtime.wall_time=1:2:3:4"},
                    {"--set runtime.wall_time=\"1:2:3:4\": expected a time as minutes",
                     "days-hours:minutes:seconds"}),
       bad_settings("endless-wall-time", {"runtime.wall_time=99999-0"},
                    {"--set runtime.wall_time=\"99999-0\"", "expected a time"}),
       bad_settings("beyond-integers", {"training.steps=1e300"}, {"training.steps", "<="}),
       bad_settings("diverges", {"optimizer.learning_rate=1e30", "output.directory=diverged"},
                    {"step 2", "not finite", "lower optimizer.learning_rate"})});
}

TEST_F(BadInputs, SettingsThatDoNotFitTogether) {
  expect_refused(
      "ostrakon-train", one_and_two,
      {bad_key("heads-and-width", "model", "heads: 5",
               {"model.heads = 5 does not divide model.width = 32 (32 = 5 x 6 + 2)"}),
       bad_key("kv-heads", "model", "kv_heads: 3",
               {"model.kv_heads = 3 does not divide model.heads = 4"}),
       bad_key("more-blocks-than-layers", "model", "blocks_per_unit: 3",
               {"model.blocks_per_unit = 3 is more than model.layers = 2"}),
       bad_key("odd-rotary-heads", "model", "width: 36", {"rotary", "must be even", "36 / 4 = 9"}),
       bad_key("batch-arithmetic", "training", "micro_batch_size: 3",
               {"training.micro_batch_size = 3", "does not divide",
                "training.global_batch_size = 8 (8 = 3 x 2 + 2)"}),
       bad_key("other-activations", "precision", "activations: bf16",
               {"precision.activations = bf16 is not precision.gather = fp32", "the gather dtype"}),
       bad_deck("no-data-path", "ostrakon:\n  data:\n    dataset: tokens\n",
                {"data.path is missing", "ostrakon-data"}),
       bad_settings("validation-without-data",
                    {"data.dataset=tokens", "data.path=good-train.h5", "training.validate_every=1"},
                    {"training.validate_every = 1", "data.validation_path"}),
       bad_settings("uncountable", {"model.width=67108864", "model.layers=100000"},
                    {"model.layers x model.width", "more than"}),
       bad_settings("endless-plan",
                    {"training.global_batch_size=1000000", "training.micro_batch_size=1"},
                    {"a step is too long to plan", "4 x 1000000 / 1 /", "more than 1,000,000",
                     "raise training.micro_batch_size"}),
       bad_settings("too-many-rows",
                    {"training.micro_batch_size=8", "training.sequence_length=1e9"},
                    {"training.micro_batch_size x training.sequence_length"})});
}

TEST_F(BadInputs, RanksThatDoNotFit) {
  expect_refused("ostrakon-train", {2},
                 {bad_key("one-leaf", "training", "micro_batch_size: 8",
                          {"8 / 8 = 1 leaf, fewer than 2 ranks", "use 1 rank"}),
                  bad_settings("odd-leaves", {"training.global_batch_size=6"},
                               {"6 / 2 = 3 leaves", "2 ranks can't share evenly (3 = 2 x 1 + 1)"}),
                  bad_key("node-of-three", "parallel", "ranks_per_node: 3",
                          {"parallel.ranks_per_node = 3 does not divide the 2 ranks"}),
                  bad_key("room-for-no-gather", "parallel", "in_flight_gathers: 1 B",
                          {"parallel.in_flight_gathers = 1 B: ", "when gathered"})});
  expect_refused("ostrakon-train", {3},
                 {bad_settings("four-leaves-on-three", {},
                               {"8 / 2 = 4 leaves", "3 ranks", "4 = 3 x 1 + 1", "use 1, 2 or 4",
                                "a multiple of 3 x 2 = 6"}),
                  bad_settings("two-parts-of-three",
                               {"training.global_batch_size=6", "parallel.reshard_after_forward=2"},
                               {"parallel.reshard_after_forward = 2 does not divide the 3 ranks of "
                                "a shard group (3 = 2 x 1 + 1); use 3"}),
                  bad_settings("rule-of-two-parts-of-three",
                               {"training.global_batch_size=6",
                                "parallel.units=block.*: reshard_after_forward 2"},
                               {"parallel.units: rule \"block.*: reshard_after_forward 2\": ",
                                "reshard_after_forward = 2 does not divide the 3 ranks"})});
  expect_refused("ostrakon-train", {1},
                 {bad_key("node-of-two", "parallel", "ranks_per_node: 2",
                          {"parallel.ranks_per_node = 2 does not divide the 1 rank"})});
}

}  // namespace
}  // namespace ostrakon::testing
