// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon {

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

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace ostrakon
