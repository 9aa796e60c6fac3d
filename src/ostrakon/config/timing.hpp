// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <string>

namespace ostrakon::config {

/// Nested wall-clock timers by name, from construction to report. Names are unique among timers
/// under the same parent. Not thread-safe; allocates host memory only, and that at the first use of
/// a name.
class Timers {
 public:
  Timers();
  ~Timers();
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  /// Starts a timer within the one that runs now.
  void start(const std::string& name);
  /// Stops the timer that was started last; throws std::logic_error if its name is another.
  void stop(const std::string& name);
  /// Counts a call of this many seconds within the timer that runs now: of what ran elsewhere,
  /// maybe at the same time as others.
  void add(const std::string& name, double seconds);
  /// How many timers run now, one within the other; the total does not count.
  std::size_t running() const;
  /// Stops the timers started last until `count` run.
  void stop_down_to(std::size_t count);

  /// Collective over `comm`. On rank 0 a table of calls and of seconds (least, mean and most over
  /// the ranks); elsewhere empty. All ranks must have used the same names in the same order. Timers
  /// that run now count with what they had at their last stop, but for the total.
  std::string report(MPI_Comm comm);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// Runs a timer during its own lifetime. Its end stops those within that an exception left running.
class ScopedTimer {
 public:
  ScopedTimer(Timers& timers, const std::string& name) : timers_(timers), outer_(timers.running()) {
    timers_.start(name);
  }
  ~ScopedTimer() { timers_.stop_down_to(outer_); }
  ScopedTimer(const ScopedTimer&) = delete;
  ScopedTimer& operator=(const ScopedTimer&) = delete;

 private:
  Timers& timers_;
  std::size_t outer_;
};

}  // namespace ostrakon::config
