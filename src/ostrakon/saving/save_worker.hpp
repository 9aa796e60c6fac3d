// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <functional>
#include <ostrakon/saving/background.hpp>

namespace ostrakon::train {

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
