// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

// This file says which process this is, among all that may work on the same files.

namespace ostrakon {

/// The name of the host that this process runs on; "?" where the system doesn't say.
std::string host_name();

/// A text that is another one after each start of the system; empty where it doesn't say.
std::string boot_id();

/// What distinguishes process ids of different containers; empty where the system doesn't say.
std::string process_namespace();

/// When a process of this host began, in ticks since the system did; -1 where the system shows
/// none of that number. With its number it is one process's alone.
std::int64_t process_start(std::int64_t process);

/// Whether the system says that no process of this host has a number: it may hide those of others
/// from process_start().
bool is_no_process(std::int64_t process);

/// The cores that this process may run on; empty where the system doesn't say.
std::set<int> allowed_cores();

/// The batch job that this process is part of: "Slurm job 4242"; empty where there is none.
std::string batch_job();

/// What started this process and others at once, as it says in an environment variable.
struct StartedTogether {
  std::string starter;  ///< "srun"
  std::int64_t processes = 0;
  bool at_least = false;  ///< a rank says so, not a number of ranks
  std::string variable, value;
};

/// Nothing where no variable says that there are several. What started this process itself counts:
/// a job that has several tasks says nothing of a process that its script starts.
std::optional<StartedTogether> started_together();
/// Asks variable(name) in place of the environment, for tests; empty: not set.
std::optional<StartedTogether> started_together(
    const std::function<std::string(const char* name)>& variable);

/// The time now, for people: "2026-11-22T13:55:08Z".
std::string utc_time();

}  // namespace ostrakon
