// SPDX-License-Identifier: Apache-2.0

// ostrakon-generate as a user starts it, on whatever holds a model's weights.

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
    width: 32
    heads: 4
    vocabulary: 257
    norm: layernorm
    positions: learned
    activation: gelu
    bias: true
    norm_epsilon: 3e-5
  data: {path: text-train.h5}
  training: {steps: 20, global_batch_size: 4, micro_batch_size: 2, sequence_length: 24}
  optimizer: {learning_rate: 1e-2}
  output: {directory: gpt2}
  checkpoint: {every: 20}
)";

const char* const llama_deck = R"(ostrakon:
  model:
    layers: 2
    width: 32
    heads: 4
    kv_heads: 2
    vocabulary: 257
    tie_embeddings: false
    rotary_base: 1234.5
  data: {path: text-train.h5}
  training: {steps: 20, global_batch_size: 4, micro_batch_size: 2, sequence_length: 24}
  optimizer: {learning_rate: 1e-2}
  output: {directory: llama}
  checkpoint: {every: 20}
)";

/// Two small models of text, in each form that they come in.
class Generate : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new ScratchFolder;
    std::string text;
    for (int i = 0; i < 200; ++i) text += "Ship " + std::to_string(i * 37 % 101) + " has salt.\n";
    write_bytes(path("text.txt"), text);
    write_bytes(path("gpt2.yaml"), gpt2_deck);
    write_bytes(path("llama.yaml"), llama_deck);
    must("ostrakon-data", {"build", "--output", "text", "--validation-fraction", "0", "text.txt"});
    for (const std::string model : {"gpt2", "llama"}) {
      must("ostrakon-train", {model + ".yaml"});
      must("ostrakon-checkpoint",
           {"export", model + "/weights.h5", model + "-hf", "--shard-size", "30KB"});
      must("ostrakon-checkpoint", {"export", model + "/weights.h5", model + ".safetensors"});
    }
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static std::string path(const std::string& name) { return folder_->file(name); }

  static Outcome start(const std::string& name, const Texts& arguments) {
    return run_command(program(name, 1, arguments, path("")));
  }
  static std::string must(const std::string& name, const Texts& arguments) {
    const Outcome outcome = start(name, arguments);
    EXPECT_EQ(outcome.status, 0) << name << " " << arguments[0] << "\n" << outcome.err;
    return outcome.out;
  }
  /// A text of some length from these weights.
  static std::string text_of(Texts arguments) {
    for (const char* option : {"--prompt", "Ship 4", "--tokens", "60", "--seed", "3"})
      arguments.push_back(option);
    return must("ostrakon-generate", arguments);
  }
  static void expect_refused(const Texts& arguments, const std::string& message) {
    const Outcome outcome = start("ostrakon-generate", arguments);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.err.find("ostrakon-generate: error: "), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << message << "\n" << outcome.err;
  }
  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from << "\n" << text;
    return text.replace(at, from.size(), to);
  }
  /// The exported Llama with another config.json.
  static void expect_config_refused(const std::string& config, const std::string& message) {
    write_bytes(path("llama-other/config.json"), config);
    expect_refused({"llama-other"}, message);
  }

  static inline ScratchFolder* folder_ = nullptr;
};

TEST_F(Generate, TheSameTextFromEveryForm) {
  std::string texts[2];
  for (const std::string model : {"gpt2", "llama"}) {
    const std::string expected = text_of({model + "/weights.h5"});
    EXPECT_GT(expected.size(), 30U);
    texts[model == "gpt2"] = expected;
    EXPECT_EQ(text_of({model + "/checkpoints/latest"}), expected);
    EXPECT_EQ(text_of({model + "/checkpoints/step-00000020"}), expected);
    EXPECT_EQ(text_of({model + "-hf"}), expected) << "config.json";
    EXPECT_EQ(text_of({model + "-hf/model.safetensors.index.json"}), expected);
    EXPECT_EQ(text_of({model + "-hf", "--deck", model + ".yaml"}), expected);
    EXPECT_EQ(text_of({model + ".safetensors", "--deck=" + model + ".yaml"}), expected);
  }
  EXPECT_NE(texts[0], texts[1]);
}

TEST_F(Generate, WhatConfigSaysCounts) {
  fs::create_directory(path("turned"));
  for (const auto& entry : fs::directory_iterator(path("llama-hf")))
    fs::copy(entry.path(), path("turned") / entry.path().filename());
  const std::string config = read_bytes(path("llama-hf/config.json"));
  write_bytes(path("turned/config.json"), replaced(config, "1234.5", "7.5"));
  EXPECT_NE(text_of({"turned"}), text_of({"llama-hf"}));
}

TEST_F(Generate, ContextMayBeAnotherWherePositionsAreRotary) {
  const Texts likeliest = {"--temperature", "0", "--tokens", "40", "--prompt", "Ship 4"};
  const auto text = [&](Texts arguments) {
    arguments.insert(arguments.end(), likeliest.begin(), likeliest.end());
    return must("ostrakon-generate", arguments);
  };
  EXPECT_NE(text({"llama-hf", "--context", "2"}), text({"llama-hf"}));
  EXPECT_EQ(text({"llama-hf", "--context", "24"}), text({"llama/weights.h5"}));
  expect_refused({"gpt2-hf", "--context", "12"}, "learned positions, 24");
  expect_refused({"llama-hf", "--context", "0"}, "--context 0");
  expect_refused({"llama-hf", "--context", "9000000000000000000"}, "--context 9000000000000000000");
}

TEST_F(Generate, TokenizersAreAskedFor) {
  must("ostrakon-checkpoint",
       {"import", "llama-hf", "external.h5", "--deck", "llama.yaml", "--tokenizer", "external"});
  expect_refused({"external.h5"}, "does not say whose tokens it knows; expected --tokenizer NAME");
  EXPECT_EQ(text_of({"external.h5", "--tokenizer", "byte"}), text_of({"llama/weights.h5"}));
  expect_refused({"external.h5", "--tokenizer", "bpe"}, "it knows byte");
  expect_refused({"llama/weights.h5", "--tokenizer", "bpe"}, "--tokenizer says 'bpe'");
}

TEST_F(Generate, BadInputIsRefused) {
  expect_refused({"none"}, "'none' does not exist");
  expect_refused({"text.txt"}, "safetensors file 'text.txt'");
  expect_refused({"llama.safetensors"}, "expected --deck DECK, or './config.json'");
  expect_refused({"llama.safetensors", "--deck", "gpt2.yaml"}, "is no GPT-2");
  expect_refused({"llama.safetensors", "--deck", "none.yaml"}, "none.yaml");
  expect_refused({"llama/weights.h5", "--deck", "llama.yaml"}, "has its deck in it");
  expect_refused({"llama/checkpoints"}, "is a folder of checkpoints");
  expect_refused({"llama"}, "has neither model.safetensors.index.json nor model.safetensors");

  fs::copy(path("llama-hf"), path("llama-other"));
  const std::string config = read_bytes(path("llama-hf/config.json"));
  expect_config_refused("{", "is not JSON");
  expect_config_refused(replaced(config, "\"rope_scaling\": null",
                                 R"("rope_scaling": {"rope_type": "llama3", "factor": 8})"),
                        "does not scale rotary frequencies");
  expect_config_refused(replaced(config, "silu", "relu"), "hidden_act");
  const auto with = [&](const std::string& key, const std::string& from, const std::string& to) {
    return replaced(config, "\"" + key + "\": " + from, "\"" + key + "\": " + to);
  };
  expect_config_refused(with("num_hidden_layers", "2", "1"), "is no part of the model");
  expect_config_refused(with("num_hidden_layers", "2", "0"), "num_hidden_layers is 0");
  for (const char* key : {"num_hidden_layers", "num_key_value_heads"})
    expect_config_refused(with(key, "2", "9223372036854775807"), "config.json: model.");
  expect_config_refused(with("max_position_embeddings", "24", "9223372036854775807"),
                        "config.json: training.sequence_length");
  expect_config_refused(with("max_position_embeddings", "24", "2000000000"), "of memory");
  expect_config_refused(with("num_key_value_heads", "2", "3"), "model.kv_heads");
  expect_config_refused(with("num_key_value_heads", "2", "1"), "has the shape");
  expect_config_refused(with("vocab_size", "257", "258"), "has the shape");
}

TEST_F(Generate, DamagedCheckpointsAreNotUsed) {
  fs::copy(path("llama/checkpoints/step-00000020"), path("hurt"));
  std::string bytes = read_bytes(path("hurt/rank-00000.h5"));
  for (std::size_t at = 0; at < bytes.size(); at += 512)
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
  write_bytes(path("hurt/rank-00000.h5"), bytes);
  expect_refused({"hurt"}, "rank-00000.h5");
  fs::remove(path("hurt/rank-00000.h5"));
  expect_refused({"hurt"}, "rank-00000.h5");
}

}  // namespace
}  // namespace ostrakon::testing
