// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <functional>
#include <memory>
#include <ostrakon/base/files/folder_lock.hpp>
#include <string>
#include <support/scratch_folder.hpp>
#include <thread>

namespace ostrakon::testing {

/// Imitates a network file system that locks on each host apart: locks of other hosts are not seen.
inline int lock_apart(int) { return 0; }
/// Imitates a file system without locks.
inline int lock_nothing(int) { return ENOLCK; }

class Lock : public ::testing::Test {
 protected:
  std::string folder() const { return folder_.file(""); }
  std::string file() const { return folder_.file("run.lock"); }

  FolderLockOptions options() {
    FolderLockOptions options;
    options.interval = interval;
    options.patience = std::chrono::milliseconds(0);
    options.advice = "; end it";
    options.tell = [this](const std::string& words) { told_ += words + "\n"; };
    return options;
  }
  std::unique_ptr<FolderLock> hold(const FolderLockOptions& options) {
    return std::make_unique<FolderLock>(folder(), options);
  }
  std::unique_ptr<FolderLock> hold() { return hold(options()); }
  std::string refusal(const FolderLockOptions& options) {
    return error_of([&] { hold(options); });
  }

  static LockHolder on_another_host() {
    LockHolder holder = this_holder(interval);
    holder.host = "node07";
    holder.boot = "of node07";
    holder.process = 123;
    holder.since = "2026-11-22T13:55:08Z";
    return holder;
  }
  void leave(const LockHolder& holder) { write_bytes(file(), write_holder(holder)); }
  LockHolder found() const { return read_holder(read_bytes(file())).value_or(LockHolder()); }

  static bool wait_for(const std::function<bool()>& holds) {
    for (int i = 0; i < 1000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  /// Starts a process that holds the folder until it is killed.
  pid_t start_holder(const FolderLockOptions& of_child) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        FolderLockOptions mine = of_child;
        mine.tell = nullptr;
        const FolderLock lock(folder(), mine);
        for (;;) pause();
      } catch (const std::exception&) {
        _exit(1);
      }
    }
    EXPECT_TRUE(wait_for([&] { return found().process == child; }));
    return child;
  }
  static void end(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }

  static constexpr std::chrono::milliseconds interval{100};
  std::string told_;

 private:
  ScratchFolder folder_;
};

}  // namespace ostrakon::testing
