// SPDX-License-Identifier: Apache-2.0

// ostrakon-checkpoint as a user starts it, on weights and checkpoints that ostrakon-train wrote.

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <support/damage.hpp>
#include <support/scratch_folder.hpp>
#include <vector>

#include "command.hpp"
#include "fixtures.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

const char* const gpt2_deck = R"(ostrakon:
  model:
    layers: 2
    width: 24
    heads: 3
    vocabulary: 257
    norm: layernorm
    positions: learned
    activation: gelu
    bias: true
  data: {dataset: synthetic}
  training: {steps: 2, global_batch_size: 2, sequence_length: 16}
  output: {directory: gpt2}
  checkpoint: {every: 1, files: single}
)";

const char* const llama_deck = R"(ostrakon:
  model: {layers: 2, width: 24, heads: 6, kv_heads: 2, vocabulary: 257, tie_embeddings: false}
  data: {dataset: synthetic}
  training: {steps: 2, global_batch_size: 2, sequence_length: 16}
  output: {directory: llama}
  checkpoint: {every: 1}
)";

class Checkpoint : public SharedFolder<Checkpoint> {
 protected:
  static void SetUpTestSuite() {
    write_bytes(path("gpt2.yaml"), gpt2_deck);
    write_bytes(path("llama.yaml"), llama_deck);
    for (const char* deck : {"gpt2.yaml", "llama.yaml"}) {
      const Outcome outcome = run_command(program("ostrakon-train", 2, {deck}, path("")));
      ASSERT_EQ(outcome.status, 0) << outcome.err;
    }
  }

  /// By itself: it needs no MPI.
  static Outcome start(const Texts& arguments) {
    Command command;
    command.arguments = {OSTRAKON_APPS_DIR "/ostrakon-checkpoint"};
    command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
    command.folder = path("");
    return run_command(command);
  }
  /// Standard output of what must do well.
  static std::string output_of(const Texts& arguments) {
    const Outcome outcome = start(arguments);
    EXPECT_EQ(outcome.status, 0) << arguments[0] << "\n" << outcome.err << outcome.out;
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  }
  static void expect_refused(const Texts& arguments, const std::string& message) {
    const Outcome outcome = start(arguments);
    EXPECT_EQ(outcome.status, 1);
    expect_in(outcome.err, {"ostrakon-checkpoint: error: ", message});
  }

  /// Changes one bit of a file.
  static void damage(const std::string& name, std::size_t byte) {
    testing::damage(path(name), byte);
  }
  /// A copy of a folder, to be damaged.
  static void copy(const std::string& from, const std::string& to) {
    fs::copy(path(from), path(to), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }
};

TEST_F(Checkpoint, GoesOutAndComesBack) {
  for (const std::string model : {"gpt2", "llama"}) {
    const std::string weights = model + "/weights.h5", out = model + ".safetensors",
                      back = model + "-back.h5", deck = model + ".yaml";
    expect_in(output_of({"export", weights, out}), {"wrote " + out + ", step 2 of " + weights});
    expect_refused({"export", weights, out}, "'" + out + "' is there already");
    output_of({"export", weights, out, "--overwrite"});
    expect_in(output_of({"import", out, back, "--deck", deck}), {"wrote " + back});
    expect_in(output_of({"diff", weights, back}), {"block.1.attention.qkv.weight", "equal\n"});
    expect_in(output_of({"diff", weights, out}), {"block.1.attention.qkv.weight", "equal\n"});
    expect_in(output_of({"diff", out, weights}), {"equal\n"});
    expect_in(output_of({"verify", back}), {"is sound", "each with its checksum"});
    expect_in(output_of({"verify", out}), {"is well formed", "no checksums"});
  }
}

TEST_F(Checkpoint, SaysWhatIsInside) {
  output_of({"export", "llama/weights.h5", "inside.safetensors", "--dtype=bf16"});
  expect_in(output_of({"inspect", "llama/weights.h5"}),
            {"step        2\n", "tokenizer   ", "block.0.attention.qkv.weight   (40, 24)   fp32\n",
             "head.output.weight             (257, 24)  fp32\n"});
  expect_in(output_of({"inspect", "inside.safetensors"}),
            {"format: pt\n", "model.layers.1.self_attn.k_proj.weight", "(8, 24)    BF16\n"});
}

TEST_F(Checkpoint, DifferencesAreShown) {
  output_of({"export", "llama/weights.h5", "rounded.safetensors", "--dtype", "bf16"});
  for (const Texts& arguments : {Texts{"diff", "llama/weights.h5", "rounded.safetensors"},
                                 Texts{"diff", "llama/weights.h5", "gpt2/weights.h5"}}) {
    const Outcome outcome = start(arguments);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.err, "");
    expect_in(outcome.out, {" differ\n"});
  }
  expect_in(start({"diff", "llama/weights.h5", "gpt2/weights.h5"}).out,
            {"(40, 24)   (72, 24) in the second", "only in the first", "only in the second"});
}

TEST_F(Checkpoint, GoesOutInShardsAndComesBack) {
  for (const std::string model : {"gpt2", "llama"}) {
    const std::string weights = model + "/weights.h5", deck = model + ".yaml",
                      many = model + "-many", one = model + "-one", back = model + "-shards.h5";
    expect_in(
        output_of({"export", weights, many + "/", "--shard-size", "20KB"}),
        {"wrote " + many + "/, step 2 of " + weights, " in fp32, ", " files and config.json\n"});
    EXPECT_TRUE(fs::exists(path(many + "/model.safetensors.index.json")));
    EXPECT_TRUE(fs::exists(path(many + "/config.json")));
    EXPECT_FALSE(fs::exists(path(many + "/model.safetensors")));
    expect_in(output_of({"export", weights, one}), {", 1 file and config.json\n"});
    EXPECT_TRUE(fs::exists(path(one + "/config.json")));
    EXPECT_TRUE(fs::exists(path(one + "/model.safetensors")));
    EXPECT_FALSE(fs::exists(path(one + "/model.safetensors.index.json")));
    for (const std::string& in : {many, one}) {
      if (in == one) {
        const std::string before = read_bytes(path(back));
        expect_refused({"import", in, back, "--deck", deck},
                       "'" + back + "' is there already; expected a new name, or --overwrite");
        EXPECT_EQ(read_bytes(path(back)), before);
      }
      output_of({"import", in, back, "--deck", deck, "--overwrite"});
      expect_in(output_of({"diff", weights, back}), {"equal\n"});
      expect_in(output_of({"verify", in}), {"is well formed"});
    }
    expect_in(output_of({"inspect", many}), {"tokenizer: ", "format: pt"});
    expect_refused({"export", weights, many, "--shard-size", "20KB"}, "is there already");
    expect_refused({"export", weights, many, "--overwrite"}, "--overwrite replaces a file; OUT, ");
  }
  for (const char* size : {"", "5", "GB", "0GB", "-1GB", "1.5GB", "5gb", "5GiB", "99999999999TB"})
    expect_refused({"export", "gpt2/weights.h5", "sized", "--shard-size", size},
                   "expected a whole number and a unit");
  EXPECT_FALSE(fs::exists(path("sized")));
}

// weights.h5 where there is one, else the newest checkpoint.
TEST_F(Checkpoint, TheFolderOfARunStandsForItsModel) {
  fs::create_directory(path("unfinished"));
  fs::copy(path("gpt2/checkpoints"), path("unfinished/checkpoints"),
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  for (const std::string run : {"gpt2", "unfinished"}) {
    const std::string model =
        run == "gpt2" ? "gpt2/weights.h5" : "unfinished/checkpoints/step-00000002";
    const std::string note = "note: '" + run + "' is a run's folder: takes '" + model + "'\n";
    for (const Texts& arguments : {Texts{"inspect", run}, Texts{"verify", run}}) {
      const Outcome of_folder = start(arguments);
      EXPECT_EQ(of_folder.status, 0);
      EXPECT_EQ(of_folder.err, note);
      EXPECT_EQ(of_folder.out, output_of({arguments[0], model}));
    }
    const Outcome exported = start({"export", run, run + "-hf"});
    EXPECT_EQ(exported.status, 0) << exported.err;
    EXPECT_EQ(exported.err, note);
    expect_in(exported.out, {"step 2 of " + model + " as gpt2"});
    expect_in(output_of({"diff", run + "-hf", model}), {"equal\n"});
  }
}

TEST_F(Checkpoint, CheckpointsAreWeightsToo) {
  for (const std::string model : {"gpt2", "llama"}) {
    const std::string weights = model + "/weights.h5", latest = model + "/checkpoints/latest",
                      out = model + "-saved", back = model + "-saved.h5";
    for (const Texts& files : {Texts{weights, latest}, Texts{latest, weights}})
      expect_in(output_of({"diff", files[0], files[1]}), {"equal\n"});
    expect_in(output_of({"export", latest, out, "--shard-size", "20KB"}), {"step 2 of " + latest});
    for (const Texts& files : {Texts{out, latest}, Texts{latest, out}})
      expect_in(output_of({"diff", files[0], files[1]}), {"equal\n"});
    output_of({"import", latest, back, "--deck", model + ".yaml"});
    expect_in(output_of({"diff", back, weights}), {"equal\n"});
  }
  expect_refused({"import", "gpt2/checkpoints/latest", "no.h5", "--deck", "llama.yaml"},
                 "is not of the model that the deck describes");
  expect_refused({"export", "gpt2/checkpoints", "no.safetensors"},
                 "'gpt2/checkpoints' is a folder of checkpoints; expected one of them, such as "
                 "'gpt2/checkpoints/latest'");

  // Parameters of the same names and shapes, with which another model is computed.
  for (const std::string from : {"llama/weights.h5", "llama/checkpoints/latest"}) {
    const Outcome outcome = run_command(
        program("ostrakon-train", 2,
                {"llama.yaml", "--set", "output.directory=no", "--set", "model.norm_epsilon=1e-6",
                 "--set", "checkpoint.initial_weights=" + from},
                path("")));
    EXPECT_EQ(outcome.status, 1);
    EXPECT_HAS(outcome.err, "model.norm_epsilon is 1e-5 in it, but 1e-6 in the deck");
  }

  // A run begins with them, and with the same bits as with the weights file.
  for (const std::string from : {"gpt2/weights.h5", "gpt2/checkpoints/latest"}) {
    const std::string out = "output.directory=from-" + from.substr(5, 3);
    const Outcome outcome = run_command(program(
        "ostrakon-train", 1,
        {"gpt2.yaml", "--set", out, "--set", "checkpoint.initial_weights=" + from}, path("")));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  }
  expect_in(output_of({"diff", "from-wei/weights.h5", "from-che/weights.h5"}), {"equal\n"});
}

TEST_F(Checkpoint, SaysWhatIsInACheckpoint) {
  expect_in(output_of({"inspect", "llama/checkpoints/latest"}),
            {"format      checkpoint of Ostrakon ", "step        2\n", "ranks       2\n",
             "optimizer   adamw\n", "tokenizer   synthetic\n", "updates     2\n", "samples     4\n",
             "rank-00000.h5  ", "rank-00001.h5  ",
             "block.0.attention.qkv.weight   (40, 24)   parameters fp32, first_moment fp32, "
             "second_moment fp32\n"});
  const std::string table = output_of({"inspect", "gpt2/checkpoints"});
  expect_in(table, {"step-00000001  1     1", "step-00000002  2     2"});
  const std::size_t latest = table.find("latest");
  ASSERT_NE(latest, std::string::npos) << table;
  EXPECT_EQ(table.rfind("step-", latest), table.find("step-00000002")) << table;
}

TEST_F(Checkpoint, DamageOfCheckpointsIsFound) {
  expect_in(output_of({"verify", "llama/checkpoints/latest"}), {"is sound: step 2, "});
  expect_in(output_of({"verify", "llama/checkpoints"}),
            {"step-00000001  good\n", "step-00000002  good\n", "2 good, 0 damaged\n"});
  copy("llama/checkpoints", "hurt");
  const std::string file = "hurt/step-00000002/rank-00001.h5";
  const std::size_t size = read_bytes(path(file)).size();
  for (const std::size_t byte : {std::size_t{0}, size / 4, size / 2, size - 1}) {
    damage(file, byte);
    expect_refused({"verify", "hurt/latest"}, "rank-00001.h5");
    const Outcome both = start({"verify", "hurt"});
    EXPECT_EQ(both.status, 1);
    expect_in(both.out, {"step-00000001  good\n", "step-00000002  damaged: ", "rank-00001.h5",
                         "1 good, 1 damaged\n"});
    damage(file, byte);  // and back
  }
  expect_in(output_of({"verify", "hurt"}), {"2 good, 0 damaged\n"});
  damage("hurt/step-00000001/manifest.json", 40);
  expect_refused({"verify", "hurt/step-00000001"}, "manifest.json");
  expect_in(output_of({"inspect", "hurt"}), {"step-00000001", "damaged: "});
  EXPECT_EQ(start({"verify", "hurt"}).status, 1);
  fs::remove(path("hurt/step-00000001/manifest.json"));
  expect_refused({"verify", "hurt/step-00000001"}, "manifest.json");
  output_of({"export", "llama/weights.h5", "hf/step-00000001", "--shard-size", "1MB"});
  expect_in(output_of({"verify", "hf/step-00000001"}), {"is well formed"});
}

TEST_F(Checkpoint, CheckpointsAreCompared) {
  const Outcome outcome =
      start({"diff", "gpt2/checkpoints/step-00000001", "gpt2/checkpoints/step-00000002"});
  EXPECT_EQ(outcome.status, 1);
  expect_in(outcome.out, {"step     1 | 2\n", "updates  1 | 2\n", "samples  2 | 4\n",
                          "first_moment of block.0.mlp.up.weight",
                          "second_moment of head.norm.bias", " differ\n"});
  EXPECT_LACKS(outcome.out, "their decks");
  const Outcome models = start({"diff", "gpt2/checkpoints/latest", "llama/checkpoints/latest"});
  EXPECT_EQ(models.status, 1);
  expect_in(models.out, {"model.kv_heads", "3 | 2\n", "model.bias", "true | false\n",
                         "second_moment of block.0.attention.qkv.bias", "only in the first"});
  EXPECT_LACKS(models.out, "the runs");
}

TEST_F(Checkpoint, IsDividedAnew) {
  const std::string latest = "llama/checkpoints/latest";
  expect_in(output_of({"reshard", latest, "one", "--ranks", "1", "--files", "single"}),
            {"wrote one, step 2 of " + latest + " as 1 rank hold", " in 1 file\n"});
  expect_in(output_of({"inspect", "one"}), {"state.h5", "ranks       1\n"});
  expect_in(
      output_of({"reshard", "one", "five", "--ranks=5", "--files=node", "--ranks-per-node=2"}),
      {" in 3 files\n"});
  for (const char* other : {"one", "five"}) {
    expect_in(output_of({"verify", other}), {"is sound"});
    expect_in(output_of({"diff", latest, other}), {"second_moment of head.norm.weight", "equal\n"});
  }
  expect_refused({"reshard", latest, "five", "--ranks", "1"}, "is there already");
  expect_refused({"reshard", latest, "no"}, "reshard needs --ranks N");
  expect_refused({"reshard", latest, "no", "--ranks", "0"}, "expected 1 to");
  expect_refused({"reshard", latest, "no", "--ranks", "2", "--files", "all"},
                 "expected rank, node or single");
  expect_refused({"reshard", latest, "no", "--ranks", "2", "--ranks-per-node", "0"}, "a node");
  expect_refused({"reshard", "llama/weights.h5", "no", "--ranks", "2"}, "is no checkpoint");
  copy("one", "one-hurt");
  damage("one-hurt/state.h5", read_bytes(path("one-hurt/state.h5")).size() / 2);
  expect_refused({"reshard", "one-hurt", "no", "--ranks", "2"}, "state.h5");
  EXPECT_FALSE(fs::exists(path("no")));
  EXPECT_FALSE(fs::exists(path("no.partial")));

  // Training resumes from it as from the one that was saved.
  for (const std::string& from : {latest, std::string("five")}) {
    const std::string out = "output.directory=on-" + from.substr(0, 4);
    const Outcome outcome = run_command(program(
        "ostrakon-train", 1,
        {"llama.yaml", "--resume", from, "--set", out, "--set", "training.steps=4"}, path("")));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  }
  expect_in(output_of({"diff", "on-llam/checkpoints/latest", "on-five/checkpoints/latest"}),
            {"equal\n"});
}

TEST_F(Checkpoint, LatestIsNeverAnOldOne) {
  copy("llama/checkpoints", "copied");
  const std::string latest = path("copied/latest");
  const std::string newest = fs::read_symlink(latest).string();
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(path("copied")))
    if (!entry.is_symlink()) names.insert(entry.path().filename().string());
  ASSERT_GE(names.size(), 2u);
  fs::remove(latest);
  fs::copy(path("copied/" + *names.begin()), latest);
  const Outcome inspected = start({"inspect", "copied/latest"});
  EXPECT_EQ(inspected.status, 0) << inspected.err;
  EXPECT_HAS(inspected.out, "copied/" + newest);
  EXPECT_HAS(inspected.err, "note: 'copied/latest' is an older checkpoint");
  expect_in(start({"diff", "copied/latest", "copied/" + newest}).out, {"equal\n"});
  fs::remove_all(latest);
  expect_in(start({"verify", "copied/latest"}).out, {newest + " is sound"});
  fs::create_symlink("nowhere", latest);
  expect_refused({"inspect", "copied/latest"}, "is a link whose target does not exist");
  // One with the name of another step is no damage.
  fs::rename(path("copied/" + newest), path("copied/step-00000900"));
  expect_in(output_of({"inspect", "copied"}), {"step-00000900", "renamed"});
  expect_in(output_of({"verify", "copied"}), {" 0 damaged"});
}

TEST_F(Checkpoint, BadInputIsRefused) {
  expect_refused({}, "no command; expected inspect");
  expect_refused({"explode"}, "unknown command 'explode'");
  expect_refused({"inspect"}, "no FILE given; see ostrakon-checkpoint inspect --help");
  expect_refused({"inspect", "none"}, "does not exist");
  expect_refused({"inspect", "gpt2.yaml"}, "safetensors file 'gpt2.yaml'");
  expect_refused({"verify", "a", "b"}, "verify takes FILE, found also \"b\"");
  expect_refused({"diff", "a"}, "no B given");
  expect_refused({"export", "gpt2/weights.h5"}, "no OUT given");
  expect_refused({"export", "gpt2/weights.h5", "x", "--dtype", "fp16"}, "expected fp32 or bf16");
  expect_refused({"export", "gpt2/weights.h5", "gpt2/weights.h5"}, "is the file to read");
  expect_refused({"export", "gpt2/weights.h5", "x", "--colour", "red"}, "unknown option --colour");
  output_of({"export", "gpt2/weights.h5", "g.safetensors"});
  expect_refused({"import", "g.safetensors", "x.h5"}, "import needs --deck DECK: no config.json");
  expect_refused({"import", "g.safetensors", "x.h5", "--deck", "llama.yaml"}, "is no Llama");
  EXPECT_FALSE(fs::exists(path("x.h5")));

  fs::copy(path("gpt2/weights.h5"), path("damaged.h5"));
  damage_a_value(path("damaged.h5"));
  EXPECT_EQ(start({"verify", "damaged.h5"}).status, 1);
}

TEST_F(Checkpoint, HelpAndVersion) {
  expect_in(output_of({"--help"}), {"usage: ostrakon-checkpoint inspect FILE", "reshard",
                                    "already\nis refused, but for an", "Exit status"});
  const std::string of_one = output_of({"reshard", "--help"});
  EXPECT_EQ(of_one.rfind("usage: ostrakon-checkpoint reshard --ranks N CHECKPOINT OUT", 0), 0U);
  EXPECT_EQ(of_one.find("--shard-size"), std::string::npos) << of_one;
  expect_in(output_of({"diff", "--version"}), {"ostrakon-checkpoint 0."});
}

}  // namespace
}  // namespace ostrakon::testing
