// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// System calls for the lock of a folder; see folder_lock.hpp.

namespace ostrakon {

/// Content of a file, or the error of reading it: an unreadable file is not an empty one.
struct LockText {
  std::string text;
  int error = 0;  ///< errno; 0: `text` was read
};

/// Reads a file as its server has it now: opening it again makes a network file system ask the
/// server.
LockText read_lock_text(const std::string& path);

/// Locks an open file for this process alone, without waiting; returns 0 or errno. The lock belongs
/// to the open file, not to the process: it ends when the last descriptor of the file is closed.
int lock_in_kernel(int descriptor);

/// These tell what an error of lock_in_kernel() means: another process has the lock; the file
/// system has no locks.
bool is_refusal(int error);
bool has_no_locks(int error);

/// Whether an error says that the file was removed, perhaps by another host.
bool is_removed(int error);

/// Whether `path` still names the open file, which its former holder may have removed. Throws Error
/// if the system can't tell.
bool is_file_of(const std::string& path, int descriptor);

}  // namespace ostrakon
