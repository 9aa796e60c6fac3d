// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <new>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/threads.hpp>
#include <thread>
#include <vector>

#include "support/allocations.hpp"
#include "support/scratch_folder.hpp"

namespace ostrakon {
namespace {

TEST(Threads, CallOnceForEach) {
  for (const int threads : {1, 2, 7}) {
    for (const std::int64_t count : {0, 1, 5, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
      std::atomic<bool> strange{false};
      in_threads(threads, count, [&](int thread, std::int64_t i) {
        ++calls[static_cast<std::size_t>(i)];
        if (thread < 0 || thread >= threads) strange = true;
      });
      for (const std::atomic<int>& one : calls) EXPECT_EQ(one, 1);
      EXPECT_FALSE(strange);
    }
  }
}

/// Two calls wait for each other; a single thread would deadlock.
TEST(Threads, RunAtTheSameTime) {
  std::atomic<int> arrived{0};
  in_threads(2, 2, [&](int, std::int64_t) {
    ++arrived;
    while (arrived < 2) {
    }
  });
  EXPECT_EQ(arrived, 2);
}

TEST(Threads, PassOnAFailureAndStop) {
  std::atomic<std::int64_t> calls{0};
  const auto work = [&](int, std::int64_t i) {
    ++calls;
    require(i != 3, "number ", i);
  };
  EXPECT_EQ(testing::error_of([&] { in_threads(2, 1000000000, work); }), "number 3");
  EXPECT_LT(calls, 1000000000);
}

/// The lowest index counts even if another fails first.
TEST(Threads, PassOnTheFailureOfTheLowestNumber) {
  std::atomic<int> begun{0};
  std::atomic<bool> has_failed{false};
  const auto work = [&](int, std::int64_t i) {
    ++begun;
    while (begun < 2) {
    }
    if (i == 1) has_failed = true;
    require(i != 1, "number 1");
    while (!has_failed) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    throw Error("number 0");
  };
  EXPECT_EQ(testing::error_of([&] { in_threads(2, 2, work); }), "number 0");
}

/// A thread that can't be created for lack of memory is done without.
TEST(Threads, AreFewerWhereMemoryIsShort) {
  const auto blocks_signals = [] {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    return sigismember(&blocked, SIGUSR1) == 1;
  };
  ASSERT_FALSE(blocks_signals());
  for (int left = 0; left <= 4; ++left) {
    std::atomic<int> calls{0};
    bool refused = false;
    const std::function<void(int, std::int64_t)> work = [&](int, std::int64_t) { ++calls; };
    try {
      const test::LimitedAllocations limited(left);
      in_threads(4, 100, work);
    } catch (const std::bad_alloc&) {
      refused = true;
    }
    EXPECT_EQ(refused, left == 0);
    EXPECT_EQ(calls, refused ? 0 : 100);
    EXPECT_FALSE(blocks_signals());
  }
}

}  // namespace
}  // namespace ostrakon
