// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::testing {

/// A command to run, and where.
struct Command {
  std::vector<std::string> arguments;                            ///< the program first
  std::string folder = ".";                                      ///< to run in
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to this process' own
  int input = -1;             ///< descriptor for its standard input; -1: nothing but an end
  double time_limit = 600.0;  ///< seconds, more than a busy machine needs; then it is ended
};

/// What a command did.
struct Outcome {
  int status = -1;  ///< exit status; -1 where a signal ended it
  bool timed_out = false;
  double seconds = 0.0;
  std::string out, err;  ///< all of its standard output and standard error
};

/// Runs a command to its end, or for its time limit. Throws std::runtime_error where it can't be
/// started. May be called by many threads at once.
Outcome run_command(const Command& command);

/// The command that starts one of Ostrakon's programs on `ranks` ranks with mpiexec.
Command mpi_job(const std::string& name, int ranks, std::vector<std::string> arguments,
                const std::string& folder);

/// Returns the command of a program; a single rank starts without mpiexec, in a third of the time.
Command program(const std::string& name, int ranks, std::vector<std::string> arguments,
                const std::string& folder);

/// Processes with this name, the first 15 bytes of it, that run in a folder; in no order.
std::vector<pid_t> processes_in(const std::string& name, const std::string& folder);

/// Calls work(0), ..., work(count - 1), a few at a time: starting ranks is more waiting than
/// computing.
void in_parallel(int count, const std::function<void(int)>& work, int at_once = 4);

}  // namespace ostrakon::testing
