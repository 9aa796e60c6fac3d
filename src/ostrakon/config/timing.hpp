// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <string>

namespace ostrakon::config {

/// Nested wall-clock timers by name, from construction to report. Names are unique among timers
/// with the same parent. Not thread-safe; allocates only host memory, at the first use of a name.
class Timers {
 public:
  Timers();
  ~Timers();
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  /// Starts a timer inside the running one.
  void start(const std::string& name);
  /// Stops the timer that was started last; throws std::logic_error if it has another name.
  void stop(const std::string& name);
  /// Adds a call of `seconds` inside the running timer, for work that ran elsewhere, perhaps
  /// concurrently.
  void add(const std::string& name, double seconds);
  /// The number of running timers, nested in each other, without the total.
  std::size_t running() const;
  /// Stops the innermost timers until `count` are running.
  void stop_down_to(std::size_t count);

  /// Returns on rank 0 a table of calls and seconds (minimum, mean and maximum over the ranks);
  /// elsewhere "". Collective over `comm`. All ranks must have used the same names in the same
  /// order. Running timers count with their time at their last stop, except the total.
  std::string report(MPI_Comm comm);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// Runs a timer during its own lifetime. Its destructor also stops inner timers that an exception
/// left running.
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
