// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <ostrakon/base/process.hpp>
#include <string>

namespace ostrakon {

/// The holder of a lock file, as written in it; see folder_lock.hpp.
struct LockHolder {
  std::string id;  ///< unique to this acquisition of the lock
  std::string host, boot, process_namespace;
  /// Process number and process_start(). 0: missing, as the writer was killed before it wrote them.
  std::int64_t process = 0, started = 0;
  std::string since;                      ///< UTC, for people
  std::string job;                        ///< batch_job()
  std::chrono::milliseconds interval{0};  ///< interval at which the holder increments `renewed`
  std::int64_t renewed = 0;
};

/// Describes this process, as the holder of a lock from now on.
LockHolder this_holder(std::chrono::milliseconds interval);

/// write_holder() returns lines of "name: value", of which the first says what the file is;
/// read_holder() reads them, and returns nothing for a text that does not begin so.
std::string write_holder(const LockHolder& holder);
std::optional<LockHolder> read_holder(const std::string& lines);

/// Describes a holder: "process 123 on host node07 since 2026-11-22T13:55:08Z (Slurm job 4242)".
std::string describe(const LockHolder& holder);

enum class Presence { gone, present, unknown };

/// Whether `them` may still run, as far as `us`, on our host, can tell without waiting.
/// `kernel_lock`: whether we have the kernel's lock on the file. Then no other process of our host
/// has it; one of another host may, as some file systems lock on each host apart.
Presence presence_of(const LockHolder& them, const LockHolder& us, bool kernel_lock);

/// Whether the process of our host that started at `started` still runs. `now`: process_start() of
/// its number, -1: nothing shown; `is_no_process`: what is_no_process() says of its number.
Presence presence_of(std::int64_t started, std::int64_t now, bool is_no_process);

}  // namespace ostrakon
