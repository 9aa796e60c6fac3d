// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <ostrakon/base/error.hpp>
#include <ostrakon/saving/background.hpp>
#include <support/scratch_folder.hpp>
#include <thread>

namespace ostrakon::train {
namespace {

TEST(SaveWorker, DoesJobsOnAThreadOrHere) {
  SaveWorker worker;
  for (const bool asynchronous : {false, true, false}) {
    worker.begin(asynchronous);
    EXPECT_EQ(worker.is_asynchronous(), asynchronous);
    EXPECT_EQ(worker.seconds(), 0.0);
    for (int jobs = 1; jobs <= 2; ++jobs) {
      std::thread::id worked_on;
      worker.run([&] {
        worked_on = std::this_thread::get_id();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      });
      worker.wait();
      EXPECT_FALSE(worker.is_busy());
      EXPECT_EQ(worked_on == std::this_thread::get_id(), !asynchronous);
      EXPECT_GE(worker.seconds(), 0.01 * jobs);
    }
  }
}

TEST(SaveWorker, WhatAJobThrowsComesOutOfTheWaitOnce) {
  for (const bool asynchronous : {false, true}) {
    SaveWorker worker;
    worker.begin(asynchronous);
    worker.run([] { throw Error("no disk"); });
    EXPECT_EQ(testing::error_of([&] { worker.wait(); }), "no disk");
    EXPECT_NO_THROW(worker.wait());
    bool done = false;
    worker.run([&] { done = true; });
    worker.wait();
    EXPECT_TRUE(done);
  }
}

}  // namespace
}  // namespace ostrakon::train
