// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "command.hpp"
#include "fixtures.hpp"

namespace ostrakon::testing {

using Texts = std::vector<std::string>;

inline const char* const gpt2_deck = R"(ostrakon:
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

inline const char* const llama_deck = R"(ostrakon:
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
class Generate : public SharedFolder<Generate> {
 protected:
  static void SetUpTestSuite() {
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

  static std::string generated(const Texts& arguments) {
    return must("ostrakon-generate", arguments);
  }
  /// A text of some length from these weights.
  static std::string text_of(Texts arguments) {
    for (const char* option : {"--prompt", "Ship 4", "--tokens", "60", "--seed", "3"})
      arguments.push_back(option);
    return must("ostrakon-generate", arguments);
  }
  /// Started without mpiexec, which may forward standard input in its own way. `shell`: runs what
  /// is in $@.
  static Outcome start_alone(const Texts& arguments, int input, const std::string& shell = "") {
    Command command;
    if (!shell.empty()) command.arguments = {"sh", "-c", shell, "sh"};
    command.arguments.push_back(OSTRAKON_APPS_DIR "/ostrakon-generate");
    command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
    command.folder = path("");
    command.input = input;
    return run_command(command);
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
};

/// The arguments of text_of() but for the prompt.
inline const Texts some_text = {"llama/weights.h5", "--tokens", "60", "--seed", "3"};

inline Texts with(Texts arguments, const Texts& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace ostrakon::testing
