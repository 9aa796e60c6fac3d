// SPDX-License-Identifier: Apache-2.0

// ostrakon-checkpoint as a user starts it, on weights that ostrakon-train wrote.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <support/scratch_folder.hpp>
#include <vector>

#include "command.hpp"

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
)";

const char* const llama_deck = R"(ostrakon:
  model: {layers: 2, width: 24, heads: 6, kv_heads: 2, vocabulary: 257, tie_embeddings: false}
  data: {dataset: synthetic}
  training: {steps: 2, global_batch_size: 2, sequence_length: 16}
  output: {directory: llama}
)";

class Checkpoint : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new ScratchFolder;
    write_bytes(path("gpt2.yaml"), gpt2_deck);
    write_bytes(path("llama.yaml"), llama_deck);
    for (const char* deck : {"gpt2.yaml", "llama.yaml"}) {
      const Outcome outcome = run_command(program("ostrakon-train", 1, {deck}, path("")));
      ASSERT_EQ(outcome.status, 0) << outcome.err;
    }
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static std::string path(const std::string& name) { return folder_->file(name); }

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
  static void expect_in(const std::string& output, const Texts& parts) {
    for (const std::string& part : parts)
      EXPECT_NE(output.find(part), std::string::npos) << part << " is not in\n" << output;
  }
  static void expect_refused(const Texts& arguments, const std::string& message) {
    const Outcome outcome = start(arguments);
    EXPECT_EQ(outcome.status, 1);
    expect_in(outcome.err, {"ostrakon-checkpoint: error: ", message});
  }

  static ScratchFolder* folder_;
};

ScratchFolder* Checkpoint::folder_ = nullptr;

TEST_F(Checkpoint, GoesOutAndComesBack) {
  for (const std::string model : {"gpt2", "llama"}) {
    const std::string weights = model + "/weights.h5", out = model + ".safetensors",
                      back = model + "-back.h5", deck = model + ".yaml";
    expect_in(output_of({"export", weights, out}), {"wrote " + out + ", step 2 of " + weights});
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

TEST_F(Checkpoint, BadInputIsRefused) {
  expect_refused({}, "no command; expected inspect");
  expect_refused({"explode"}, "unknown command 'explode'");
  expect_refused({"inspect"}, "inspect takes one file; found 0");
  expect_refused({"inspect", "none"}, "does not exist");
  expect_refused({"inspect", "gpt2.yaml"}, "safetensors file 'gpt2.yaml'");
  expect_refused({"verify", "a", "b"}, "verify takes one file; found 2");
  expect_refused({"diff", "a"}, "diff takes two files");
  expect_refused({"export", "gpt2/weights.h5"}, "export takes two files");
  expect_refused({"export", "gpt2/weights.h5", "x", "--dtype", "fp16"}, "expected fp32 or bf16");
  expect_refused({"export", "gpt2/weights.h5", "gpt2/weights.h5"}, "is the file to read");
  expect_refused({"export", "gpt2/weights.h5", "x", "--colour", "red"},
                 "unknown option '--colour'");
  output_of({"export", "gpt2/weights.h5", "g.safetensors"});
  expect_refused({"import", "g.safetensors", "x.h5"}, "import needs --deck DECK");
  expect_refused({"import", "g.safetensors", "x.h5", "--deck", "llama.yaml"}, "is no Llama");
  EXPECT_FALSE(fs::exists(path("x.h5")));

  std::string bytes = read_bytes(path("gpt2/weights.h5"));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_bytes(path("damaged.h5"), bytes);
  EXPECT_EQ(start({"verify", "damaged.h5"}).status, 1);
}

TEST_F(Checkpoint, HelpAndVersion) {
  expect_in(output_of({"--help"}), {"usage: ostrakon-checkpoint inspect FILE", "Exit status"});
  expect_in(output_of({"diff", "--version"}), {"ostrakon-checkpoint 0."});
}

}  // namespace
}  // namespace ostrakon::testing
