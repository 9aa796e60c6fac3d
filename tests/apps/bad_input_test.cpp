// SPDX-License-Identifier: Apache-2.0

// What a user can get wrong, and what the programs say: exit status 1, soon, one line that begins
// with "<program>: error", nothing that only a developer could read.

#include <gtest/gtest.h>
#include <hdf5.h>
#include <mpi.h>

#include <Kokkos_Macros.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/manifest_text.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <support/scratch_folder.hpp>
#include <vector>

#include "command.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

struct BadInput {
  std::string name;
  Texts arguments;
  Texts fragments;   ///< of the error line
  std::string deck;  ///< written to <name>.yaml, the first argument; empty: none is written
};

/// A small deck that trains, with more lines of a section put in.
std::string deck_with(const std::string& section = "", const std::string& lines = "") {
  const std::vector<std::pair<std::string, std::string>> sections = {
      {"model", "    layers: 2\n    width: 32\n    heads: 4\n    vocabulary: 257\n"},
      {"data", "    dataset: synthetic\n"},
      {"training",
       "    steps: 2\n    global_batch_size: 8\n    micro_batch_size: 2\n"
       "    sequence_length: 16\n"}};
  std::string deck = "ostrakon:\n";
  bool found = section.empty();
  for (const auto& [name, keys] : sections) {
    deck += "  " + name + ":\n";
    std::istringstream stream(keys);
    for (std::string key; std::getline(stream, key);)
      if (section != name || lines.find(key.substr(0, key.find(':') + 1)) == std::string::npos)
        deck += key + "\n";
    if (section == name) deck += lines;
    found = found || section == name;
  }
  return found ? deck : deck + "  " + section + ":\n" + lines;
}

BadInput bad_key(const std::string& name, const std::string& section, const std::string& line,
                 const Texts& fragments) {
  return {name, {}, fragments, deck_with(section, "    " + line + "\n")};
}

BadInput bad_deck(const std::string& name, const std::string& deck, const Texts& fragments) {
  return {name, {}, fragments, deck};
}

/// The small deck with settings on the command line.
BadInput bad_settings(const std::string& name, const Texts& settings, const Texts& fragments) {
  BadInput bad = {name, {}, fragments, deck_with()};
  for (const std::string& setting : settings) {
    bad.arguments.push_back("--set");
    bad.arguments.push_back(setting);
  }
  return bad;
}

BadInput bad_data(const std::string& name, const std::string& path, const Texts& fragments) {
  Texts all = fragments;
  all.push_back("--set data.path=\"" + path + "\", relative to the working directory: ");
  return bad_settings(name, {"data.dataset=tokens", "data.path=" + path}, all);
}

BadInput bad_command(const std::string& name, const Texts& arguments, const Texts& fragments) {
  return {name, arguments, fragments, ""};
}

int count_lines_with(const std::string& text, const std::string& begin) {
  std::istringstream stream(text);
  int count = 0;
  for (std::string line; std::getline(stream, line);) count += line.rfind(begin, 0) == 0 ? 1 : 0;
  return count;
}

/// mpiexec of Open MPI 5 has words of its own on each failure of more than one rank.
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5
constexpr bool mpiexec_is_quiet = false;
#else
constexpr bool mpiexec_is_quiet = true;
#endif

/// What stands on lines below the error.
std::string below_error(const std::string& text) {
  const std::size_t error = text.find(": error");
  return error == std::string::npos ? ""
                                    : text.substr(std::min(text.find('\n', error), text.size()));
}

std::string error_line(const std::string& text) {
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    if (line.find(": error") != std::string::npos) return line;
  return "(no error line)";
}

/// What is wrong with how a program took bad input, a line each; empty where all is well.
std::string complaints(const std::string& name, const BadInput& bad, const Outcome& outcome) {
  std::ostringstream out;
  if (outcome.timed_out) out << "hang: ended after " << outcome.seconds << " s\n";
  if (outcome.status != 1) out << "exit status " << outcome.status << ", expected 1\n";
  const int errors = count_lines_with(outcome.err, name + ": error");
  if (errors != 1) out << errors << " error lines, expected 1\n";
  if (outcome.out.find(": error") != std::string::npos) out << "an error on standard output\n";
  const std::string line = error_line(outcome.err);
  for (const std::string& fragment : bad.fragments)
    if (line.find(fragment) == std::string::npos)
      out << "the error does not say: " << fragment << "\n";
  const std::string all = outcome.out + outcome.err;
  for (const char* noise :
       {"terminate called", "HDF5-DIAG", ".cpp", ".hpp", "MPI_ABORT", "MPI_Abort", "Segmentation",
        "Process received signal", "exited on signal", "Assertion", "Sanitizer", "Traceback"})
    if (all.find(noise) != std::string::npos) out << "the output has: " << noise << "\n";
  return out.str();
}

/// Files that every case may name.
class BadInputs : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new ScratchFolder;
    fs::create_directories(path("text"));
    std::string text;
    for (int i = 0; i < 300; ++i)
      text += "The quick brown fox number " + std::to_string(i) + " jumps over the lazy dog.\n";
    write_bytes(path("text/fox.txt"), text);
    write_bytes(path("a-file"), "not a folder\n");
    fs::create_directories(path("a-folder"));
    must_run("ostrakon-data", {"build", "--output", "good", "--validation-fraction", "0", "text"});
    write_bytes(path("deck.yaml"), deck_with());
    must_run("ostrakon-train",
             {"deck.yaml", "--set", "output.directory=synthetic", "--set", "checkpoint.every=2"});
    must_run("ostrakon-train", {"deck.yaml", "--set", "output.directory=trained", "--set",
                                "data.dataset=tokens", "--set", "data.path=good-train.h5"});

    const std::string good = read_bytes(path("good-train.h5"));
    write_bytes(path("empty.h5"), "");
    write_bytes(path("truncated.h5"), good.substr(0, good.size() / 3));
    // Tokens have two bytes each.
    write_flipped("good-train.h5", "flipped.h5", std::string("j\0u\0m\0p\0s\0", 10));
    fs::copy_file(path("good-train.h5"), path("liar.h5"));
    set_vocabulary(path("liar.h5"), 100);
    const std::string weights = read_bytes(path("trained/weights.h5"));
    write_bytes(path("truncated-weights.h5"), weights.substr(0, weights.size() / 2));
    std::string flipped = weights;
    flipped[weights.size() / 2] = static_cast<char>(flipped[weights.size() / 2] ^ 1);
    write_bytes(path("flipped-weights.h5"), flipped);
    make_plain_hdf5(path("plain.h5"));
    break_checkpoints();

    for (const char* taken : {"deck.yaml", "metrics.jsonl", "weights.h5"})
      fs::create_directories(path(std::string("taken-") + taken) + "/" + taken);
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static std::string path(const std::string& name) { return folder_->file(name); }

  static void expect_refused(const std::string& name, const std::vector<int>& ranks,
                             const std::vector<BadInput>& table) {
    const int count = static_cast<int>(table.size() * ranks.size());
    std::vector<Outcome> outcomes(static_cast<std::size_t>(count));
    for (const BadInput& bad : table)
      if (!bad.deck.empty()) write_bytes(path(bad.name + ".yaml"), bad.deck);
    // One after the other with the same input: some write into the same folder.
    in_parallel(static_cast<int>(table.size()), [&](int row) {
      const auto first = static_cast<std::size_t>(row) * ranks.size();
      for (std::size_t r = 0; r < ranks.size(); ++r)
        outcomes[first + r] = start(name, table[static_cast<std::size_t>(row)], ranks[r]);
    });
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      const BadInput& bad = table[i / ranks.size()];
      const std::string found = complaints(name, bad, outcomes[i]);
      if (found.empty()) continue;
      ADD_FAILURE() << bad.name << ", ranks: " << ranks[i % ranks.size()] << "\n"
                    << found << outcomes[i].err;
    }
    EXPECT_FALSE(fs::exists(path("output"))) << "a run that was refused wrote something";
  }

 private:
  static Outcome start(const std::string& name, const BadInput& bad, int ranks) {
    Texts arguments = bad.arguments;
    if (!bad.deck.empty()) arguments.insert(arguments.begin(), bad.name + ".yaml");
    Command command = program(name, ranks, arguments, path(""));
    return run_command(command);
  }

  static void must_run(const std::string& name, const Texts& arguments) {
    const Outcome outcome = run_command(program(name, 1, arguments, path("")));
    if (outcome.status != 0) throw std::runtime_error(name + ": " + outcome.err);
  }

  static void write_flipped(const std::string& from, const std::string& to,
                            const std::string& where) {
    std::string bytes = read_bytes(path(from));
    const std::size_t at = bytes.find(where);
    if (at == std::string::npos) throw std::runtime_error("nothing to flip in " + from);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    write_bytes(path(to), bytes);
  }

  /// Copies of a good checkpoint, each with one thing wrong.
  static void break_checkpoints() {
    const auto copy = [](const std::string& name) {
      fs::create_directories(path(fs::path(name).parent_path().string()));
      fs::copy(path("synthetic/checkpoints/step-00000002"), path(name),
               fs::copy_options::recursive);
      return path(name);
    };
    write_changed(copy("newer") + "/manifest.json", "\"version\": 1,", "\"version\": 2,", true);
    write_changed(copy("changed") + "/manifest.json", "\"seed\": 1,", "\"seed\": 2,", false);
    write_changed(copy("all-bad/checkpoints/step-00000002") + "/manifest.json", "\"seed\": 1,",
                  "\"seed\": 2,", false);
    fs::remove(copy("without-a-file") + "/rank-00000.h5");
    fs::resize_file(copy("cut-off") + "/rank-00000.h5", 5000);
    write_bytes(copy("no-json") + "/manifest.json", "Dear program, these are my weights.\n");
    fs::remove(copy("unfinished/step-00000002") + "/manifest.json");
  }

  /// Puts `to` for `from`, of the same length, and a checksum that is right again if `signs`.
  static void write_changed(const std::string& manifest, const std::string& from,
                            const std::string& to, bool signs) {
    std::string text = read_bytes(manifest);
    const std::size_t at = text.find(from);
    if (at == std::string::npos) throw std::runtime_error("no " + from + " in " + manifest);
    text.replace(at, from.size(), to);
    if (signs)
      text.replace(checkpoint::checksum_place(text), checkpoint::checksum_digits,
                   format_hex(checkpoint::checksum_of_text(text)));
    write_bytes(manifest, text);
  }

  static void set_vocabulary(const std::string& file_path, std::int64_t vocabulary) {
    const hid_t file = H5Fopen(file_path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t attribute = H5Aopen(file, "vocabulary", H5P_DEFAULT);
    if (H5Awrite(attribute, H5T_NATIVE_INT64, &vocabulary) < 0)
      throw std::runtime_error("can't change " + file_path);
    H5Aclose(attribute);
    H5Fclose(file);
  }

  static void make_plain_hdf5(const std::string& file_path) {
    H5Fclose(H5Fcreate(file_path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  }

  static inline ScratchFolder* folder_ = nullptr;
};

const std::vector<int> one_and_two = {1, 2};

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
                {"prose.yaml", "not valid YAML: line 1"}),
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
               {"precision.parameters = \"bf16\"", "the one value that this version accepts"}),
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
       bad_key("wall-time-without-quotes", "runtime", "wall_time: 3:55:00",
               {"not valid YAML", "wall_time: 3:55:00", "goes in quotes"}),
       bad_key("unknown-streams", "runtime", "streams: parallel",
               {"runtime.streams = \"parallel\"", "expected inline, threads or auto"})});
}

TEST_F(BadInputs, RulesForUnits) {
  expect_refused(
      "ostrakon-train", one_and_two,
      {bad_key("rule-without-quotes", "parallel", "units: block.*: forward_prefetch 2",
               {"not valid YAML", "goes in quotes"}),
       bad_key("rule-without-settings", "parallel", "units: block.*",
               {"parallel.units: rule \"block.*\": expected PATTERN: SETTING VALUE"}),
       bad_key("rule-of-two-colons", "parallel", "units: \"block.*:: forward_prefetch 2\"",
               {"parallel.units: rule \"block.*:: forward_prefetch 2\": expected one ':'"}),
       bad_key("rule-of-an-unknown-setting", "parallel", "units: \"block.*: forward_prefech 2\"",
               {"\"forward_prefech\": no such setting; did you mean forward_prefetch?"}),
       bad_settings("rule-of-a-huge-number", {"parallel.units=block.*: reshard_after_forward 1e30"},
                    {"--set parallel.units: rule \"block.*: reshard_after_forward 1e30\"",
                     "reshard_after_forward = 1e30: expected default, always, never or"}),
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
       bad_settings("too-large-to-store", {"optimizer.learning_rate=1e400"},
                    {"optimizer.learning_rate", "1e400"}),
       bad_key("beta-of-one", "optimizer", "beta2: 1.0", {"optimizer.beta2 = 1", "< 1"}),
       bad_key("zero-epsilon", "optimizer", "epsilon: 0.0",
               {"optimizer.epsilon = 0", "from 1.2e-38 to 1"}),
       bad_key("epsilon-below-floats", "model", "norm_epsilon: 1e-46",
               {"model.norm_epsilon = 1e-46", "from 1.2e-38 to 1"}),
       bad_key("rotary-base", "model", "rotary_base: 1e300",
               {"model.rotary_base = 1e+300", "from 1 to 1e12"}),
       bad_key("negative-prefetch", "parallel", "backward_prefetch: -1",
               {"parallel.backward_prefetch = -1: expected an integer from 0 to 1000"}),
       bad_key("too-many-reductions", "parallel", "in_flight_reductions: 1e9",
               {"parallel.in_flight_reductions = 1000000000: expected an integer from 0 to 1000"}),
       bad_key("no-gathers", "parallel", "in_flight_gathers: 0",
               {"parallel.in_flight_gathers = 0: expected unlimited, an integer from 1 to"}),
       bad_key("gibibits", "parallel", "in_flight_gathers: 8 Gib",
               {"parallel.in_flight_gathers = \"8 Gib\": expected unlimited", "GiB"}),
       bad_key("one-part", "parallel", "reshard_after_forward: 1",
               {"parallel.reshard_after_forward = 1: expected default, always, never or"}),
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
               {"precision.activations = bf16 is not precision.gather = fp32",
                "the numbers in which parameters are gathered"}),
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

TEST_F(BadInputs, DataFiles) {
  expect_refused(
      "ostrakon-train", one_and_two,
      {bad_data("data-missing", "nowhere.h5", {"/nowhere.h5' does not exist"}),
       bad_data("data-empty", "empty.h5", {"/empty.h5' is empty (0 bytes)"}),
       bad_data("data-truncated", "truncated.h5", {"/truncated.h5' is truncated or damaged"}),
       bad_data("data-flipped", "flipped.h5", {"/flipped.h5' is truncated or damaged", "checksum"}),
       bad_data("data-folder", "a-folder", {"/a-folder' is a folder; expected a token file"}),
       bad_data("data-text", "text/fox.txt", {"/text/fox.txt' is not an HDF5 file"}),
       bad_data("data-weights", "trained/weights.h5",
                {"is no Ostrakon token file", "'ostrakon-weights'", "expected 'ostrakon-tokens'"}),
       bad_data("data-plain", "plain.h5",
                {"/plain.h5' is an HDF5 file, but no Ostrakon token file"}),
       bad_data("data-liar", "liar.h5", {"/liar.h5': token", "not in its vocabulary of 100"}),
       bad_settings("small-vocabulary",
                    {"data.dataset=tokens", "data.path=good-train.h5", "model.vocabulary=256"},
                    {"vocabulary of 257", "model.vocabulary is 256", "at least 257"}),
       bad_settings(
           "too-short",
           {"data.dataset=tokens", "data.path=good-train.h5", "training.sequence_length=50000"},
           {"tokens, too few for one sample", "needs 50001"}),
       bad_settings("validation-missing",
                    {"data.dataset=tokens", "data.path=good-train.h5", "training.validate_every=1",
                     "data.validation_path=nowhere.h5"},
                    {"/nowhere.h5' does not exist"}),
       bad_settings("validation-flipped",
                    {"data.dataset=tokens", "data.path=good-train.h5", "training.validate_every=1",
                     "data.validation_path=flipped.h5"},
                    {"/flipped.h5' is truncated or damaged"})});
}

TEST_F(BadInputs, OutputFolders) {
  expect_refused(
      "ostrakon-train", one_and_two,
      {bad_settings(
           "output-is-a-file", {"output.directory=a-file"},
           {"--set output.directory=\"a-file\"", "/a-file can't be made", "Not a directory"}),
       bad_settings("output-under-a-file", {"output.directory=a-file/below/it"},
                    {"--set output.directory=\"a-file/below/it\"", "Not a directory"}),
       bad_settings("output-empty", {"output.directory="}, {"output.directory", "not empty"}),
       bad_settings("deck-taken", {"output.directory=taken-deck.yaml"},
                    {"taken-deck.yaml", "a folder has that name"}),
       bad_settings("metrics-taken", {"output.directory=taken-metrics.jsonl"},
                    {"taken-metrics.jsonl", "Is a directory"}),
       bad_settings("weights-taken", {"output.directory=taken-weights.h5"},
                    {"taken-weights.h5", "is a folder"})});
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
      Command command = program("ostrakon-train", ranks, arguments, path(""));
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
      {bad_command("no-deck", {}, {"no deck given", "--help"}),
       bad_command("two-decks", {"deck.yaml", "deck.yaml"}, {"two decks given"}),
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

/// The small deck that goes on from `checkpoint`, with settings.
BadInput bad_resume(const std::string& name, const std::string& checkpoint, const Texts& fragments,
                    const Texts& settings = {}) {
  BadInput bad = bad_settings(name, settings, fragments);
  bad.arguments.push_back("--resume=" + checkpoint);
  return bad;
}

TEST_F(BadInputs, WhereToGoOn) {
  const std::string step = "synthetic/checkpoints/step-00000002";
  const std::string no_checkpoint =
      ": is no checkpoint, nor a folder of checkpoints; expected auto, none or a path";
  expect_refused(
      "ostrakon-train", one_and_two,
      {bad_command("resume-without-value", {"deck.yaml", "--resume"},
                   {"--resume needs auto, none or a path after it"}),
       bad_command("resume-empty", {"deck.yaml", "--resume", ""},
                   {"--resume: nothing after it; expected auto, none or a path"}),
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
           {"embedding.token.weight has the shape (257, 32); the deck's model expects (257, 64)"}),
       bad("more-layers", "model.layers=3",
           {"it has no parameter block.2.attention.norm.weight, which the deck's model has"}),
       bad("fewer-layers", "model.layers=1", {"it has 14 parameters; the deck's model has 8"}),
       bad("biases", "model.bias=true", {".bias, which the deck's model has"}),
       bad("other-moments", "optimizer.moments=bf16",
           {"its moments are fp32; expected optimizer.moments = fp32, not bf16"})});
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
       bad_command("no-text", {"build", "--output", "x"}, {"at least one text file"}),
       bad_command("missing-text", {"build", "--output", "x", "nowhere"},
                   {"'nowhere' does not exist"}),
       bad_command("empty-folder", {"build", "--output", "x", "a-folder"}, {"no text files"}),
       bad_command("output-under-a-file", {"build", "--output", "a-file/x", "text"},
                   {"'a-file'", "Not a directory"}),
       bad_command("all-held-out", {"build", "--output", "x", "--validation-fraction", "1", "text"},
                   {"--validation-fraction is 1", "less than 1"}),
       bad_command("nan-held-out",
                   {"build", "--output", "x", "--validation-fraction", "nan", "text"},
                   {"--validation-fraction", "nan"}),
       bad_command("negative-seed", {"build", "--output", "x", "--seed", "-1", "text"},
                   {"--seed is '-1'"}),
       bad_command("output-is-a-folder", {"build", "--output", "a-folder/", "text"},
                   {"--output is 'a-folder/', a folder", "'a-folder/NAME'"}),
       bad_command("vanishing-held-out",
                   {"build", "--output", "x", "--validation-fraction", "1e-400", "text"},
                   {"--validation-fraction is 1e-400; expected 0, or 1e-09 and more"}),
       bad_command("import-without-vocabulary", {"import", "--output", "x.h5", "a-file"},
                   {"--vocabulary V"}),
       bad_command("import-without-output", {"import", "--vocabulary", "9", "a-file"},
                   {"--output FILE"}),
       bad_command("import-into-folder",
                   {"import", "--vocabulary", "9", "--output", "a-folder/", "a-file"},
                   {"--output is 'a-folder/', a folder"}),
       bad_command("import-nothing",
                   {"import", "--vocabulary", "9", "--output", "x.h5", "empty.h5"},
                   {"no tokens to write"}),
       bad_command("import-missing", {"import", "--vocabulary", "9", "--output", "x.h5", "nowhere"},
                   {"'nowhere' does not exist"}),
       bad_command("import-half-a-number",
                   {"import", "--vocabulary", "65536", "--output", "x.h5", "a-file"},
                   {"'a-file' ends inside a number of 2 bytes"}),
       bad_command("import-beyond-vocabulary",
                   {"import", "--vocabulary", "9", "--output", "x.h5", "text/fox.txt"},
                   {"token 26708 at position 0 is not in its vocabulary of 9"}),
       bad_command("import-other-type",
                   {"import", "--vocabulary", "9", "--dtype", "int8", "--output", "x.h5", "a-file"},
                   {"--dtype is 'int8'; expected uint16 or uint32"}),
       bad_command(
           "import-other-end",
           {"import", "--vocabulary", "9", "--end-of-text", "9", "--output", "x.h5", "a-file"},
           {"--end-of-text is 9", "0 to 8"}),
       bad_command("import-onto-itself",
                   {"import", "--vocabulary", "9", "--output", "a-file", "a-file"},
                   {"--output is the file to read"}),
       bad_command("info-of-text", {"info", "text/fox.txt"}, {"is not an HDF5 file"}),
       bad_command("verify-flipped", {"verify", "flipped.h5"}, {"damaged", "checksum"}),
       bad_command("verify-liar", {"verify", "liar.h5"}, {"not in its vocabulary of 100"}),
       bad_command("no-such-document", {"show", "good-train.h5", "--document", "7"},
                   {"has no document 7; it has 1"}),
       bad_command("unknown-data-option", {"info", "--all", "good-train.h5"},
                   {"unknown option '--all' of info"})});
}

TEST_F(BadInputs, BenchProgram) {
  expect_refused(
      "ostrakon-bench", one_and_two,
      {bad_command("unknown-bench", {"kernel"},
                   {"don't know how to measure kernel",
                    "kernels, comm, step DECK, overlap DECK or checkpoint DECK"}),
       bad_command("two-benches", {"kernels", "comm"}, {"kernels takes no further argument"}),
       bad_command("step-without-deck", {"step"}, {"step needs a deck"}),
       bad_command("checkpoint-without-deck", {"checkpoint"}, {"checkpoint needs a deck"}),
       bad_command("step-of-two", {"step", "deck.yaml", "deck.yaml"}, {"two decks given"}),
       bad_command("step-of-missing", {"step", "nowhere.yaml"}, {"nowhere.yaml: can't be read"}),
       bad_command("no-time", {"kernels", "--seconds", "0"}, {"--seconds 0", "greater than 0"}),
       bad_command("set-without-step", {"kernels", "--set", "model.layers=1"},
                   {"--set is for step DECK, overlap DECK and checkpoint DECK only"}),
       bad_command("nodes-of-kernels", {"kernels", "--ranks-per-node", "1"},
                   {"--ranks-per-node is for comm only"}),
       bad_command("nodes-of-none", {"comm", "--ranks-per-node", "0"},
                   {"--ranks-per-node 0: expected an integer greater than 0"}),
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
      {bad_command("no-weights", {}, {"no weights given"}),
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
       bad_command("two-weights", {"trained/weights.h5", "plain.h5"}, {"two files given"}),
       bad_command("unknown-generate-option", {"trained/weights.h5", "--topk", "3"},
                   {"unknown option --topk"})});
  expect_refused(
      "ostrakon-generate", {2},
      {bad_command("two-ranks", {"trained/weights.h5"}, {"started on 2 ranks; expected one"})});
}

}  // namespace
}  // namespace ostrakon::testing
