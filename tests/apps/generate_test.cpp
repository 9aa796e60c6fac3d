// SPDX-License-Identifier: Apache-2.0

// ostrakon-generate as a user starts it, on whatever holds a model's weights.

#include <gtest/gtest.h>

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/portability.hpp>
#include <sstream>
#include <string>
#include <support/scratch_folder.hpp>
#include <thread>
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

/// The arguments of text_of() but for the prompt.
const Texts some_text = {"llama/weights.h5", "--tokens", "60", "--seed", "3"};

Texts with(Texts arguments, const Texts& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_F(Generate, ARunsFolderIsItsWeightsOrItsNewestGoodCheckpoint) {
  const std::string expected = text_of({"llama/weights.h5"});
  Outcome outcome = start("ostrakon-generate",
                          with({"llama"}, {"--prompt", "Ship 4", "--tokens", "60", "--seed", "3"}));
  EXPECT_EQ(outcome.out, expected);
  EXPECT_NE(outcome.err.find("model: llama/weights.h5, step 20\n"), std::string::npos)
      << outcome.err;

  must("ostrakon-train",
       {"llama.yaml", "--set", "output.directory=run", "--set", "checkpoint.every=5"});
  fs::remove(path("run/weights.h5"));
  const auto expect_taken = [&](const std::string& checkpoint, const std::string& damaged) {
    outcome = start("ostrakon-generate", {"run/", "--tokens", "20", "--prompt", "Ship"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("model: run/checkpoints/" + checkpoint + ", step "),
              std::string::npos)
        << outcome.err;
    EXPECT_NE(outcome.err.find(damaged), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, must("ostrakon-generate", {"run/checkpoints/" + checkpoint, "--tokens",
                                                      "20", "--prompt", "Ship"}));
  };
  expect_taken("step-00000020", "");
  const std::string numbers = path("run/checkpoints/step-00000020/rank-00000.h5");
  std::string bytes = read_bytes(numbers);
  for (std::size_t at = 0; at < bytes.size(); at += 512)
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
  write_bytes(numbers, bytes);
  expect_taken("step-00000015", "damaged: ");
  for (const char* step : {"step-00000015", "step-00000010"})
    if (fs::exists(path("run/checkpoints/") + step))
      write_bytes(path("run/checkpoints/") + step + "/manifest.json", "{");
  write_bytes(numbers, "");
  expect_refused({"run"}, "");
  fs::remove_all(path("run/checkpoints"));
  expect_refused({"run"},
                 "'run' is the folder of a run that has neither weights.h5 nor a "
                 "checkpoint that can be used");
  expect_refused({"llama", "--deck", "llama.yaml"}, "'llama' is a run's folder");
}

/// A file for a program to read as its standard input.
class InputFile {
 public:
  explicit InputFile(const std::string& path) : descriptor_(open(path.c_str(), O_RDONLY)) {}
  ~InputFile() { close(descriptor_); }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

TEST_F(Generate, PromptsComeFromFilesAndStandardInput) {
  const std::string expected = text_of({"llama/weights.h5"});
  const std::string with_newline =
      must("ostrakon-generate", with(some_text, {"--prompt", "Ship 4\n"}));
  const std::string without = must("ostrakon-generate", with(some_text, {"--prompt", ""}));
  EXPECT_NE(with_newline.substr(7), expected.substr(6));
  const auto from_file = [&](const std::string& prompt, const Texts& options) {
    write_bytes(path("prompt"), prompt);
    const InputFile input(path("prompt"));
    const Outcome outcome = start_alone(with(some_text, options), input.get());
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome;
  };
  for (const Texts& options : {Texts{"--prompt-file", "prompt"}, Texts{"--prompt-file=-"}}) {
    EXPECT_EQ(from_file("Ship 4", options).out, expected);
    EXPECT_EQ(from_file("Ship 4\n", options).out, expected);
    EXPECT_EQ(from_file("Ship 4\r\n", options).out, expected);
    EXPECT_EQ(from_file("Ship 4\n\n", options).out, with_newline);
    EXPECT_EQ(from_file("", options).out, without);
  }
  // A loop of a script reads its list from there.
  EXPECT_EQ(from_file("Ship 4", {}).out, without) << "nobody asked for it";
  EXPECT_EQ(from_file("Ship 4", {"--prompt", ""}).out, without) << "what is given counts";
  EXPECT_EQ(start_alone(with(some_text, {"--prompt-file", "-"}), -1, "echo 'Ship 4' | \"$@\"").out,
            expected);
  EXPECT_EQ(must("ostrakon-generate", some_text), without) << "under mpiexec";

  expect_refused(with(some_text, {"--prompt", "a", "--prompt-file", "prompt"}), "are both given");
  expect_refused(with(some_text, {"--prompt-file", "none"}), "can't read --prompt-file 'none'");
  expect_refused(with(some_text, {"--prompt-file", "llama"}), "can't read --prompt-file 'llama'");
}

TEST_F(Generate, APromptLongerThanTheContextIsToldOf) {
  const Outcome outcome =
      start("ostrakon-generate", with(some_text, {"--prompt", std::string(50, 'a')}));
  EXPECT_NE(outcome.err.find("the prompt has 51 tokens, the model looks back on 24: the first 39 "
                             "are not seen"),
            std::string::npos)
      << outcome.err;
}

/// A terminal, and what sits before it.
class Terminal {
 public:
  Terminal() : keyboard_(posix_openpt(O_RDWR | O_NOCTTY)) {
    if (keyboard_ < 0 || grantpt(keyboard_) != 0 || unlockpt(keyboard_) != 0) return;
    screen_ = open(ptsname(keyboard_), O_RDWR | O_NOCTTY);
  }
  ~Terminal() {
    close(screen_);
    close(keyboard_);
  }
  int get() const { return screen_; }
  void type(const std::string& text) const {
    ASSERT_EQ(write(keyboard_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

 private:
  int keyboard_, screen_ = -1;
};

TEST_F(Generate, NobodyWaitsInSilence) {
  const Terminal terminal;
  if (terminal.get() < 0) GTEST_SKIP() << "no terminals here";
  const Outcome none = start_alone(some_text, terminal.get());
  EXPECT_FALSE(none.timed_out) << "waits for somebody to type";
  EXPECT_EQ(none.out, must("ostrakon-generate", with(some_text, {"--prompt", ""})));

  terminal.type("Ship 4\n\x04");
  const Outcome typed = start_alone(with(some_text, {"--prompt-file", "-"}), terminal.get());
  EXPECT_EQ(typed.out, text_of({"llama/weights.h5"}));
  EXPECT_NE(typed.err.find("reading the prompt from the terminal: end it with Control-D"),
            std::string::npos)
      << typed.err;

  // A pipe without data, until the program has said that it waits.
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  std::thread writer([&] {
    for (int i = 0; i < 500; ++i) {
      if (read_bytes(path("said")).find("waiting for the prompt") != std::string::npos) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT_EQ(write(ends[1], "Ship 4\n", 7), 7);
    close(ends[1]);
  });
  const Outcome piped =
      start_alone(with(some_text, {"--prompt-file", "-"}), ends[0], "exec \"$@\" 2>said");
  writer.join();
  close(ends[0]);
  EXPECT_EQ(piped.out, text_of({"llama/weights.h5"}));
  EXPECT_NE(read_bytes(path("said")).find("waiting for the prompt on standard input"),
            std::string::npos);
}

TEST_F(Generate, TopPChoosesAmongTheNucleus) {
  const auto text = [&](const Texts& options) {
    return must("ostrakon-generate", with(with(some_text, {"--prompt", "Ship 4"}), options));
  };
  EXPECT_EQ(text({"--top-p", "1e-9"}), text({"--temperature", "0"}));
  EXPECT_EQ(text({"--top-p", "1"}), text({}));
  EXPECT_EQ(text({"--top-p=0.3"}), text({"--top-p=0.3"}));
  EXPECT_NE(text({"--top-p=0.3"}), text({}));
  EXPECT_EQ(text({"--top-p=0.999999", "--top-k", "1"}), text({"--temperature", "0"}));
  for (const char* bad : {"0", "-0.5", "1.01", "nan", "inf", "half", ""})
    expect_refused(with(some_text, {"--top-p", bad}),
                   std::string("--top-p ") + bad + ": expected a number");
}

/// Numbers with blanks between them.
std::vector<int> numbers(const std::string& text) {
  std::istringstream stream(text);
  std::vector<int> result;
  for (int number = 0; stream >> number;) result.push_back(number);
  return result;
}

TEST_F(Generate, ModelsOfOtherTokensReadAndWriteIds) {
  must("ostrakon-checkpoint",
       {"import", "llama-hf", "other.h5", "--deck", "llama.yaml", "--tokenizer", "other"});
  const auto ids = [&](const Texts& options) {
    const std::string out = must(
        "ostrakon-generate", with({"other.h5", "--ids", "--tokens", "60", "--seed", "3"}, options));
    EXPECT_EQ(out.find_first_not_of("0123456789 \n"), std::string::npos) << out;
    return out;
  };
  // The model of bytes under another name: its ids are the bytes of its text.
  const std::string expected = text_of({"llama/weights.h5"});
  const std::string prompt = "256,83,104,105,112,32,52";  // "Ship 4" in a new document
  std::string decoded;
  for (const int id : numbers(ids({"--prompt", prompt, "--end-of-text", "256"})))
    if (id != 256) decoded += static_cast<char>(id);
  EXPECT_EQ(decoded + "\n", expected);
  EXPECT_EQ(ids({"--prompt", prompt, "--end-of-text", "256"}),
            must("ostrakon-generate",
                 {"llama", "--ids", "--tokens", "60", "--seed", "3", "--prompt", prompt}))
      << "where tokens are bytes their end is known";

  write_bytes(path("prompt-ids"), "256 83\t104,105,\n112 32 52\n");
  EXPECT_EQ(ids({"--prompt-file", "prompt-ids"}), ids({"--prompt", prompt}));
  EXPECT_EQ(numbers(ids({"--prompt", prompt})).size(), 67U) << "no end is known";
  EXPECT_EQ(numbers(ids({"--end-of-text", "256"})).front(), 256) << "a new document";
  const std::string three = ids({"--prompt", "7 8", "--samples", "3"});
  EXPECT_EQ(std::count(three.begin(), three.end(), '\n'), 3) << "a line each";

  // An end that comes.
  const std::vector<int> all = numbers(ids({"--prompt", prompt}));
  ASSERT_GT(all.size(), 20U);
  const std::string end = std::to_string(all[20]);
  const std::vector<int> some = numbers(ids({"--prompt", prompt, "--end-of-text", end}));
  EXPECT_LE(some.size(), 20U);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
  EXPECT_EQ(numbers(ids({"--prompt", prompt, "--end-of-text", end, "--ignore-end"})), all);

  expect_refused({"other.h5"},
                 "which this program can't turn into text; it knows byte. With --ids");
  expect_refused({"other.h5", "--ids"}, "--ids without a prompt; expected --prompt ID,ID,...");
  expect_refused({"other.h5", "--ids", "--prompt", "1,257"},
                 "the prompt's token 1 is '257'; expected an id from 0 to 256");
  expect_refused({"other.h5", "--ids", "--prompt", "Ship"}, "the prompt's token 0 is 'Ship'");
  expect_refused({"other.h5", "--ids", "--prompt", "1", "--end-of-text", "257"},
                 "--end-of-text 257: expected an id from 0 to 256");
  expect_refused({"other.h5", "--prompt", "1", "--end-of-text", "7"}, "is for --ids");
}

TEST_F(Generate, OneThreadMultipliesUnlessMoreAreAskedFor) {
  if (std::string(math::gemm_library()) != "oneDNN") GTEST_SKIP() << "makes threads of its own";
#if defined(KOKKOS_ENABLE_OPENMP) || defined(KOKKOS_ENABLE_THREADS)
  GTEST_SKIP() << "Kokkos has threads, and the library as many";
#endif
  const auto threads_made = [&](const Texts& options) {
    fs::remove(path("threads"));
    Command command;
    command.arguments = {OSTRAKON_APPS_DIR "/ostrakon-generate", "llama", "--tokens", "20"};
    command.arguments.insert(command.arguments.end(), options.begin(), options.end());
    command.folder = path("");
    command.environment = {{"LD_PRELOAD", OSTRAKON_THREAD_COUNTER},
                           {"OSTRAKON_THREAD_COUNT", path("threads")},
                           {"OMP_NUM_THREADS", "2"}};
    EXPECT_EQ(run_command(command).status, 0);
    std::istringstream lines(read_bytes(path("threads")));
    int threads = -1;
    for (std::string name, number; lines >> name >> number;)
      if (name == "ostrakon-generate") threads = std::stoi(number);
    return threads;
  };
  EXPECT_EQ(threads_made({}), 0);
  EXPECT_EQ(threads_made({"--library-threads", "2"}), 1);
  for (const char* bad : {"0", "many", "5000"})
    expect_refused({"llama", "--library-threads", bad}, std::string("--library-threads ") + bad);
}

/// Attention over a window is attention to all tokens as long as there are no more: without
/// --context, ostrakon-generate and import look back that far.
TEST_F(Generate, AWindowIsTheContext) {
  fs::copy(path("llama-hf"), path("mistral-hf"));
  const std::string config = read_bytes(path("llama-hf/config.json"));
  write_bytes(path("mistral-hf/config.json"),
              replaced(replaced(config, "\"model_type\": \"llama\"",
                                "\"model_type\": \"mistral\", \"sliding_window\": 8"),
                       "LlamaForCausalLM", "MistralForCausalLM"));
  const std::string windowed = text_of({"mistral-hf"});
  EXPECT_EQ(windowed, text_of({"mistral-hf", "--context", "8"}));
  EXPECT_EQ(windowed, text_of({"llama-hf", "--context", "8"}));
  EXPECT_NE(windowed, text_of({"llama-hf"}));
  must("ostrakon-checkpoint", {"import", "mistral-hf", "mistral.h5", "--tokenizer", "byte"});
  EXPECT_EQ(windowed, text_of({"mistral.h5"}));
  expect_refused({"mistral-hf", "--context", "9"},
                 "sliding_window is 8, but the context (--context) is 9");
}

TEST_F(Generate, BadInputIsRefused) {
  expect_refused({"none"}, "'none' does not exist");
  expect_refused({"text.txt"}, "safetensors file 'text.txt'");
  expect_refused({"llama.safetensors"}, "expected --deck DECK, or './config.json'");
  expect_refused({"llama.safetensors", "--deck", "gpt2.yaml"}, "is no GPT-2");
  expect_refused({"llama.safetensors", "--deck", "none.yaml"}, "none.yaml");
  expect_refused({"llama/weights.h5", "--deck", "llama.yaml"}, "has its deck in it");
  expect_refused({"llama/checkpoints"}, "is a folder of checkpoints");
  fs::create_directory(path("empty"));
  expect_refused({"empty"}, "has neither model.safetensors.index.json nor model.safetensors");

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
  for (const char* key : {"num_hidden_layers", "num_key_value_heads"}) {
    expect_config_refused(with(key, "2", "9223372036854775807"), "expected a whole number");
    expect_config_refused(with(key, "2", "9007199254740991"), "config.json: model.");
  }
  expect_config_refused(with("max_position_embeddings", "24", "9007199254740991"),
                        "config.json: training.");
  expect_config_refused(with("max_position_embeddings", "24", "2000000000"), "of memory");
  expect_config_refused(with("num_key_value_heads", "2", "3"), "model.kv_heads");
  expect_config_refused(with("num_key_value_heads", "2", "1"), "has the shape");
  expect_config_refused(with("vocab_size", "257", "258"), "has the shape");
}

TEST_F(Generate, TextThatIsLostIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no full device here";
  const Outcome outcome = start_alone(some_text, -1, "\"$@\" >/dev/full");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("can't write to the standard output"), std::string::npos)
      << outcome.err;
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
