// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <ostrakon/base/process.hpp>
#include <string>

namespace ostrakon {

/// Who holds a lock file, as its text says; see folder_lock.hpp.
struct LockHolder {
  std::string id;  ///< of this one time that it is held
  std::string host, boot, process_namespace;
  /// Number, and process_start(). 0: the text ends too early to say it, as its writer was killed.
  std::int64_t process = 0, started = 0;
  std::string since;                      ///< UTC, for people
  std::string job;                        ///< batch_job()
  std::chrono::milliseconds interval{0};  ///< at which `renewed` grows while the holder is there
  std::int64_t renewed = 0;
};

/// This process, as who holds a lock from now on.
LockHolder this_holder(std::chrono::milliseconds interval);

/// Lines of "name: value", the first of which says what the file is; and back. Nothing where a text
/// does not begin as such lines do.
std::string write_holder(const LockHolder& holder);
std::optional<LockHolder> read_holder(const std::string& lines);

/// "process 123 on host node07 since 2026-11-22T13:55:08Z (Slurm job 4242)"
std::string describe(const LockHolder& holder);

enum class Presence { gone, present, unknown };

/// Whether `them` can still be at work, as far as `us`, on our host, can know without waiting.
/// `kernel_lock`: whether we have the kernel's lock on the file, which other processes of our host
/// can't have then, but those of others may, as some file systems lock on each host apart.
Presence presence_of(const LockHolder& them, const LockHolder& us, bool kernel_lock);

/// The presence of a process of our host that `started` then, by what is said of its number `now`;
/// see process_start(): -1, nothing.
Presence presence_of(std::int64_t started, std::int64_t now, bool is_no_process);

}  // namespace ostrakon
