// SPDX-License-Identifier: Apache-2.0

// What users give a program by mistake or in haste: pipes for files, names with bytes that
// terminals obey, options that contradict each other.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <support/scratch_folder.hpp>
#include <vector>

#include "command.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

const char* const small_deck = R"(ostrakon:
  model: {layers: 1, width: 16, heads: 2, vocabulary: 61}
  data: {dataset: synthetic}
  training: {steps: 2, global_batch_size: 4, micro_batch_size: 2, sequence_length: 16}
  output: {directory: run}
  runtime: {peak_gflops: 1}
)";

class OddInput : public ::testing::Test {
 protected:
  OddInput() { write_bytes(path("deck.yaml"), small_deck); }
  std::string path(const std::string& name) const { return folder_.file(name); }

  /// On one rank.
  Outcome start(const std::string& name, const Texts& arguments) const {
    Command command = program(name, 1, arguments, path(""));
    command.time_limit = 30.0;
    return run_command(command);
  }
  void expect_refused(const std::string& name, const Texts& arguments,
                      const std::string& words) const {
    const Outcome outcome = start(name, arguments);
    EXPECT_FALSE(outcome.timed_out) << words;
    EXPECT_EQ(outcome.status, 1) << words << outcome.out << outcome.err;
    EXPECT_HAS(outcome.err, words);
  }
  void make_pipe(const std::string& name) const { ASSERT_EQ(mkfifo(path(name).c_str(), 0600), 0); }

  ScratchFolder folder_;
};

TEST_F(OddInput, PathsThatAreNotUtf8AreRefusedByKey) {
  const std::string odd = "b\xff";
  expect_refused("ostrakon-train", {"deck.yaml", "--set", "output.directory=" + odd},
                 "--set output.directory=\"b\\xff\"");
  EXPECT_FALSE(fs::exists(path(odd)));
  fs::create_directories(path(odd));
  Command inside = program("ostrakon-train", 1, {"../deck.yaml"}, path(odd));
  inside.arguments.insert(inside.arguments.end(), {"--set", "output.directory=run"});
  const Outcome outcome = run_command(inside);
  EXPECT_EQ(outcome.status, 1) << outcome.out;
  EXPECT_HAS(outcome.err, "relative to the working directory: byte");
  write_bytes(path("text.txt"), "some text\n");
  expect_refused("ostrakon-data", {"build", "--output", odd, "text.txt"},
                 "argument 3: byte 2 of 'b\\xff' is not UTF-8");
}

TEST_F(OddInput, APipeWhereAFileIsWrittenIsRefused) {
  for (const char* file : {"deck.yaml", "plan.json", "metrics.jsonl"}) {
    fs::remove_all(path("run"));
    fs::create_directory(path("run"));
    make_pipe(std::string("run/") + file);
    expect_refused("ostrakon-train", {"deck.yaml"}, "it is a pipe, not a plain file");
  }
}

TEST_F(OddInput, ADeckMayComeThroughAPipeThatSomebodyWritesTo) {
  make_pipe("pipe");
  const std::string apps = OSTRAKON_APPS_DIR;
  Command command;
  command.folder = path("");
  command.arguments = {"/bin/sh", "-c",
                       "(sleep 1; cat deck.yaml) | " + apps + "/ostrakon-train /dev/stdin"};
  const Outcome outcome = run_command(command);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  expect_refused("ostrakon-train", {"pipe"}, "no process wrote within 10 seconds");
}

TEST_F(OddInput, AnOptionThatIsGivenTwiceHasOneValue) {
  expect_refused("ostrakon-train", {"deck.yaml", "--resume", "auto", "--resume=none"},
                 "--resume is given twice, as \"auto\" and as \"none\"");
  EXPECT_EQ(start("ostrakon-train", {"deck.yaml", "--resume", "auto", "--resume=auto"}).status, 0);
  expect_refused("ostrakon-data", {"build", "--output", "a", "--output", "b", "deck.yaml"},
                 "--output is given twice");
  expect_refused("ostrakon-generate", {"run", "--seed", "1", "--seed", "2"},
                 "--seed is given twice");
}

TEST_F(OddInput, WhatATerminalObeysIsEscaped) {
  const std::string order = "\x1b]0;title\x07";
  expect_refused("ostrakon-train", {order + ".yaml"}, "\\x1b]0;title\\x07.yaml");
  write_bytes(path("text.txt"), "some text\n");
  ASSERT_EQ(start("ostrakon-data", {"build", "--output", order, "text.txt"}).status, 0);
  const Outcome info = start("ostrakon-data", {"info", order + "-train.h5"});
  EXPECT_EQ(info.status, 0) << info.err;
  EXPECT_HAS(info.out, "\\x1b]0;title\\x07");
  EXPECT_LACKS(info.out, "\x1b");
}

TEST_F(OddInput, TextIsEscapedOnTerminalsOnly) {
  write_bytes(path("text.txt"), "one \x1b[31mline\n");
  ASSERT_EQ(start("ostrakon-data", {"build", "--output", "red", "text.txt"}).status, 0);
  const std::string red = "\x1b[31mline";
  EXPECT_HAS(start("ostrakon-data", {"show", "red-train.h5"}).out, red);
  // util-linux' script has a terminal for it.
  if (!fs::exists("/usr/bin/script")) GTEST_SKIP() << "needs script";
  Command command;
  command.folder = path("");
  command.arguments = {"/usr/bin/script", "-qec",
                       OSTRAKON_APPS_DIR "/ostrakon-data show red-train.h5", "/dev/null"};
  const Outcome outcome = run_command(command);
  EXPECT_HAS(outcome.out, "one \\x1b[31mline");
  EXPECT_LACKS(outcome.out, red);
}

TEST_F(OddInput, AMessageOfPagesIsCutInTheMiddle) {
  const Outcome outcome =
      start("ostrakon-train", {std::string(3500, 'x') + "/" + std::string(60000, 'y') + ".yaml"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_LT(outcome.err.size(), 2200U);
  EXPECT_HAS(outcome.err, "bytes left out");
  EXPECT_EQ(outcome.err.rfind("ostrakon-train: error: can't look at 'xxx", 0), 0U) << outcome.err;
  EXPECT_HAS(outcome.err, "File name too long");
}

}  // namespace
}  // namespace ostrakon::testing
