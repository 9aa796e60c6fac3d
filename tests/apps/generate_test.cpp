// SPDX-License-Identifier: Apache-2.0

// ostrakon-generate as a user starts it, on whatever holds a model's weights.

#include <gtest/gtest.h>

#include <filesystem>
#include <ostrakon/math/products/gemm.hpp>
#include <sstream>
#include <string>

#include "command.hpp"
#include "generate_fixture.hpp"
#include "support/messages.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;

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
  expect_refused({"gpt2-hf", "--context", "25"}, "learned positions, 24; expected as many at most");
  expect_refused({"llama-hf", "--context", "0"}, "--context 0");
  expect_refused({"llama-hf", "--context", "9000000000000000000"}, "--context 9000000000000000000");
}

/// A prompt is computed in runs of 256 tokens, what follows it token by token.
TEST_F(Generate, LongPromptsAreGoneOnWithAsWhatWasGenerated) {
  const auto ids = [&](const std::string& prompt, const std::string& count) {
    return must("ostrakon-generate",
                {"llama-hf", "--ids", "--prompt", prompt, "--tokens", count, "--temperature", "0",
                 "--context", "640", "--ignore-end", "--tokenizer", "byte"});
  };
  const std::string all = ids("83 104 105 112", "596");
  const auto first = [&](int count) {
    std::size_t end = 0;
    for (int i = 0; i < count; ++i) end = all.find_first_of(" \n", end + 1);
    return all.substr(0, end);
  };
  for (const int length : {255, 256, 257, 513, 597}) {
    const std::string text = ids(first(length), "3");
    EXPECT_EQ(text.substr(0, text.find('\n')), first(length + 3)) << length;
  }
}

TEST_F(Generate, TokenizersAreAskedFor) {
  must("ostrakon-checkpoint",
       {"import", "llama-hf", "external.h5", "--deck", "llama.yaml", "--tokenizer", "external"});
  expect_refused({"external.h5"},
                 "does not say whose tokens it knows; expected --tokenizer byte, FOLDER");
  EXPECT_EQ(text_of({"external.h5", "--tokenizer", "byte"}), text_of({"llama/weights.h5"}));
  for (const char* model : {"external.h5", "llama/weights.h5"})
    expect_refused({model, "--tokenizer", "bpe"},
                   "--tokenizer bpe: expected byte, or a folder or file that exists; or --ids");
  expect_refused({"llama/weights.h5", "--ids", "--tokenizer", "bpe"}, "--tokenizer says 'bpe'");
}

/// Its vocabulary is that of bytes, but its ids are not.
TEST_F(Generate, IdsOfAModelsTokenizerAreNoBytes) {
  const std::string folder = "of-tokenizer";
  std::filesystem::create_directories(path(folder));
  must("ostrakon-checkpoint", {"export", "llama/weights.h5", folder + "/model.safetensors"});
  // transformers writes no tokenizer, which `export` names.
  const std::string tensors = path(folder + "/model.safetensors");
  write_bytes(tensors, replaced(read_bytes(tensors), "\"tokenizer\"", "\"made_with\""));
  write_bytes(path(folder + "/config.json"), read_bytes(path("llama-hf/config.json")));
  EXPECT_EQ(text_of({folder, "--tokenizer", "byte"}), text_of({"llama/weights.h5"}));
  const auto ids_of = [](const std::string& model) {
    return must("ostrakon-generate",
                {model, "--ids", "--tokenizer", "mine", "--prompt", "83,104", "--tokens", "20"});
  };
  const std::string ids = ids_of(folder);
  write_bytes(path(folder + "/tokenizer.json"), "{}");
  for (const std::string& model : {folder, folder + "/model.safetensors"}) {
    expect_refused({model}, "tokenizer.json");
    expect_refused({model, "--tokenizer", "byte"},
                   "trained on tokens of the tokenizer 'tokenizer.json-");
    expect_refused({model, "--tokenizer", "byte"}, "'; that of byte is 'byte'");
    EXPECT_EQ(ids_of(model), ids);
  }
}

TEST_F(Generate, ARunsFolderIsItsWeightsOrItsNewestGoodCheckpoint) {
  const std::string expected = text_of({"llama/weights.h5"});
  Outcome outcome = start("ostrakon-generate",
                          with({"llama"}, {"--prompt", "Ship 4", "--tokens", "60", "--seed", "3"}));
  EXPECT_EQ(outcome.out, expected);
  EXPECT_HAS(outcome.err, "model: llama/weights.h5, step 20\n");

  must("ostrakon-train",
       {"llama.yaml", "--set", "output.directory=run", "--set", "checkpoint.every=5"});
  fs::remove(path("run/weights.h5"));
  const auto expect_taken = [&](const std::string& checkpoint, const std::string& damaged) {
    outcome = start("ostrakon-generate", {"run/", "--tokens", "20", "--prompt", "Ship"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_HAS(outcome.err, "model: run/checkpoints/" + checkpoint + ", step ");
    EXPECT_HAS(outcome.err, damaged);
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

TEST_F(Generate, TopPChoosesAmongTheNucleus) {
  const auto text = [&](const Texts& options) {
    return must("ostrakon-generate", with(with(some_text, {"--prompt", "Ship 4"}), options));
  };
  EXPECT_EQ(text({"--top-p", "1e-9"}), text({"--temperature", "0"}));
  EXPECT_EQ(text({"--top-p", "1"}), text({}));
  EXPECT_EQ(text({"--top-p=0.3"}), text({"--top-p=0.3"}));
  EXPECT_NE(text({"--top-p=0.3"}), text({}));
  EXPECT_EQ(text({"--top-p=0.999999", "--top-k", "1"}), text({"--temperature", "0"}));
  for (const char* bad : {"0", "-0.5", "1.01", "nan", "inf", "half"})
    expect_refused(with(some_text, {"--top-p", bad}),
                   std::string("--top-p ") + bad + ": expected a number");
  expect_refused(with(some_text, {"--top-p", ""}), "--top-p '': expected a number");
}

/// A prompt is long enough for products on several threads.
TEST_F(Generate, OneThreadMultipliesUnlessMoreAreAskedFor) {
  if (has_device) GTEST_SKIP() << "the library has no threads";
#if defined(KOKKOS_ENABLE_OPENMP) || defined(KOKKOS_ENABLE_THREADS)
  GTEST_SKIP() << "Kokkos has threads, and the library as many";
#endif
  const auto threads_made = [&](const Texts& options) {
    fs::remove(path("threads"));
    Command command;
    command.arguments = {OSTRAKON_APPS_DIR "/ostrakon-generate",
                         "llama",
                         "--tokens",
                         "2",
                         "--context",
                         "200",
                         "--prompt",
                         std::string(190, 'a')};
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

/// Attention over a window is attention to all tokens as long as there are no more.
TEST_F(Generate, AContextInsideOfAWindowIsAttendedToAsAWhole) {
  fs::copy(path("llama-hf"), path("mistral-hf"));
  const std::string config = read_bytes(path("llama-hf/config.json"));
  write_bytes(path("mistral-hf/config.json"),
              replaced(replaced(config, "\"model_type\": \"llama\"",
                                "\"model_type\": \"mistral\", \"sliding_window\": 8"),
                       "LlamaForCausalLM", "MistralForCausalLM"));
  const std::string inside = text_of({"mistral-hf", "--context", "8"});
  EXPECT_EQ(inside, text_of({"llama-hf", "--context", "8"}));
  must("ostrakon-checkpoint", {"import", "mistral-hf", "mistral.h5", "--tokenizer", "byte"});
  EXPECT_EQ(text_of({"mistral-hf"}), text_of({"mistral.h5"}));
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
                        "it has no low_freq_factor, which llama3 needs");
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
  write_bytes(path("llama-other/config.json"), with("max_position_embeddings", "24", "2000000000"));
  expect_refused({"llama-other", "--tokens", "1900000000"}, "of memory");
  EXPECT_EQ(text_of({"llama-other"}).substr(0, 20), text_of({"llama-hf"}).substr(0, 20))
      << "as much memory as the text takes";
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
