// SPDX-License-Identifier: Apache-2.0
// Files and folders that are refused: data, output, checkpoints.
#include "bad_inputs.hpp"

namespace ostrakon::testing {
namespace {

/// The small deck that resumes from `checkpoint`, with settings.
BadInput bad_resume(const std::string& name, const std::string& checkpoint, const Texts& fragments,
                    const Texts& settings = {}) {
  BadInput bad = bad_settings(name, settings, fragments);
  bad.arguments.push_back("--resume=" + checkpoint);
  return bad;
}

TEST_F(BadInputs, DataFiles) {
  expect_refused("ostrakon-train", one_and_two, R"(
data nowhere.h5 | /nowhere.h5' does not exist
data empty.h5 | /empty.h5' is empty (0 bytes)
data truncated.h5 | /truncated.h5' is truncated or damaged
data flipped.h5 | /flipped.h5' is truncated or damaged .. checksum
data a-folder | /a-folder' is a folder; expected a token file
data pointer | /pointer' is a Git LFS pointer .. git lfs pull
data text/fox.txt | /text/fox.txt' is not an HDF5 file
data trained/weights.h5 | is no Ostrakon token file .. 'ostrakon-weights' .. expected 'ostrakon-tokens'
data plain.h5 | /plain.h5' is an HDF5 file, but no Ostrakon token file
data liar.h5 | /liar.h5': token .. not in its vocabulary of 100
set data.dataset=tokens; data.path=good-train.h5; model.vocabulary=256
    | vocabulary of 257 .. model.vocabulary is 256 .. at least 257
set data.dataset=tokens; data.path=good-train.h5; model.vocabulary=256; checkpoint.initial_weights=trained/weights.h5
    | vocabulary of 257 .. model.vocabulary is 256 with checkpoint.initial_weights = .. ids of the tokenizer of that model
set data.dataset=tokens; data.path=good-train.h5; training.sequence_length=50000
    | tokens, too few for one sample .. needs 50001
set data.dataset=tokens; data.path=good-train.h5; training.validate_every=1; data.validation_path=nowhere.h5
    | /nowhere.h5' does not exist
set data.dataset=tokens; data.path=good-train.h5; training.validate_every=1; data.validation_path=flipped.h5
    | /flipped.h5' is truncated or damaged
)");
}

TEST_F(BadInputs, InitialWeights) {
  for (const char* const folder : {"unfetched-weights", "unfetched-config"}) {
    fs::create_directory(path(folder));
    fs::copy_file(path("pointer"), path(std::string(folder) + "/model.safetensors"));
  }
  fs::copy_file(path("pointer"), path("unfetched-config/config.json"));
  const auto bad = [](const std::string& name, const std::string& weights, const Texts& words,
                      Texts settings = {}) {
    settings.push_back("checkpoint.initial_weights=" + weights);
    return bad_settings(name, settings, words);
  };
  const std::string pointer = "' is a Git LFS pointer";
  const Texts other = {"model.layers=3", "model.width=48", "model.norm_epsilon=1e-3"};
  const Texts all = {"' is not of the model that the deck describes:",
                     "model.layers is 2 in it, but 3 in the deck",
                     "model.width is 32 in it, but 48 in the deck",
                     "model.norm_epsilon is 1e-5 in it, but 0.001 in the deck"};
  expect_refused(
      "ostrakon-train", one_and_two,
      {bad("no-weights", "nosuch", {"/nosuch' does not exist; expected weights or a checkpoint"}),
       bad("weights-pointer", "pointer", {"/pointer" + pointer}),
       bad("safetensors-pointer", "unfetched-weights",
           {"/unfetched-weights/model.safetensors" + pointer}),
       bad("config-pointer", "unfetched-config", {"/unfetched-config/config.json" + pointer}),
       bad("weights-of-another-model", "trained/weights.h5", all, other),
       bad("checkpoint-of-another-model", "synthetic/checkpoints/latest", all, other)});
}

TEST_F(BadInputs, OutputFolders) {
  expect_refused("ostrakon-train", one_and_two, R"(
set output.directory=a-file | --set output.directory="a-file" .. /a-file can't be made .. Not a directory
set output.directory=a-file/below/it | --set output.directory="a-file/below/it" .. Not a directory
set output.directory= | output.directory .. not empty
set output.directory=taken-deck.yaml | taken-deck.yaml .. a folder has that name
set output.directory=taken-metrics.jsonl | taken-metrics.jsonl .. Is a directory
set output.directory=taken-weights.h5 | taken-weights.h5 .. is a folder
)");
}

TEST_F(BadInputs, PathsOfDecks) {
  fs::create_directories(path("decks/mine"));
  const std::string here = fs::canonical(path("")).string() + "/";
  const auto bad = [&](const std::string& key, const std::string& given, const std::string& deck,
                       const std::string& found) {
    BadInput input = bad_deck("decks/mine/" + key, deck, {});
    input.fragments = {
        input.name + ".yaml: " + key + " = \"" + given + "\", relative to the deck's folder: ",
        here + found};
    return input;
  };
  const auto data = [](const std::string& file) {
    return deck_with("data", "    dataset: tokens\n    path: " + file +
                                 "\n    validation_path: ../nowhere.h5\n");
  };
  std::vector<BadInput> table = {
      bad("data.path", "../../nowhere.h5", data("../../nowhere.h5"), "nowhere.h5' does not exist"),
      bad("data.validation_path", "../nowhere.h5", data("../../good-train.h5"),
          "decks/nowhere.h5' does not exist"),
      bad("checkpoint.initial_weights", "nowhere.h5",
          deck_with("checkpoint", "    initial_weights: nowhere.h5\n"), "decks/mine/nowhere.h5"),
      bad("output.directory", "../../a-file/below",
          deck_with("output", "    directory: ../../a-file/below\n"),
          "a-file/below can't be made")};
  table[1].arguments = {"--set", "training.validate_every=1"};
  expect_refused("ostrakon-train", one_and_two, table);
}

TEST_F(BadInputs, AreTheLastLineOnTheScreen) {
  // At once; after the settings were shown; when a step is done.
  const std::vector<Texts> failures = {
      {"deck.yaml", "--set", "model.widht=3"},
      {"deck.yaml", "--set", "training.global_batch_size=12", "--set", "data.dataset=tokens",
       "--set", "data.path=nowhere.h5"},
      {"deck.yaml", "--set", "training.global_batch_size=24", "--set",
       "optimizer.learning_rate=1e30", "--set", "output.directory=spoilt"}};
  for (const Texts& arguments : failures)
    for (const int ranks : {1, 2, 3, 4}) {
      Command command = mpi_job("ostrakon-train", ranks, arguments, path(""));
      // Both outputs on one screen; mpiexec as users have it.
      command.arguments.insert(command.arguments.begin(), {"sh", "-c", "exec \"$@\" 2>&1", "sh"});
      command.environment.clear();
      const Outcome outcome = run_command(command);
      EXPECT_FALSE(outcome.timed_out);
      EXPECT_EQ(outcome.status, 1);
      EXPECT_EQ(count_lines_with(outcome.out, "ostrakon-train: error"), 1) << outcome.out;
      EXPECT_TRUE(!mpiexec_is_quiet || below_error(outcome.out) == "\n") << outcome.out;
    }
}

TEST_F(BadInputs, WhereToResume) {
  const std::string step = "synthetic/checkpoints/step-00000002";
  const std::string no_checkpoint =
      ": is no checkpoint, nor a folder of checkpoints; expected auto, none or a path";
  expect_refused(
      "ostrakon-train", one_and_two,
      {bad_command("resume-without-value", {"deck.yaml", "--resume"},
                   {"--resume needs auto|none|PATH after it"}),
       bad_command("resume-empty", {"deck.yaml", "--resume", ""},
                   {"--resume '': expected auto, none or a path"}),
       bad_resume("resume-equals-nothing", "", {"expected auto, none or a path"}),
       bad_resume("resume-nowhere", "nowhere", {"--resume nowhere" + no_checkpoint}),
       bad_resume("resume-misspelt", "Auto", {"--resume Auto" + no_checkpoint}),
       bad_resume("resume-of-a-file", step + "/rank-00000.h5", {"rank-00000.h5" + no_checkpoint}),
       bad_resume("resume-of-weights", "synthetic/weights.h5", {"weights.h5" + no_checkpoint}),
       bad_resume("resume-without-checkpoints", "a-folder",
                  {"--resume a-folder: has no checkpoint that can be used"}),
       bad_resume(
           "resume-unfinished", "unfinished",
           {"unfinished/step-00000002' has no manifest.json", "does not see the file (yet)"})});
}

TEST_F(BadInputs, CheckpointsThatAreDamaged) {
  const auto bad = [&](const std::string& checkpoint, const Texts& fragments) {
    return bad_resume("resume-" + checkpoint, checkpoint, fragments,
                      {"output.directory=resumed-" + checkpoint});
  };
  expect_refused(
      "ostrakon-train", one_and_two,
      {bad("newer", {"newer/manifest.json", "is of version 2; this program reads version 1"}),
       bad("changed", {"changed/manifest.json' is damaged: its checksum is "}),
       bad("no-json", {"no-json/manifest.json"}),
       bad("without-a-file", {"without-a-file/rank-00000.h5", "is missing"}),
       bad("cut-off", {"cut-off/rank-00000.h5", "it has 5,000 bytes, expected "})});
  // Rather than from step 1, which would cost what was trained.
  expect_refused("ostrakon-train", one_and_two,
                 {bad_resume("resume-all-bad", "auto",
                             {"no checkpoint in ",
                              "/all-bad/checkpoints can be used; --resume none "
                              "begins at step 1"},
                             {"output.directory=all-bad"})});
  EXPECT_TRUE(fs::exists(path("all-bad/checkpoints/step-00000002/manifest.json")));
}

TEST_F(BadInputs, CheckpointsThatDoNotFitTheDeck) {
  const std::string step = "synthetic/checkpoints/step-00000002";
  const std::string begin = "checkpoint " + step + " does not fit the deck: ";
  const auto bad = [&](const std::string& name, const std::string& setting, const Texts& words) {
    Texts fragments = words;
    fragments.push_back(begin);
    return bad_resume("resume-" + name, step, fragments,
                      {setting, "output.directory=resumed-" + name});
  };
  expect_refused(
      "ostrakon-train", one_and_two,
      {bad("other-width", "model.width=64",
           {"model.width is 32 in it, but 64 in the deck",
            "model.ffn_width is 128 in it, but 192 in the deck"}),
       bad("more-layers", "model.layers=3", {"model.layers is 2 in it, but 3 in the deck"}),
       bad("fewer-layers", "model.layers=1", {"model.layers is 2 in it, but 1 in the deck"}),
       bad("biases", "model.bias=true", {"model.bias is false in it, but true in the deck"}),
       bad("other-moments", "optimizer.moments=bf16",
           {"its moments are fp32; expected optimizer.moments = fp32, not bf16"})});
}

}  // namespace
}  // namespace ostrakon::testing
