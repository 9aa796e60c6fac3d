// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/saving/save_worker.hpp>

#include <ostrakon/base/clock.hpp>
#include <system_error>
#include <utility>

namespace ostrakon::train {

void SaveWorker::begin(bool asynchronous) {
  asynchronous_ = asynchronous;
  seconds_ = 0.0;
}

void SaveWorker::run(std::function<void()> job) {
  const auto timed = [this, job = std::move(job)] {
    const double began = seconds_now();
    job();
    seconds_ += seconds_now() - began;
  };
  if (asynchronous_) {
    try {
      return background_.start(timed);
    } catch (const std::system_error&) {
      // The system gives no thread, so this thread runs the job.
    }
  }
  try {
    timed();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void SaveWorker::wait() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  background_.wait();
}

}  // namespace ostrakon::train
