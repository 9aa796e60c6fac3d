// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace ostrakon::train {

/// A thread that does one job at a time, next to the one that owns this object. Begun with the
/// first job; its signals are blocked, so that they reach threads that expect them.
class Background {
 public:
  Background() = default;
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  /// Waits for the job.
  ~Background();

  /// Throws std::logic_error where a job runs, or where the failure of the last one was not
  /// collected; std::system_error where there can be no thread.
  void start(std::function<void()> job);
  /// Whether a job runs. False once it has ended, well or not.
  bool is_busy() const;
  /// Waits until it has ended; throws what it threw.
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
