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

}  // namespace ostrakon::train
