// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <ostrakon/saving/background.hpp>
#include <ostrakon/saving/triggers.hpp>
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

void expect(Triggers& triggers, bool save, bool stop) {
  const Triggers::Requests requests = triggers.take();
  EXPECT_EQ(requests.save, save);
  EXPECT_EQ(requests.stop, stop);
}

TEST(Triggers, NoteEachSignalOnce) {
  note_signals();
  Triggers triggers("");
  expect(triggers, false, false);
  for (const int signal : {SIGTERM, SIGUSR2}) {
    std::raise(signal);
    expect(triggers, false, true);
    expect(triggers, false, false);
  }
  std::raise(SIGUSR1);
  expect(triggers, true, false);
  expect(triggers, false, false);
  std::raise(SIGUSR1);
  std::raise(SIGTERM);
  std::raise(SIGUSR1);
  expect(triggers, true, true);
  expect(triggers, false, false);
}

/// The signal comes as a batch system sends it: to the process, in which a thread writes.
TEST(Triggers, NoteSignalsOfTheProcessWhileAThreadWorks) {
  note_signals();
  Triggers triggers("");
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  Background background;  // ends before what its job waits for
  background.start([ended] { ended.wait(); });
  kill(getpid(), SIGUSR2);
  Triggers::Requests requests;
  for (int i = 0; i < 60000 && !requests.stop; ++i) {
    requests = triggers.take();
    if (!requests.stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(requests.stop);
  end.set_value();
}

/// Products of oneDNN 2 don't tolerate a handler on their stack.
TEST(Triggers, SignalsWaitUntilTheyAreLookedFor) {
  note_signals();
  Triggers triggers("");
  std::raise(SIGUSR1);
  sigset_t waiting;
  sigpending(&waiting);
  EXPECT_EQ(sigismember(&waiting, SIGUSR1), 1);
  expect(triggers, true, false);
}

TEST(Triggers, HearWhatWasAskedBeforeThem) {
  note_signals();
  EXPECT_FALSE(Triggers::wants_stop());
  std::raise(SIGTERM);
  std::raise(SIGUSR1);
  EXPECT_TRUE(Triggers::wants_stop());
  Triggers triggers("");
  EXPECT_TRUE(Triggers::wants_stop());  // to look is not to take
  expect(triggers, true, true);
  EXPECT_FALSE(Triggers::wants_stop());
  expect(triggers, false, false);
}

TEST(Triggers, RemoveTheFileThatAsks) {
  const ScratchFolder folder;
  const std::string file = folder.file("checkpoint_now");
  Triggers triggers(file);
  expect(triggers, false, false);
  for (const char* bytes : {"", "please\n"}) {
    write_bytes(file, bytes);
    expect(triggers, true, false);
    EXPECT_FALSE(fs::exists(file));
    expect(triggers, false, false);
  }
  // One that was there before it began is asked for too.
  write_bytes(file, "");
  Triggers later(file);
  expect(later, true, false);
}

TEST(Triggers, AFileThatCannotBeRemovedAsksOnce) {
  note_signals();
  const ScratchFolder folder;
  const std::string file = folder.file("checkpoint_now");
  fs::create_directories(file + "/not-empty");
  Triggers triggers(file);
  expect(triggers, true, false);
  for (int i = 0; i < 3; ++i) expect(triggers, false, false);
  EXPECT_TRUE(fs::exists(file));
  // Signals are heard all the same, and so is the next file.
  std::raise(SIGUSR1);
  expect(triggers, true, false);
  fs::remove_all(file);
  expect(triggers, false, false);
  write_bytes(file, "");
  expect(triggers, true, false);
  EXPECT_FALSE(fs::exists(file));
}

TEST(Triggers, AFolderThatIsNotThereAsksForNothing) {
  const ScratchFolder folder;
  Triggers triggers(folder.file("nowhere/checkpoint_now"));
  expect(triggers, false, false);
}

TEST(Triggers, LeaveSignalsAsTheyAreWhenTheyEnd) {
  note_signals();
  { const Triggers triggers(""); }
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
