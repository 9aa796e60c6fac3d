// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/saving/background.hpp>

#include <csignal>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/watch/progress.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace ostrakon::train {
namespace {

/// Blocks all signals in the current thread, during its life.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &former_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &former_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t former_{};
};

}  // namespace

Background::~Background() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Background::start(std::function<void()> job) {
  if (!thread_.joinable()) {
    const BlockedSignals blocked;  // new threads inherit the mask
    thread_ = std::thread([this] { work(); });
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (busy_ || failure_) throw std::logic_error("a job begins before the last one is over");
    job_ = std::move(job);
    busy_ = true;
  }
  changed_.notify_all();
}

bool Background::is_busy() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return busy_;
}

void Background::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return !busy_; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Background::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return busy_ || ends_; });
    if (!busy_) return;
    const std::function<void()> job = std::exchange(job_, nullptr);
    lock.unlock();
    std::exception_ptr failure;
    try {
      job();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    busy_ = false;
    changed_.notify_all();
  }
}

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
  const watch::OccupationScope waiting(watch::Occupation::awaiting_writer);
  background_.wait();
}

}  // namespace ostrakon::train
