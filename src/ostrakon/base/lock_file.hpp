// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// The calls on which the lock of a folder stands; see folder_lock.hpp.

namespace ostrakon {

/// What a file holds, or why that is not known: what can't be read is not empty.
struct LockText {
  std::string text;
  int error = 0;  ///< errno; 0: `text` was read
};

/// What a file holds now, as its server says it: who opens it anew asks.
LockText read_lock_text(const std::string& path);

/// Locks an open file for this process alone, without waiting: 0, or errno. Of an open file, not of
/// a process: the lock ends when the last descriptor of it does.
int lock_in_kernel(int descriptor);

/// These say what an error of lock_in_kernel() means: another one has the lock; the file system
/// can't lock.
bool is_refusal(int error);
bool has_no_locks(int error);

/// Whether an error says that the file was removed meanwhile, which another host may have done.
bool is_removed(int error);

/// Whether `path` names the open file, which its former holder may have removed. Throws Error where
/// the system does not say.
bool is_file_of(const std::string& path, int descriptor);

}  // namespace ostrakon
