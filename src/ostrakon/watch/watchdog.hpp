// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <ostrakon/watch/progress.hpp>
#include <string>
#include <vector>

namespace ostrakon::watch {

/// Exit status of a job that the watchdog has ended: it may be started again.
constexpr int status_hung = 76;

/// A thread that watches this rank and, on rank 0, all others, by connections of its own. Where a
/// rank takes longer than it may, or is lost, one rank writes one line about it to standard error,
/// all write flight records, and the processes end with status_hung.
///
/// Rank 0 judges. If its process is lost or silent, the lowest of the other ranks that answer says
/// so.
class Watchdog {
 public:
  struct Setup {
    Progress* progress = nullptr;  ///< must outlive the watchdog
    int rank = 0, ranks = 1;
    int rank_in_plans = 0;
    std::string folder;  ///< for watchdog.jsonl and flight/, see verdict.hpp and flight.hpp; empty:
                         ///< none is written
    /// Returns every rank's text, on every rank; collective.
    std::function<std::vector<std::string>(const std::string&)> gather_texts;
  };
  /// Collective. Connects all ranks with rank 0; why_not() says where it could not.
  explicit Watchdog(Setup setup);
  /// Ends the watch: what happens to other ranks from now on is no alarm.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Why ranks are not watched, the same on all of them; empty where they are.
  const std::string& why_not() const;

  void stand_down();  ///< see below

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// Tells the watchdogs of all ranks that this one ends the job with a message of its own; returns
/// once they know, or soon. Does nothing without a watchdog. May be called from any thread.
void stand_down();

}  // namespace ostrakon::watch
