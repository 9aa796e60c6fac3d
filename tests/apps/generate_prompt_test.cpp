// SPDX-License-Identifier: Apache-2.0

// What goes into ostrakon-generate and what comes out: prompts as text, files and ids; terminals
// and pipes.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "generate_fixture.hpp"
#include "support/messages.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;

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
  EXPECT_EQ(run_command(mpi_job("ostrakon-generate", 1, some_text, path(""))).out, without);

  expect_refused(with(some_text, {"--prompt", "a", "--prompt-file", "prompt"}), "are both given");
  write_bytes(path("pointer"), "version https://git-lfs.github.com/spec/v1\nsize 7\n");
  for (const char* model : {"llama/weights.h5", "llama"}) {
    const Outcome pointer = start("ostrakon-generate", {model, "--prompt-file", "pointer"});
    EXPECT_EQ(pointer.status, 1);
    EXPECT_EQ(pointer.out, "");
    EXPECT_HAS(pointer.err, "error: --prompt-file 'pointer' is a Git LFS pointer");
    EXPECT_LACKS(pointer.err, "damaged");
  }
  expect_refused(with(some_text, {"--prompt-file", "none"}), "can't read --prompt-file 'none'");
  expect_refused(with(some_text, {"--prompt-file", "llama"}), "can't read --prompt-file 'llama'");
}

TEST_F(Generate, APromptLongerThanTheContextIsToldOf) {
  const Outcome outcome =
      start("ostrakon-generate", with(some_text, {"--prompt", std::string(50, 'a')}));
  EXPECT_HAS(outcome.err,
             "the prompt has 51 tokens, the model looks back on 24: the first 39 "
             "are not seen");
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
  EXPECT_HAS(typed.err, "reading the prompt from the terminal: end it with Control-D");

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
  EXPECT_HAS(read_bytes(path("said")), "waiting for the prompt on standard input");
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
                 "tokenizer 'other', which is not beside it; expected --tokenizer with its folder "
                 "or file; or --ids");
  expect_refused({"other.h5", "--ids"}, "--ids without a prompt; expected --prompt ID,ID,...");
  expect_refused({"other.h5", "--ids", "--prompt", "1,257"},
                 "the prompt's token 1 is '257'; expected an id from 0 to 256");
  expect_refused({"other.h5", "--ids", "--prompt", "Ship"}, "the prompt's token 0 is 'Ship'");
  expect_refused({"other.h5", "--ids", "--prompt", "1", "--end-of-text", "257"},
                 "--end-of-text 257: expected an id from 0 to 256");
  expect_refused({"other.h5", "--prompt", "1", "--end-of-text", "7"},
                 "--end-of-text goes with --ids only");
}

TEST_F(Generate, TextThatIsLostIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no full device here";
  const Outcome outcome = start_alone(some_text, -1, "\"$@\" >/dev/full");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_HAS(outcome.err, "can't write to the standard output");
}

}  // namespace
}  // namespace ostrakon::testing
