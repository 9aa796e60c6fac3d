// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <ostrakon/saving/background.hpp>
#include <ostrakon/saving/signals.hpp>
#include <thread>

#include "support/scratch_folder.hpp"

namespace ostrakon::train {
namespace {

namespace fs = std::filesystem;
using testing::ScratchFolder;
using testing::write_bytes;
using Clock = std::chrono::steady_clock;

/// Before main().
const Clock::time_point start_of_test = Clock::now();

double since_start_of_test() {
  return std::chrono::duration<double>(Clock::now() - start_of_test).count();
}

void expect(SignalRequests& requested, bool save, bool stop) {
  const SignalRequests::Found requests = requested.take();
  EXPECT_EQ(requests.save, save);
  EXPECT_EQ(requests.stop, stop);
}

TEST(SignalRequests, NoteEachSignalOnce) {
  note_signals();
  SignalRequests requested("");
  expect(requested, false, false);
  for (const int signal : {SIGTERM, SIGUSR2}) {
    std::raise(signal);
    expect(requested, false, true);
    expect(requested, false, false);
  }
  std::raise(SIGUSR1);
  expect(requested, true, false);
  expect(requested, false, false);
  std::raise(SIGUSR1);
  std::raise(SIGTERM);
  std::raise(SIGUSR1);
  expect(requested, true, true);
  expect(requested, false, false);
}

/// The signal comes as a batch system sends it: to the process, in which a thread writes.
TEST(SignalRequests, NoteSignalsOfTheProcessWhileAThreadWorks) {
  note_signals();
  SignalRequests requested("");
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  Background background;  // ends before what its job waits for
  background.start([ended] { ended.wait(); });
  kill(getpid(), SIGUSR2);
  SignalRequests::Found requests;
  for (int i = 0; i < 60000 && !requests.stop; ++i) {
    requests = requested.take();
    if (!requests.stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(requests.stop);
  end.set_value();
}

/// Products of oneDNN 2 don't tolerate a handler on their stack.
TEST(SignalRequests, SignalsWaitUntilTheyAreLookedFor) {
  note_signals();
  SignalRequests requested("");
  std::raise(SIGUSR1);
  sigset_t waiting;
  sigpending(&waiting);
  EXPECT_EQ(sigismember(&waiting, SIGUSR1), 1);
  expect(requested, true, false);
}

TEST(SignalRequests, HearWhatWasAskedBeforeThem) {
  note_signals();
  EXPECT_FALSE(SignalRequests::wants_stop());
  std::raise(SIGTERM);
  std::raise(SIGUSR1);
  EXPECT_TRUE(SignalRequests::wants_stop());
  SignalRequests requested("");
  EXPECT_TRUE(SignalRequests::wants_stop());  // to look is not to take
  expect(requested, true, true);
  EXPECT_FALSE(SignalRequests::wants_stop());
  expect(requested, false, false);
}

TEST(SignalRequests, RemoveTheFileThatAsks) {
  const ScratchFolder folder;
  const std::string file = folder.file("checkpoint_now");
  SignalRequests requested(file);
  expect(requested, false, false);
  for (const char* bytes : {"", "please\n"}) {
    write_bytes(file, bytes);
    expect(requested, true, false);
    EXPECT_FALSE(fs::exists(file));
    expect(requested, false, false);
  }
  // One that was there before it began is asked for too.
  write_bytes(file, "");
  SignalRequests later(file);
  expect(later, true, false);
}

TEST(SignalRequests, AFileThatCannotBeRemovedAsksOnce) {
  note_signals();
  const ScratchFolder folder;
  const std::string file = folder.file("checkpoint_now");
  fs::create_directories(file + "/not-empty");
  SignalRequests requested(file);
  expect(requested, true, false);
  for (int i = 0; i < 3; ++i) expect(requested, false, false);
  EXPECT_TRUE(fs::exists(file));
  // Signals are heard all the same, and so is the next file.
  std::raise(SIGUSR1);
  expect(requested, true, false);
  fs::remove_all(file);
  expect(requested, false, false);
  write_bytes(file, "");
  expect(requested, true, false);
  EXPECT_FALSE(fs::exists(file));
}

TEST(SignalRequests, AFolderThatIsNotThereAsksForNothing) {
  const ScratchFolder folder;
  SignalRequests requested(folder.file("nowhere/checkpoint_now"));
  expect(requested, false, false);
}

TEST(SignalRequests, LeaveSignalsAsTheyAreWhenTheyEnd) {
  note_signals();
  { const SignalRequests requested(""); }
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2}) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    EXPECT_NE(now.sa_handler, SIG_DFL);
    EXPECT_NE(now.sa_handler, SIG_IGN);
    // Reads and writes of a step are not cut short.
    EXPECT_NE(now.sa_flags & SA_RESTART, 0);
  }
}

TEST(SecondsSinceStart, AreThoseOfTheProcess) {
  // It was started before this program's own clock, not long before, whenever it is asked.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double before_test = seconds_since_start() - since_start_of_test();
  EXPECT_GT(before_test, -0.05);  // counted in ticks of 10 ms
  EXPECT_LT(before_test, 20.0);
  const double first = seconds_since_start();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const double later = seconds_since_start();
  EXPECT_GE(later - first, 0.059);
  EXPECT_LT(later - first, 20.0);
}

}  // namespace
}  // namespace ostrakon::train
