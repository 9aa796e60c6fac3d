// SPDX-License-Identifier: Apache-2.0

// The lock of a folder: acquired, refused to others, released.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <ostrakon/base/files/folder_lock.hpp>
#include <string>
#include <thread>

#include "folder_lock_fixture.hpp"
#include "support/messages.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

TEST_F(Lock, IsWrittenRenewedAndRemoved) {
  {
    const auto lock = hold();
    const LockHolder first = found();
    EXPECT_EQ(first.process, getpid());
    EXPECT_EQ(first.host, host_name());
    EXPECT_EQ(first.started, process_start(getpid()));
    EXPECT_EQ(first.interval, interval);
    EXPECT_TRUE(wait_for([&] { return found().renewed >= 3; }));
    EXPECT_EQ(found().id, first.id);
    EXPECT_FALSE(lock->is_lost());
    EXPECT_NO_THROW(lock->require_held());
  }
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_NO_THROW(hold());
  EXPECT_EQ(told_, "");
}

TEST_F(Lock, ASecondProcessIsRefusedByTheNameOfTheFirst) {
  for (const auto& try_lock : {std::function<int(int)>(), std::function<int(int)>(lock_nothing)}) {
    FolderLockOptions all = options();
    all.try_lock = try_lock;
    const pid_t child = start_holder(all);
    const std::string error = refusal(all);
    EXPECT_HAS(error, "is in use by process " + std::to_string(child) + " on host " + host_name() +
                          " since 20");
    EXPECT_EQ(error.substr(error.size() - 8), "; end it");
    EXPECT_EQ(found().process, child);  // not overwritten
    end(child);
    EXPECT_NO_THROW(hold(all));
  }
}

TEST_F(Lock, AKilledHolderIsReplacedAtOnce) {
  for (const auto& try_lock : {std::function<int(int)>(), std::function<int(int)>(lock_nothing)}) {
    FolderLockOptions all = options();
    all.interval = milliseconds(5000);
    all.try_lock = try_lock;
    const pid_t child = start_holder(all);
    end(child);
    EXPECT_EQ(found().process, child);
    const auto began = Clock::now();
    const auto lock = hold(all);
    EXPECT_LT(Clock::now() - began, milliseconds(4000));
    EXPECT_EQ(found().process, getpid());
    EXPECT_HAS(told_, "was left by process " + std::to_string(child));
  }
}

TEST_F(Lock, AHolderThatIsAboutToEndIsWaitedFor) {
  const pid_t child = start_holder(options());
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(200));
    end(child);
  });
  FolderLockOptions patient = options();
  patient.patience = milliseconds(10'000);
  EXPECT_NO_THROW(hold(patient));
  ends.join();
}

TEST_F(Lock, AFileWithoutAHolderIsFree) {
  write_bytes(file(), "");
  EXPECT_NO_THROW(hold());
  EXPECT_EQ(told_, "");
  // A text of another form may be one that is being written.
  write_bytes(file(), "something else\n");
  EXPECT_NO_THROW(hold());
  EXPECT_HAS(told_, "names another process: waits");
}

TEST_F(Lock, AHolderLooksAtTheFileBeforeAChange) {
  FolderLockOptions slow = options();
  slow.interval = milliseconds(60'000);
  const auto holder = hold(slow);
  leave(on_another_host());
  EXPECT_FALSE(holder->is_lost());
  EXPECT_HAS(error_of([&] { holder->require_held(); }), "was taken by process 123 on host node07");
  EXPECT_TRUE(holder->is_lost());
}

TEST_F(Lock, AHolderThatLostTheFileLeavesItToTheNewOne) {
  auto holder = hold();
  leave(on_another_host());
  holder.reset();
  EXPECT_EQ(found().host, "node07");
}

TEST_F(Lock, AFileThatSomebodyRemovesIsMadeAgain) {
  const auto lock = hold();
  const std::string id = found().id;
  fs::remove(file());
  EXPECT_TRUE(wait_for([&] { return found().id == id; }));
  EXPECT_NO_THROW(lock->require_held());
  EXPECT_HAS(refusal(options()), "in use by process");
}

TEST_F(Lock, WhatCannotBeWrittenIsSaid) {
  EXPECT_HAS(error_of([&] { FolderLock(folder() + "/missing", options()); }),
             "run.lock can't be made: No such file or directory");
  fs::create_directory(file());
  EXPECT_HAS(refusal(options()), "run.lock can't be opened: Is a directory");
  fs::remove(file());
  FolderLockOptions broken = options();
  broken.try_lock = [](int) { return EIO; };
  EXPECT_HAS(refusal(broken), "can't be locked: Input/output error");
}

}  // namespace
}  // namespace ostrakon::testing
