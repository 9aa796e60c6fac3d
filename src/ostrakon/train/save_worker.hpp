// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <functional>
#include <ostrakon/train/background.hpp>

namespace ostrakon::train {

/// Does a rank's jobs of a save, one at a time: on a thread, or in the thread that calls run()
/// where training is not to continue meanwhile, or where the system gives no thread.
class SaveWorker {
 public:
  /// Begins a save, with no time spent on it. `asynchronous`: its jobs are done on a thread.
  void begin(bool asynchronous);
  bool is_asynchronous() const { return asynchronous_; }

  /// Begins a job; what it throws comes out of wait().
  void run(std::function<void()> job);
  /// Whether a job runs.
  bool is_busy() const { return background_.is_busy(); }
  /// Waits for the job; throws what it threw.
  void wait();
  /// In jobs since begin(); not to be called while one runs.
  double seconds() const { return seconds_; }

 private:
  bool asynchronous_ = false;
  double seconds_ = 0.0;
  std::exception_ptr failure_;  // of a job in the thread that calls run()
  Background background_;       // last: ends before what its job uses
};

}  // namespace ostrakon::train
