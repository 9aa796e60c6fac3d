// SPDX-License-Identifier: Apache-2.0

// The holder of a lock by its file, and whether that process still exists.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <ostrakon/base/files/folder_lock.hpp>
#include <string>

#include "folder_lock_fixture.hpp"
#include "support/messages.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

TEST_F(Lock, TextsOfHoldersComeBack) {
  LockHolder holder = on_another_host();
  holder.job = "Slurm job 42";
  holder.renewed = 17;
  const auto back = read_holder(write_holder(holder));
  ASSERT_TRUE(back);
  EXPECT_EQ(write_holder(*back), write_holder(holder));
  EXPECT_EQ(describe(*back),
            "process 123 on host node07 since 2026-11-22T13:55:08Z (Slurm job 42)");
  const std::string text = write_holder(holder);
  for (std::size_t cut = 0; cut + 20 < text.size(); ++cut)
    EXPECT_EQ(read_holder(text.substr(0, cut)).value_or(LockHolder()).process, 0)
        << text.substr(0, cut);
  EXPECT_FALSE(read_holder(std::string(4096, '\0')));
}

TEST_F(Lock, ANumberThatAnotherProcessHasNowIsNotTheHolder) {
  LockHolder earlier = this_holder(interval);
  earlier.process = getppid();
  earlier.started = process_start(getppid()) + 1;
  leave(earlier);
  FolderLockOptions all = options();
  all.try_lock = lock_nothing;
  EXPECT_NO_THROW(hold(all));
  earlier.started -= 1;
  leave(earlier);
  EXPECT_HAS(refusal(all), "in use by process " + std::to_string(getppid()));
}

TEST_F(Lock, AHostOfTheSameNameIsNotTakenForOursStartedAgain) {
  LockHolder before = this_holder(interval);
  before.boot = "another one";
  for (const bool kernel_lock : {false, true})
    EXPECT_EQ(presence_of(before, this_holder(interval), kernel_lock), Presence::unknown);
  leave(before);
  const auto began = Clock::now();
  EXPECT_NO_THROW(hold());
  EXPECT_GE(Clock::now() - began, 3 * interval);
  EXPECT_HAS(told_, "waits 0.3 s");
  // While the holder renews the file, it keeps the lock.
  FolderLockOptions theirs = options();
  theirs.try_lock = lock_apart;
  theirs.holder = before;
  theirs.holder->interval = milliseconds(500);
  const auto holder = hold(theirs);
  FolderLockOptions ours = options();
  ours.try_lock = lock_apart;
  EXPECT_HAS(refusal(ours), "is in use by process ");
}

TEST_F(Lock, AHolderOnAnotherHostIsGoneWhereItsCounterStandsStill) {
  for (const auto& try_lock : {lock_apart, lock_nothing}) {
    leave(on_another_host());
    told_.clear();
    FolderLockOptions all = options();
    all.try_lock = try_lock;
    const auto began = Clock::now();
    EXPECT_NO_THROW(hold(all));
    EXPECT_GE(Clock::now() - began, 3 * interval);
    EXPECT_HAS(told_, "names process 123 on host node07 since 2026-11-22T13:55:08Z: waits 0.3 s");
  }
}

TEST_F(Lock, AHolderOnAnotherHostIsThereWhileItsCounterGrows) {
  for (const auto& try_lock : {lock_apart, lock_nothing}) {
    FolderLockOptions theirs = options();
    theirs.holder = on_another_host();
    theirs.holder->interval = milliseconds(500);  // long enough for a busy machine
    theirs.try_lock = try_lock;
    const auto holder = hold(theirs);
    FolderLockOptions ours = options();
    ours.try_lock = try_lock;
    const std::string error = refusal(ours);
    EXPECT_HAS(error, "is in use by process 123 on host node07");
    EXPECT_NO_THROW(holder->require_held());
  }
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(Lock, AnotherStartOfTheSameJobMayBeThere) {
  LockHolder earlier = on_another_host(), us = this_holder(interval);
  earlier.job = us.job = "Slurm job 42";
  EXPECT_EQ(presence_of(earlier, us, true), Presence::unknown);
}

TEST_F(Lock, ANumberInAnotherContainerSaysNothing) {
  LockHolder us = this_holder(interval), them = us;
  them.process_namespace = "pid:[1]";
  EXPECT_EQ(presence_of(them, us, false), Presence::unknown);
  EXPECT_EQ(presence_of(them, us, true), Presence::gone);
}

TEST_F(Lock, AProcessThatTheSystemHidesMayBeThere) {
  EXPECT_EQ(presence_of(17, -1, false), Presence::unknown);
  EXPECT_EQ(presence_of(-1, 17, false), Presence::unknown);
  EXPECT_EQ(presence_of(17, -1, true), Presence::gone);
  EXPECT_EQ(presence_of(17, 18, false), Presence::gone);
  EXPECT_EQ(presence_of(17, 17, false), Presence::present);
  LockHolder us = this_holder(interval), them = us;
  them.started = -1;
  EXPECT_EQ(presence_of(them, us, false), Presence::unknown);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  them.process = child;
  EXPECT_EQ(presence_of(them, us, false), Presence::gone);
}

TEST_F(Lock, AHolderThatWasKilledWhileItWroteIsGone) {
  LockHolder killed = this_holder(milliseconds(60'000));
  const std::string text = write_holder(killed);
  for (const char* last : {"\nprocesses: ", "\nprocess: ", "\nrenewed: "}) {
    write_bytes(file(), text.substr(0, text.find(last)));
    EXPECT_NO_THROW(hold());
  }
  EXPECT_LACKS(told_, "waits");
  killed = on_another_host();
  killed.process = 0;
  EXPECT_EQ(presence_of(killed, this_holder(interval), true), Presence::unknown);
}

}  // namespace
}  // namespace ostrakon::testing
