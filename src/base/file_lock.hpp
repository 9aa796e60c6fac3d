// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon {

/// Asks the system for the lock of an open file, for this description of it: it ends when the last
/// descriptor does. 0, or the error.
int lock_in_kernel(int descriptor);

/// Whether that error says that another one has the lock.
bool is_refusal(int error);

/// Whether it says that the file system can't lock.
bool has_no_locks(int error);

/// Whether `path` names the open file: another process may have removed or replaced it. Not where
/// the system won't say.
bool is_file_of(const std::string& path, int descriptor);

/// Keeps other processes from writing the same file, which is made where it is not there; what is
/// in it stays. Does nothing for devices, nor where the file system has no locks. What a killed
/// process has left is free. Throws Error, naming the path.
class WriterLock {
 public:
  explicit WriterLock(const std::string& path);
  WriterLock(WriterLock&& other) noexcept;
  WriterLock& operator=(WriterLock&&) = delete;
  ~WriterLock();

  /// Throws Error where the path names another file by now, or none.
  void require_name() const;
  /// Removes the file, unless its path names another one by now.
  void remove() const;

 private:
  bool attempt();
  bool has_name() const;

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace ostrakon
