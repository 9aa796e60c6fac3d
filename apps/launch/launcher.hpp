// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

namespace ostrakon::apps::launch_program {

/// A launcher of ranks that was started, such as mpiexec. SIGUSR1, SIGUSR2, SIGTERM, SIGINT,
/// SIGQUIT, SIGHUP, SIGTSTP and SIGCONT to this process are passed on to it, unless a terminal has
/// sent them to both. There may be one at a time, in a process without other threads.
class Launcher {
 public:
  /// Throws Error where the command can't be started.
  explicit Launcher(const std::vector<std::string>& command);
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// Waits up to `seconds`. Returns the status once the launcher has ended; 128 + N where signal N
  /// ended it.
  std::optional<int> wait(double seconds);
  /// Ends it and all that it has started: SIGTERM, and SIGKILL 5 seconds later. Returns its status.
  int end();
  /// Whether a signal has asked for its end.
  bool was_asked_to_end() const { return was_asked_to_end_; }

 private:
  void pass_on(const siginfo_t& signal);
  void reap();

  pid_t process_ = 0;
  bool has_own_group_ = false;  // else that of this process, which a terminal sends signals to
  bool was_asked_to_end_ = false;
  std::optional<int> status_;
};

}  // namespace ostrakon::apps::launch_program
