// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace ostrakon::train {

/// A thread that runs one job at a time beside its owner. It begins with the first job and blocks
/// signals, so that they reach threads that expect them.
class Background {
 public:
  Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  /// Waits for the job.
  ~Background();

  /// Starts a job. Throws std::logic_error where a job runs, or where the failure of the last one
  /// was not collected; std::system_error where there can be no thread.
  void start(std::function<void()> job);
  /// Whether a job runs. False once it has ended, also by an exception.
  bool is_busy() const;
  /// Waits until the job has ended; rethrows its exception.
  void wait();

 private:
  void work();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> job_;
  std::exception_ptr failure_;
  bool busy_ = false, ends_ = false;
  std::thread thread_;
};

/// Runs a rank's jobs of a save, one at a time: on a thread; or in the thread that calls run(), if
/// training is not to continue meanwhile or the system gives no thread.
class SaveWorker {
 public:
  /// Begins a save, and resets seconds(). `asynchronous`: its jobs run on a thread.
  void begin(bool asynchronous);
  bool is_asynchronous() const { return asynchronous_; }

  /// Begins a job; wait() rethrows its exception.
  void run(std::function<void()> job);
  /// Whether a job runs.
  bool is_busy() const { return background_.is_busy(); }
  /// Waits for the job; rethrows its exception.
  void wait();
  /// Time spent in jobs since begin(); not to be called while one runs.
  double seconds() const { return seconds_; }

 private:
  bool asynchronous_ = false;
  double seconds_ = 0.0;
  std::exception_ptr failure_;  // exception of a job in the thread that calls run()
  Background background_;       // last member: it ends before the members that its job uses
};

}  // namespace ostrakon::train
