// SPDX-License-Identifier: Apache-2.0

// A lock whose file can't be read, always or sometimes.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <ostrakon/base/files/folder_lock.hpp>
#include <string>
#include <system_error>
#include <thread>

#include "folder_lock_fixture.hpp"
#include "support/messages.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

/// Reads the file, or fails.
class FailingReads {
 public:
  LockText operator()(const std::string& path) const {
    const int error = *error_;
    return error == 0 ? read_lock_text(path) : LockText{"", error};
  }
  void fail_with(int error) const { *error_ = error; }

 private:
  std::shared_ptr<std::atomic<int>> error_ = std::make_shared<std::atomic<int>>(0);
};

TEST_F(Lock, WhatCannotBeReadIsNotTaken) {
  for (const int error : {EIO, EMFILE, ENFILE, EACCES, ENOMEM})
    for (const auto& try_lock : {lock_apart, lock_nothing})
      for (const bool by_force : {false, true}) {
        leave(on_another_host());
        FolderLockOptions all = options();
        all.try_lock = try_lock;
        all.take_from_holder = by_force;
        const FailingReads reads;
        reads.fail_with(error);
        all.read = reads;
        EXPECT_HAS(refusal(all), std::string("run.lock can't be read: ") +
                                     std::generic_category().message(error));
        EXPECT_EQ(found().host, "node07");  // not overwritten
      }
  // A lock is not taken either from a holder whose kernel lock is seen.
  fs::remove(file());
  const auto holder = hold();
  FolderLockOptions force = options();
  force.take_from_holder = true;
  const FailingReads reads;
  reads.fail_with(EIO);
  force.read = reads;
  EXPECT_HAS(refusal(force), "run.lock can't be read: Input/output error");
  EXPECT_NO_THROW(holder->require_held());
}

TEST_F(Lock, ReadsThatFailDoNotShowThatACounterStandsStill) {
  leave(on_another_host());
  FolderLockOptions all = options();
  all.try_lock = lock_apart;
  const FailingReads reads;
  all.read = [&, calls = 0](const std::string& path) mutable {
    reads.fail_with(++calls > 3 ? EIO : 0);
    return reads(path);
  };
  EXPECT_HAS(refusal(all), "run.lock can't be read: Input/output error");
  EXPECT_EQ(found().host, "node07");
}

TEST_F(Lock, AHolderThatCannotReadTheFileDoesNotWriteIt) {
  for (const auto& try_lock : {lock_apart, lock_nothing}) {
    fs::remove(file());
    FolderLockOptions all = options();
    all.try_lock = try_lock;
    const FailingReads reads;
    all.read = reads;
    const auto holder = hold(all);
    EXPECT_TRUE(wait_for([&] { return found().renewed >= 1; }));
    reads.fail_with(EIO);
    std::this_thread::sleep_for(2 * interval);  // writes that have begun are complete
    leave(on_another_host());
    std::this_thread::sleep_for(3 * interval);
    EXPECT_EQ(found().host, "node07");
    EXPECT_FALSE(holder->is_lost());
    const std::string error = error_of([&] { holder->require_held(); });
    EXPECT_HAS(error, "run.lock can't be read: Input/output error; whether the folder");
    reads.fail_with(0);
    EXPECT_TRUE(wait_for([&] { return holder->is_lost(); }));
  }
}

TEST_F(Lock, OneReadThatFailsDoesNotEndARun) {
  FolderLockOptions all = options();
  all.interval = milliseconds(60'000);
  const FailingReads reads;
  all.read = reads;
  const auto holder = hold(all);
  reads.fail_with(EIO);
  EXPECT_NO_THROW(holder->require_held());
}

TEST_F(Lock, AFileThatIsRemovedMeanwhileIsTriedAgain) {
  for (const int error : {ESTALE, ENOENT}) {
    for (const bool while_read : {false, true}) {
      write_bytes(file(), "");
      FolderLockOptions all = options();
      all.patience = milliseconds(60'000);
      all.try_lock = [&, calls = 0](int descriptor) mutable {
        return ++calls < 3 && !while_read ? error : lock_in_kernel(descriptor);
      };
      all.read = [&, calls = 0](const std::string& path) mutable {
        return ++calls < 3 && while_read ? LockText{"", error} : read_lock_text(path);
      };
      EXPECT_NO_THROW(hold(all));
    }
    FolderLockOptions all = options();
    all.try_lock = [&](int) { return error; };
    EXPECT_HAS(refusal(all), "run.lock can't be locked: ");
    fs::remove(file());
  }
}

}  // namespace
}  // namespace ostrakon::testing
