// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <ostrakon/saving/background.hpp>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/messages.hpp"

namespace ostrakon::train {
namespace {

constexpr int all_signals[] = {SIGTERM, SIGUSR1, SIGUSR2, SIGINT, SIGHUP};

/// Those of all_signals that reach this thread.
std::vector<int> open_signals() {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  std::vector<int> open;
  for (const int signal : all_signals)
    if (sigismember(&blocked, signal) == 0) open.push_back(signal);
  return open;
}

/// A job that runs until it is released.
class Gate {
 public:
  std::function<void()> job() {
    return [this] { opened_.wait(); };
  }
  void open() { open_.set_value(); }

 private:
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
};

TEST(Background, RunsJobsOnOneOtherThread) {
  Background background;
  EXPECT_FALSE(background.is_busy());
  background.wait();  // for nothing
  std::vector<std::thread::id> threads;
  for (int i = 0; i < 3; ++i) {
    background.start([&] { threads.push_back(std::this_thread::get_id()); });
    background.wait();
    EXPECT_FALSE(background.is_busy());
    ASSERT_EQ(threads.size(), static_cast<std::size_t>(i + 1));
    EXPECT_NE(threads[0], std::this_thread::get_id());
    EXPECT_EQ(threads.back(), threads[0]);
  }
}

TEST(Background, IsBusyWhileAJobRuns) {
  Gate gate;
  Background background;
  background.start(gate.job());
  EXPECT_TRUE(background.is_busy());
  EXPECT_THROW(background.start([] {}), std::logic_error);
  EXPECT_TRUE(background.is_busy());
  gate.open();
  background.wait();
  EXPECT_FALSE(background.is_busy());
}

TEST(Background, WaitThrowsWhatTheJobThrewOnce) {
  Background background;
  for (int i = 0; i < 2; ++i) {
    background.start([] { throw std::runtime_error("no space left"); });
    EXPECT_EQ(testing::error_of<std::runtime_error>([&] { background.wait(); }), "no space left");
    EXPECT_FALSE(background.is_busy());
    EXPECT_NO_THROW(background.wait());
  }
  // Whatever it is.
  background.start([] { throw 5; });
  EXPECT_THROW(background.wait(), int);
  int done = 0;
  background.start([&] { done = 1; });
  background.wait();
  EXPECT_EQ(done, 1);
}

TEST(Background, AFailureIsNotForgottenForAnotherJob) {
  Background background;
  background.start([] { throw std::runtime_error("no space left"); });
  while (background.is_busy()) std::this_thread::yield();
  EXPECT_THROW(background.start([] {}), std::logic_error);
  EXPECT_THROW(background.wait(), std::runtime_error);
  background.start([] {});
  background.wait();
}

TEST(Background, ItsEndWaitsForTheJob) {
  std::atomic<bool> done{false};
  {
    Background background;
    background.start([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      done = true;
    });
  }
  EXPECT_TRUE(done);
  {
    Background background;
    background.start([] { throw std::runtime_error("that nobody waits for"); });
  }
  const Background without_a_job;
}

TEST(Background, ReleasesWhatAJobHolds) {
  Background background;
  const auto held = std::make_shared<int>(1);
  background.start([held] {});
  background.wait();
  // The job's copy goes with it, not with the next job: it may be of many gigabytes.
  for (int i = 0; i < 60000 && held.use_count() > 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Background, SignalsReachOtherThreads) {
  const std::vector<int> before = open_signals();
  ASSERT_FALSE(before.empty());
  std::vector<int> open_in_job = before;
  Background background;
  background.start([&] { open_in_job = open_signals(); });
  background.wait();
  EXPECT_EQ(open_in_job, std::vector<int>());
  EXPECT_EQ(open_signals(), before);
}

}  // namespace
}  // namespace ostrakon::train
