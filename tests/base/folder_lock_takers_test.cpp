// SPDX-License-Identifier: Apache-2.0

// Several processes take a lock at the same time, or by force.

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostrakon/base/files/folder_lock.hpp>
#include <string>
#include <thread>
#include <vector>

#include "folder_lock_fixture.hpp"
#include "support/messages.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

TEST_F(Lock, OneOfManyTakersHasIt) {
  // The kernel lock does not separate the takers: only the text does.
  leave(on_another_host());
  const std::string left = read_bytes(file());
  const auto began = Clock::now();
  constexpr int takers = 4;
  std::vector<std::unique_ptr<FolderLock>> locks(takers);
  std::vector<std::string> errors(takers);
  std::vector<std::thread> threads;
  for (int i = 0; i < takers; ++i)
    threads.emplace_back([&, i] {
      FolderLockOptions all = options();
      all.tell = nullptr;
      all.interval = milliseconds(10'000);  // 2 s to settle
      all.try_lock = lock_nothing;
      // All takers see the file unchanged until one of them has written.
      all.read = [&](const std::string& path) {
        return Clock::now() - began < milliseconds(1000) ? LockText{left, 0} : read_lock_text(path);
      };
      const auto at = static_cast<std::size_t>(i);
      errors[at] = error_of([&] { locks[at] = hold(all); });
    });
  for (std::thread& thread : threads) thread.join();
  int have_it = 0;
  for (std::size_t i = 0; i < takers; ++i) {
    if (locks[i]) {
      ++have_it;
      EXPECT_NO_THROW(locks[i]->require_held());
    } else {
      EXPECT_HAS(errors[i], "is in use by process ");
    }
  }
  EXPECT_EQ(have_it, 1);
}

TEST_F(Lock, OneOfManyTakersByForceHasIt) {
  for (const auto& try_lock : {std::function<int(int)>(), std::function<int(int)>(lock_nothing)}) {
    FolderLockOptions theirs = options();
    theirs.interval = milliseconds(2000);
    theirs.try_lock = try_lock;
    const auto holder = hold(theirs);
    std::vector<std::unique_ptr<FolderLock>> locks(2);
    std::vector<std::thread> threads;
    for (auto& lock : locks)
      threads.emplace_back([&] {
        FolderLockOptions all = theirs;
        all.tell = nullptr;
        all.take_from_holder = true;
        error_of([&] { lock = hold(all); });
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_NE(locks[0] == nullptr, locks[1] == nullptr);
  }
}

TEST_F(Lock, WhatATakerLeftThatWasKilledIsRemoved) {
  const std::string old = file() + ".0123456789abcdef", fresh = file() + ".0123456789abcdee",
                    other = file() + ".of.a.user";
  for (const std::string& path : {old, fresh, other}) write_bytes(path, "");
  for (const std::string& path : {old, other})
    fs::last_write_time(path, fs::last_write_time(fresh) - std::chrono::hours(1));
  FolderLockOptions all = options();
  all.interval = milliseconds(10'000);
  const auto lock = hold(all);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh));  // another taker may be about to rename it
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(Lock, CanBeTakenFromItsHolderWhichNotices) {
  for (const auto& try_lock : {std::function<int(int)>(), std::function<int(int)>(lock_apart),
                               std::function<int(int)>(lock_nothing)}) {
    FolderLockOptions theirs = options();
    theirs.try_lock = try_lock;
    if (try_lock) theirs.holder = on_another_host();
    theirs.interval = milliseconds(1000);
    if (theirs.holder) theirs.holder->interval = theirs.interval;
    const auto holder = hold(theirs);
    FolderLockOptions ours = options();
    ours.try_lock = try_lock;
    ours.take_from_holder = true;
    told_.clear();
    {
      const auto taker = hold(ours);
      EXPECT_HAS(told_, "taken from process ");
      // The holder notices at its own renewal, before the taker has changed anything.
      EXPECT_TRUE(holder->is_lost());
      const std::string error = error_of([&] { holder->require_held(); });
      EXPECT_HAS(error, "was taken by process " + std::to_string(getpid()));
      EXPECT_NO_THROW(taker->require_held());
      EXPECT_FALSE(taker->is_lost());
    }
    EXPECT_FALSE(fs::exists(file()));
  }
  EXPECT_TRUE(fs::is_empty(folder()));
}

}  // namespace
}  // namespace ostrakon::testing
