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
                    {"2 ranks on this host x (", "parallel.sharding: full"}),
       bad_settings("long-plan",
                    {"training.global_batch_size=40000", "training.micro_batch_size=1"},
                    {"the plan of a step is too long", "more than 60,000"}),
       bad_settings("many-layers", {"model.layers=100000"},
                    {"the plan of a step is too long", "100002 units", "use fewer layers"}),
       bad_settings("many-wide-layers", {"model.layers=20000", "model.width=4096"},
                    {"the model does not fit", "parameters alone", "available"}),
       bad_settings("long-sequences", {"training.sequence_length=1000000000"},
                    {"the model does not fit", "training.micro_batch_size"})});
}

TEST_F(BadInputs, CommandLines) {
  expect_refused(
      "ostrakon-train", one_and_two,
      {bad_command("no-deck", {}, {"no DECK given", "--help"}),
       bad_command("two-decks", {"deck.yaml", "deck.yaml"}, {"found also \"deck.yaml\""}),
       bad_command("unknown-option", {"deck.yaml", "--dryrun"}, {"unknown option --dryrun"}),
       bad_command("set-nothing", {"deck.yaml", "--set"}, {"--set needs SECTION.KEY=VALUE"}),
       bad_command("set-without-value", {"deck.yaml", "--set", "training.steps"},
                   {"--set training.steps", "no '='"}),
       bad_command("set-without-section", {"deck.yaml", "--set", "steps=5"},
                   {"--set steps=5", "did you mean training.steps?"}),
       bad_command("set-unknown", {"deck.yaml", "--set", "training.stepps=5"},
                   {"no such key; did you mean training.steps?"}),
       bad_command("set-wrong-type", {"deck.yaml", "--set=training.steps=soon"},
                   {"--set training.steps=\"soon\"", "expected an integer"})});
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
      {bad_command("no-command", {}, {"no command", "build, import, info, verify or show"}),
       bad_command("unknown-command", {"bild"}, {"unknown command 'bild'"}),
       bad_command("no-output", {"build", "text"}, {"--output PREFIX"}),
       bad_command("no-text", {"build", "--output", "x"}, {"no FILE_OR_FOLDER given"}),
       bad_command("missing-text", {"build", "--output", "x", "nowhere"},
                   {"'nowhere' does not exist"}),
       bad_command("empty-folder", {"build", "--output", "x", "a-folder"}, {"no text files"}),
       bad_command("output-under-a-file", {"build", "--output", "a-file/x", "text"},
                   {"'a-file'", "Not a directory"}),
       bad_command("all-held-out", {"build", "--output", "x", "--validation-fraction", "1", "text"},
                   {"--validation-fraction 1: expected", "less than 1"}),
       bad_command("nan-held-out",
                   {"build", "--output", "x", "--validation-fraction", "nan", "text"},
                   {"--validation-fraction", "nan"}),
       bad_command("negative-seed", {"build", "--output", "x", "--seed", "-1", "text"},
                   {"--seed -1: expected an integer >= 0"}),
       bad_command("output-is-a-folder", {"build", "--output", "a-folder/", "text"},
                   {"--output a-folder/: expected the beginning of names", "'a-folder/NAME'"}),
       bad_command("vanishing-held-out",
                   {"build", "--output", "x", "--validation-fraction", "1e-400", "text"},
                   {"--validation-fraction 1e-400: expected 0, or a number from 1e-9"}),
       bad_command("import-without-vocabulary", {"import", "--output", "x.h5", "a-file"},
                   {"--vocabulary V"}),
       bad_command("import-without-output", {"import", "--vocabulary", "9", "a-file"},
                   {"--output FILE"}),
       bad_command("import-into-folder",
                   {"import", "--vocabulary", "9", "--output", "a-folder/", "a-file"},
                   {"--output a-folder/: expected a file"}),
       bad_command("import-nothing",
                   {"import", "--vocabulary", "9", "--output", "nothing.h5", "empty.h5"},
                   {"no tokens to write"}),
       bad_command("import-missing",
                   {"import", "--vocabulary", "9", "--output", "missing.h5", "nowhere"},
                   {"'nowhere' does not exist"}),
       bad_command("import-short-text",
                   {"import", "--vocabulary", "65536", "--output", "half.h5", "a-file"},
                   {"'a-file' is text"}),
       bad_command("import-text",
                   {"import", "--vocabulary", "9", "--output", "beyond.h5", "text/fox.txt"},
                   {"'text/fox.txt' is text", "`ostrakon-data build`"}),
       bad_command("import-other-type",
                   {"import", "--vocabulary", "9", "--dtype", "int8", "--output", "x.h5", "a-file"},
                   {"--dtype int8: expected uint8, uint16, uint32 or uint64"}),
       bad_command(
           "import-other-end",
           {"import", "--vocabulary", "9", "--end-of-text", "9", "--output", "x.h5", "a-file"},
           {"--end-of-text 9: expected", "0 to 8"}),
       bad_command("import-onto-itself",
                   {"import", "--vocabulary", "9", "--output", "a-file", "a-file"},
                   {"--output is the file to read"}),
       bad_command("info-of-text", {"info", "text/fox.txt"}, {"is not an HDF5 file"}),
       bad_command("info-of-a-pointer", {"info", "pointer"}, {"'pointer' is a Git LFS pointer"}),
       bad_command("build-of-a-pointer", {"build", "--output", "built", "pointer"},
                   {"no text files among what was named", "git lfs pull"}),
       bad_command("verify-flipped", {"verify", "flipped.h5"}, {"damaged", "checksum"}),
       bad_command("verify-liar", {"verify", "liar.h5"}, {"not in its vocabulary of 100"}),
       bad_command("no-such-document", {"show", "good-train.h5", "--document", "7"},
                   {"has no document 7; it has 1"}),
       bad_command("unknown-data-option", {"info", "--all", "good-train.h5"},
                   {"unknown option --all; see ostrakon-data info --help"})});
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
  expect_refused(
      "ostrakon-bench", one_and_two,
      {bad_command("unknown-bench", {"kernel"},
                   {"unknown command 'kernel'",
                    "kernels, comm, device, machine, step, overlap, pipeline or checkpoint"}),
       bad_command("two-benches", {"kernels", "comm"}, {"kernels takes no further argument"}),
       bad_command("step-without-deck", {"step"}, {"no DECK given", "step --help"}),
       bad_command("checkpoint-without-deck", {"checkpoint"}, {"no DECK given"}),
       bad_command("step-of-two", {"step", "deck.yaml", "deck.yaml"}, {"found also \"deck.yaml\""}),
       bad_command("step-of-missing", {"step", "nowhere.yaml"}, {"nowhere.yaml: can't be read"}),
       bad_command("no-time", {"kernels", "--seconds", "0"}, {"--seconds 0", "a number above 0"}),
       bad_command("set-without-step", {"kernels", "--set", "model.layers=1"},
                   {"unknown option --set; it is for step, overlap, pipeline and checkpoint only"}),
       bad_command("nodes-of-kernels", {"kernels", "--ranks-per-node", "1"},
                   {"--ranks-per-node; it is for comm only"}),
       bad_command("nodes-of-none", {"comm", "--ranks-per-node", "0"},
                   {"--ranks-per-node 0: expected an integer >= 1"}),
       bad_command("unknown-bench-option", {"--jsonl"}, {"unknown option --jsonl"})});
  expect_refused("ostrakon-bench", {2},
                 {bad_command("nodes-of-three", {"comm", "--ranks-per-node", "3"},
                              {"--ranks-per-node 3 does not divide the 2 ranks"})});
  expect_refused("ostrakon-bench", {1},
                 {bad_command("comm-alone", {"comm"}, {"found 1 rank", "mpiexec -n 2"})});
}

TEST_F(BadInputs, GenerateProgram) {
  expect_refused(
      "ostrakon-generate", {1},
      {bad_command("no-weights", {}, {"no MODEL given"}),
       bad_command("missing-weights", {"nowhere.h5"}, {"weights file 'nowhere.h5' does not exist"}),
       bad_command("truncated-weights", {"truncated-weights.h5"}, {"truncated or damaged"}),
       bad_command("flipped-weights", {"flipped-weights.h5"}, {"flipped-weights.h5", "damaged"}),
       bad_command("tokens-as-weights", {"good-train.h5"},
                   {"is no Ostrakon weights file", "'ostrakon-tokens'"}),
       bad_command("tokens-of-another", {"synthetic/weights.h5"},
                   {"synthetic/weights.h5: trained on tokens of the tokenizer 'synthetic'",
                    "it knows byte"}),
       bad_command("deck-as-weights", {"deck.yaml"}, {"safetensors file 'deck.yaml'"}),
       bad_command("no-tokens", {"trained/weights.h5", "--tokens", "0"}, {"--tokens 0"}),
       bad_command("half-a-token", {"trained/weights.h5", "--tokens", "1.5"},
                   {"--tokens 1.5", "integer"}),
       bad_command("cold", {"trained/weights.h5", "--temperature", "-1"}, {"--temperature -1"}),
       bad_command("not-a-temperature", {"trained/weights.h5", "--temperature", "warm"},
                   {"--temperature warm", "expected a number"}),
       bad_command("two-weights", {"trained/weights.h5", "plain.h5"}, {"takes MODEL, found also"}),
       bad_command("unknown-generate-option", {"trained/weights.h5", "--topk", "3"},
                   {"unknown option --topk"})});
  expect_refused(
      "ostrakon-generate", {2},
      {bad_command("two-ranks", {"trained/weights.h5"}, {"started on 2 ranks; expected one"})});
}

}  // namespace
}  // namespace ostrakon::testing
