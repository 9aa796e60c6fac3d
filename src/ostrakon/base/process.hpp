// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

// These functions identify this process among all that may use the same files.

namespace ostrakon {

/// The name of the host that this process runs on; "?" where the system doesn't say.
std::string host_name();

/// A text that differs after each boot of the system; empty if the system doesn't tell.
std::string boot_id();

/// A text that identifies the process-id namespace, which containers may have their own of; empty
/// if the system doesn't tell.
std::string process_namespace();

/// The start of a process of this host, in ticks since boot; -1 if the system shows no process of
/// that number. Process number and start together are unique.
std::int64_t process_start(std::int64_t process);

/// Whether the system says that no process of this host has that number. process_start() can't
/// tell: the system may hide other users' processes from it.
bool is_no_process(std::int64_t process);

/// The cores that this process may run on; empty where the system doesn't say.
std::set<int> allowed_cores();

/// The batch job that this process is part of: "Slurm job 4242"; empty where there is none.
std::string batch_job();

/// How many processes were started together with this one, from an environment variable.
struct StartedTogether {
  std::string starter;  ///< "srun"
  std::int64_t processes = 0;
  bool at_least = false;  ///< the variable holds a rank, so `processes` is a lower bound
  std::string variable, value;
};

/// Returns nothing if no variable says that several processes were started together. Only variables
/// of the launcher of this process itself count: a job with several tasks says nothing of a process
/// that its script starts.
std::optional<StartedTogether> started_together();
/// Reads variable(name) in place of the environment, for tests; empty: not set.
std::optional<StartedTogether> started_together(
    const std::function<std::string(const char* name)>& variable);

/// The current time in UTC, for people: "2026-11-22T13:55:08Z".
std::string utc_time();

}  // namespace ostrakon
