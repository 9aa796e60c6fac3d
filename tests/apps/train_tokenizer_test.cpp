// SPDX-License-Identifier: Apache-2.0

// ostrakon-data train-tokenizer, from sources to the files of a tokenizer.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <support/scratch_folder.hpp>
#include <vector>

#include "command.hpp"

namespace ostrakon::testing {
namespace {

using Texts = std::vector<std::string>;

class TrainTokenizerTest : public ::testing::Test {
 protected:
  TrainTokenizerTest() {
    std::string lines;
    for (int i = 0; i < 400; ++i)
      lines += "{\"n\": {\"text\": \"Line " + std::to_string(i * i) + " of so many lines.\"}}\n";
    write_bytes(folder_.file("lines.jsonl"), lines);
    write_bytes(folder_.file("text.txt"), "to be or not to be\n---\nto do or not to do\n");
  }

  Outcome run(const Texts& arguments) const {
    Command command;
    command.arguments = {OSTRAKON_APPS_DIR "/ostrakon-data", "train-tokenizer"};
    command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
    command.folder = folder_.file("");
    return run_command(command);
  }

  void expect_refused(const Texts& arguments, const std::string& message) const {
    const Outcome outcome = run(arguments);
    EXPECT_NE(outcome.status, 0) << message;
    EXPECT_HAS(outcome.err, message) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(folder_.file("refused"))) << message;
  }

  ScratchFolder folder_;
};

TEST_F(TrainTokenizerTest, IsTheSameWithAnyNumberOfWorkers) {
  std::string first;
  for (const char* const workers : {"1", "2", "5"}) {
    const std::string output = std::string("tokenizer-") + workers;
    const Outcome outcome =
        run({"--vocabulary", "400", "--output", output, "--field", "n.text", "--begin", "<s>",
             "--special", "<|a|>", "--special", "<|b|>", "--workers", workers, "lines.jsonl"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_HAS(outcome.out, "400 documents");
    EXPECT_HAS(outcome.out, "400 tokens, tokenizer.json-");
    const std::string bytes = read_bytes(folder_.file(output + "/tokenizer.json"));
    EXPECT_HAS(bytes, "\"\xC4\xA0lines\"");
    EXPECT_HAS(bytes, "\"content\": \"<|b|>\"");
    EXPECT_HAS(read_bytes(folder_.file(output + "/tokenizer_config.json")),
               "\"eos_token\": \"<|endoftext|>\"");
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << workers;
  }
}

TEST_F(TrainTokenizerTest, SaysWhereTheTextIsTooShort) {
  const Outcome outcome =
      run({"--vocabulary", "5000", "--output", "short", "--separator", "---", "text.txt"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_HAS(outcome.out, "read 2 documents");
  EXPECT_HAS(outcome.err, "not the 5000 of --vocabulary");
  expect_refused({"--vocabulary", "300", "--output", "short", "text.txt"}, "short/tokenizer.json");
}

TEST_F(TrainTokenizerTest, AFolderMayBeThereAndHaveASlash) {
  std::filesystem::create_directory(folder_.file("there"));
  for (const char* const output : {"there/", "new//"}) {
    const Outcome outcome = run({"--vocabulary", "260", "--output", output, "text.txt"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_HAS(outcome.out, "/tokenizer.json: 260 tokens");
    EXPECT_LACKS(outcome.out, "//");
  }
}

TEST_F(TrainTokenizerTest, RefusesWhatCanNotBe) {
  write_bytes(folder_.file("latin.txt"), "caf\xE9\n");
  write_bytes(folder_.file("broken.jsonl"), "{\"text\": \"a\"}\n{\"text\": 3}\n");
  const auto with = [](const Texts& more) {
    Texts all = {"--vocabulary", "300", "--output", "refused"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  expect_refused(with({"--special", "a", "text.txt"}), "is the token of a byte");
  expect_refused(with({"--begin", "<|endoftext|>", "text.txt"}), "is there twice");
  expect_refused(with({"--pattern", "bert", "text.txt"}), "llama3");
  expect_refused(with({"latin.txt"}), "latin.txt', line 1: byte 4");
  expect_refused(with({"--field", "text", "broken.jsonl"}), "broken.jsonl', line 2: field");
  expect_refused({"--vocabulary", "257", "--begin", "<s>", "--output", "refused", "text.txt"},
                 "expected at least 258");
}

}  // namespace
}  // namespace ostrakon::testing
