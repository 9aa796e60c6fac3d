// SPDX-License-Identifier: Apache-2.0
// Command lines that are refused, of each program.
#include <Kokkos_Macros.hpp>

#include "bad_inputs.hpp"

namespace ostrakon::testing {
namespace {

TEST_F(BadInputs, ModelsTooLargeForTheMemory) {
  const Texts llama3_405b = {"model.layers=126",      "model.width=16384",
                             "model.heads=128",       "model.kv_heads=8",
                             "model.ffn_width=53248", "model.vocabulary=128256"};
  expect_refused("ostrakon-train", {1},
                 {bad_settings("405b-on-one", llama3_405b,
                               {"the model does not fit: 1 rank on this host x (",
                                "planned + 150.00 MiB", ") = ", "TiB, but ", "available"})});
  Texts replicated = llama3_405b;
  replicated.push_back("parallel.sharding=none");
  expect_refused(
      "ostrakon-train", {2},
      {bad_settings("405b-on-two", llama3_405b, {"2 ranks on this host x (", ") = ", "available"}),
       bad_settings("405b-replicated", replicated,
                    {"2 ranks on this host x (", "parallel.sharding: full"})},
      R"(
set training.global_batch_size=40000; training.micro_batch_size=1
    | the plan of a step is too long .. more than 60,000
set model.layers=100000 | the plan of a step is too long .. 100002 units .. use fewer layers
set model.layers=20000; model.width=4096 | the model does not fit .. parameters alone .. available
set training.sequence_length=1000000000 | the model does not fit .. training.micro_batch_size
)");
}

TEST_F(BadInputs, CommandLines) {
  expect_refused("ostrakon-train", one_and_two,
                 {bad_command("no-deck", {}, {"no DECK given", "--help"})}, R"(
deck.yaml deck.yaml | found also "deck.yaml"
deck.yaml --dryrun | unknown option --dryrun
deck.yaml --set | --set needs SECTION.KEY=VALUE
deck.yaml --set training.steps | --set training.steps .. no '='
deck.yaml --set steps=5 | --set steps=5 .. did you mean training.steps?
deck.yaml --set training.stepps=5 | no such key; did you mean training.steps?
deck.yaml --set=training.steps=soon | --set training.steps="soon" .. expected an integer
)");
}

#if KOKKOS_VERSION < 30700  // newer ones warn, or end the process themselves
TEST_F(BadInputs, KokkosFlags) {
  expect_refused("ostrakon-train", one_and_two,
                 {bad_command("kokkos-threads", {"deck.yaml", "--kokkos-threads=many"},
                              {"Kokkos can't start"})});
}
#endif

TEST_F(BadInputs, DataProgram) {
  expect_refused(
      "ostrakon-data", {1},
      {bad_command("no-command", {},
                   {"no command", "build, import, info, verify, show or train-tokenizer"})},
      R"(
bild | unknown command 'bild'
build text | --output PREFIX
build --output x | no FILE_OR_FOLDER given
build --output x nowhere | 'nowhere' does not exist
build --output x a-folder | no text files
build --output a-file/x text | 'a-file' .. Not a directory
build --output x --validation-fraction 1 text | --validation-fraction 1: expected .. less than 1
build --output x --validation-fraction nan text | --validation-fraction .. nan
build --output x --seed -1 text | --seed -1: expected an integer >= 0
build --output x --field text --separator % text | --separator .. --field .. are both given
build --output x --chat --separator % text | --separator .. --chat .. are both given
build --output a-folder/ text | --output a-folder/: expected the beginning of names .. 'a-folder/NAME'
build --output x --validation-fraction 1e-400 text
    | --validation-fraction 1e-400: expected 0, or a number from 1e-9
import --output x.h5 a-file | --vocabulary V
import --vocabulary 9 a-file | --output FILE
import --vocabulary 9 --output a-folder/ a-file | --output a-folder/: expected a file
import --vocabulary 9 --output nothing.h5 empty.h5 | no tokens to write
import --vocabulary 9 --output missing.h5 nowhere | 'nowhere' does not exist
import --vocabulary 65536 --output half.h5 a-file | 'a-file' is text
import --vocabulary 9 --output beyond.h5 text/fox.txt | 'text/fox.txt' is text .. `ostrakon-data build`
import --vocabulary 9 --dtype int8 --output x.h5 a-file
    | --dtype int8: expected uint8, uint16, uint32 or uint64
import --vocabulary 9 --end-of-text 9 --output x.h5 a-file | --end-of-text 9: expected .. 0 to 8
import --vocabulary 9 --output a-file a-file | --output is the file to read
info text/fox.txt | is not an HDF5 file
info pointer | 'pointer' is a Git LFS pointer
build --output built pointer | no text files among what was named .. git lfs pull
verify flipped.h5 | damaged .. checksum
verify liar.h5 | not in its vocabulary of 100
show good-train.h5 --document 7 | has no document 7; it has 1
info --all good-train.h5 | unknown option --all; see ostrakon-data info --help
)");
}

TEST_F(BadInputs, WrittenPathsThatOnlyAShellExpands) {
  const std::string home = "'~' is not expanded to a home folder here";
  const std::string variable = "'$' is not expanded here";
  expect_refused("ostrakon-train", one_and_two,
                 {bad_key("deck-home", "output", "directory: ~/runs/a",
                          {"deck-home.yaml: output.directory = \"~/runs/a\"", home}),
                  bad_settings("set-variable", {"output.directory=$SCRATCH/a"},
                               {"--set output.directory=\"$SCRATCH/a\"", variable})});
  expect_refused("ostrakon-bench", {1},
                 {bad_command("bench-home", {"machine", "--output", "~/m.yaml"},
                              {"--output is \"~/m.yaml\"", home})});
  expect_refused(
      "ostrakon-data", {1},
      {bad_command("build-home", {"build", "--output=~/x", "text"}, {"--output is \"~/x\"", home}),
       bad_command("import-variable",
                   {"import", "--vocabulary", "9", "--output", "$HOME/x.h5", "a-file"},
                   {"--output is \"$HOME/x.h5\"", variable})});
  expect_refused(
      "ostrakon-checkpoint", {1},
      {bad_command("export-home", {"export", "a-file", "~/x.safetensors"}, {"OUT is \"~", home}),
       bad_command("import-home", {"import", "a-file", "~x"}, {"OUT is \"~x\"", home}),
       bad_command("reshard-variable", {"reshard", "--ranks", "2", "a-file", "a/$X"},
                   {"OUT is \"a/$X\"", variable})});
  expect_refused(
      "ostrakon-plan", {1},
      {bad_command("svg-home", {"deck.yaml", "--ranks", "2", "--svg=~/a.svg"},
                   {"--svg is \"~/a.svg\"", home}),
       bad_command("html-variable", {"deck.yaml", "--ranks", "2", "--html", "$X.html"},
                   {"--html is \"$X.html\"", variable}),
       bad_command("chosen-home", {"deck.yaml", "--ranks", "2", "--output", "~"},
                   {"--output is \"~\"", home}),
       bad_command("planned-home", {"deck.yaml", "--ranks", "2", "--set", "output.directory=~/a"},
                   {"--set output.directory=\"~/a\"", home})});
  expect_refused(
      "ostrakon-scale", {1},
      {bad_command("study-home", {"plan", "deck.yaml", "--ranks", "1,2", "--output", "~/study"},
                   {"--output is \"~/study\"", home})});
}

TEST_F(BadInputs, BenchProgram) {
  expect_refused("ostrakon-bench", one_and_two, R"(
kernel
    | unknown command 'kernel' .. kernels, comm, device, machine, preflight, step, overlap, pipeline, watch or checkpoint
kernels comm | kernels takes no further argument
step | no DECK given .. step --help
checkpoint | no DECK given
step deck.yaml deck.yaml | found also "deck.yaml"
step nowhere.yaml | nowhere.yaml: can't be read
kernels --seconds 0 | --seconds 0 .. a number above 0
kernels --set model.layers=1 | unknown option --set; it is for preflight, step, overlap, pipeline, watch and checkpoint only
kernels --ranks-per-node 1 | --ranks-per-node; it is for comm only
comm --ranks-per-node 0 | --ranks-per-node 0: expected an integer >= 1
--jsonl | unknown option --jsonl
)");
  expect_refused("ostrakon-bench", {2},
                 {bad_command("nodes-of-three", {"comm", "--ranks-per-node", "3"},
                              {"--ranks-per-node 3 does not divide the 2 ranks"})});
  expect_refused("ostrakon-bench", {1},
                 {bad_command("comm-alone", {"comm"}, {"found 1 rank", "mpiexec -n 2"})});
}

TEST_F(BadInputs, GenerateProgram) {
  expect_refused("ostrakon-generate", {1}, {bad_command("no-weights", {}, {"no MODEL given"})},
                 R"(
nowhere.h5 | 'nowhere.h5' does not exist; expected weights.h5, a checkpoint
truncated-weights.h5 | truncated or damaged
flipped-weights.h5 | flipped-weights.h5 .. damaged
good-train.h5 | is no Ostrakon weights file .. 'ostrakon-tokens'
synthetic/weights.h5 | synthetic/weights.h5: trained on tokens of the tokenizer 'synthetic' .. expected --tokenizer
deck.yaml | safetensors file 'deck.yaml'
trained/weights.h5 --tokens 0 | --tokens 0
trained/weights.h5 --tokens 1.5 | --tokens 1.5 .. integer
trained/weights.h5 --temperature -1 | --temperature -1
trained/weights.h5 --temperature warm | --temperature warm .. expected a number
trained/weights.h5 plain.h5 | takes MODEL, found also
trained/weights.h5 --topk 3 | unknown option --topk
)");
  expect_refused(
      "ostrakon-generate", {2},
      {bad_command("two-ranks", {"trained/weights.h5"}, {"started on 2 ranks; expected one"})});
}

}  // namespace
}  // namespace ostrakon::testing
