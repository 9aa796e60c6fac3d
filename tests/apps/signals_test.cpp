// SPDX-License-Identifier: Apache-2.0

// Signals at any moment of a run, from its first line to its last; and the one that the system
// sends where a file grows too large.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <support/scratch_folder.hpp>
#include <thread>
#include <vector>

#include "command.hpp"
#include "fixtures.hpp"
#include "support/trials.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

constexpr std::int64_t steps = 30;

Command train(const ScratchFolder& folder, int ranks, const Texts& options = {"--resume", "auto"}) {
  write_bytes(folder.file("deck.yaml"), digest_deck(steps));
  Texts arguments = {"deck.yaml"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return program("ostrakon-train", ranks, arguments, folder.file(""));
}

/// The digest of the last step.
std::string digest(const ScratchFolder& folder) {
  const auto rows = rows_of_steps(folder.file("run/metrics.jsonl"));
  const auto last = rows.find(steps);
  return last == rows.end() ? "of another step" : last->second.at("state_digest").dump();
}

std::string digest_without_signals() {
  static const std::string expected = [] {
    const ScratchFolder folder;
    EXPECT_EQ(run_command(train(folder, 1)).status, 0);
    return digest(folder);
  }();
  return expected;
}

/// A run that was signalled is done, or resumes to the same bits.
void expect_good_end(const ScratchFolder& folder, int ranks, const Outcome& outcome,
                     const std::string& which) {
  ASSERT_TRUE(outcome.status == 0 || outcome.status == 75)
      << which << ": " << outcome.status << "\n"
      << outcome.out << outcome.err;
  if (outcome.status == 75) {
    EXPECT_HAS(outcome.out, "as requested by a signal") << which << outcome.out;
    const Outcome rest = run_command(train(folder, ranks));
    EXPECT_EQ(rest.status, 0) << which << rest.err;
  }
  EXPECT_EQ(digest(folder), digest_without_signals()) << which;
}

/// At `moment` of every rank.
Outcome raise_at(const ScratchFolder& folder, int ranks, int signal, const std::string& moment) {
  Command command = train(folder, ranks);
  command.environment.insert(command.environment.end(),
                             {{"LD_PRELOAD", OSTRAKON_SIGNALLING_MPI},
                              {"OSTRAKON_SIGNAL", std::to_string(signal)},
                              {"OSTRAKON_SIGNAL_AT", moment}});
  return run_command(command);
}

TEST(Signals, BeforeTheFirstStepEndTheRunAtOnceWithNothingToSave) {
  for (const int ranks : {1, 2})
    for (const int signal : {SIGTERM, SIGUSR2})
      for (const char* moment : {"before MPI_Init", "after MPI_Init"}) {
        if (ranks == 2 && signal != SIGTERM && !tests::takes_every_case()) continue;
        const ScratchFolder folder;
        const Outcome outcome = raise_at(folder, ranks, signal, moment);
        EXPECT_EQ(outcome.status, 75) << moment << outcome.out << outcome.err;
        EXPECT_HAS(outcome.out, "stopped before the first step, as requested by a signal");
        EXPECT_FALSE(fs::exists(folder.file("run"))) << moment;
        expect_good_end(folder, ranks, outcome, moment);
      }
}

TEST(Signals, ThatAskForACheckpointBeforeTheFirstStepGetOneAfterIt) {
  const ScratchFolder folder;
  const Outcome outcome = raise_at(folder, 1, SIGUSR1, "before MPI_Init");
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_TRUE(fs::exists(folder.file("run/checkpoints/step-00000001"))) << outcome.out;
}

TEST(Signals, AfterTheLastStepChangeNothing) {
  for (const int ranks : {1, 2})
    for (const int signal : {SIGTERM, SIGUSR2, SIGUSR1})
      for (const char* moment : {"before MPI_Finalize", "after MPI_Finalize", "exit"}) {
        const bool is_sampled = signal == SIGTERM || (ranks == 1 && moment == std::string("exit"));
        if (!is_sampled && !tests::takes_every_case()) continue;
        const ScratchFolder folder;
        const Outcome outcome = raise_at(folder, ranks, signal, moment);
        EXPECT_EQ(outcome.status, 0) << moment << outcome.out << outcome.err;
        EXPECT_TRUE(fs::exists(folder.file("run/weights.h5"))) << moment;
        EXPECT_EQ(digest(folder), digest_without_signals()) << moment;
      }
}

/// Whether a process notes a signal: it has come to its main().
bool notes(pid_t process, int signal) {
  std::ifstream status(text("/proc/", process, "/status"));
  for (std::string line; std::getline(status, line);)
    if (line.rfind("SigBlk:", 0) == 0)
      return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1U) != 0;
  return false;
}

/// Starts a run and sends one of its ranks a signal, so long after all of them have begun. Whether
/// there was still one to send it to.
bool signal_after(std::chrono::milliseconds delay, int signal, const ScratchFolder& folder,
                  int ranks, Outcome& outcome) {
  std::future<Outcome> run =
      std::async(std::launch::async, [&] { return run_command(train(folder, ranks)); });
  const auto is_over = [&] {
    return run.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready;
  };
  std::vector<pid_t> found;
  const auto have_begun = [&] {
    found = processes_in("ostrakon-train", folder.file(""));
    return static_cast<int>(found.size()) == ranks &&
           std::all_of(found.begin(), found.end(), [&](pid_t one) { return notes(one, signal); });
  };
  while (!is_over() && !have_begun()) {
  }
  if (!found.empty() && delay.count() > 0) std::this_thread::sleep_for(delay);
  const bool sent = !found.empty() && kill(found.back(), signal) == 0;
  outcome = run.get();
  return sent;
}

TEST(Signals, AtAnyMomentTheRunEndsWellOrCanBeResumed) {
  const int moments = 30 / tests::every_nth(3);
  constexpr int kinds[] = {SIGUSR2, SIGTERM, SIGUSR1};
  digest_without_signals();
  std::atomic<int> stopped{0}, sent{0};
  in_parallel(2 * moments, [&](int i) {
    const int ranks = 1 + i % 2, moment = i / 2;
    const ScratchFolder folder;
    Outcome outcome;
    const std::chrono::milliseconds delay(20 * tests::every_nth(3) * moment);
    if (signal_after(delay, kinds[moment % 3], folder, ranks, outcome)) ++sent;
    if (outcome.status == 75) ++stopped;
    expect_good_end(folder, ranks, outcome,
                    text("signal ", kinds[moment % 3], " after ", delay.count(), " ms, ", ranks,
                         ranks == 1 ? " rank" : " ranks"));
  });
  EXPECT_GT(sent, 5);
  EXPECT_GT(stopped, 1);
}

/// Runs a command that may write no files of more bytes.
Outcome run_below(rlim_t bytes, const Command& command) {
  rlimit former{};
  getrlimit(RLIMIT_FSIZE, &former);
  const rlimit lower{bytes, former.rlim_max};
  setrlimit(RLIMIT_FSIZE, &lower);
  const Outcome outcome = run_command(command);
  setrlimit(RLIMIT_FSIZE, &former);
  return outcome;
}

TEST(Signals, AFileThatGrowsTooLargeIsAnErrorMessage) {
  const ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 50000; ++i) text += static_cast<char>('a' + i * i % 26 * i % 26);
  write_bytes(folder.file("text.txt"), text);
  Command build;
  build.arguments = {OSTRAKON_APPS_DIR "/ostrakon-data", "build", "--output", "data", "text.txt"};
  build.folder = folder.file("");
  const Outcome built = run_below(5000, build);
  EXPECT_EQ(built.status, 1) << built.err;
  EXPECT_HAS(built.err, "ostrakon-data: error: can't write 'data.partial/ids': File too large");
  EXPECT_FALSE(std::filesystem::exists(folder.file("data.partial")));
  const char* const wide[] = {"model.width=1024", "model.ffn_width=8192", "training.steps=1",
                              "training.sequence_length=16", "checkpoint.every=1"};
  Texts options;
  for (const char* setting : wide) options.insert(options.end(), {"--set", setting});
  // Enough for MPI's files, too little for the weights.
  const Outcome outcome = run_below(32 << 20, train(folder, 1, options));
  EXPECT_EQ(outcome.status, 1) << outcome.out << outcome.err;
  EXPECT_HAS(outcome.err, "ostrakon-train: error: ");
  EXPECT_HAS(outcome.err, "File too large");
}

}  // namespace
}  // namespace ostrakon::testing
