// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon {

/// Keeps other processes from writing the same file. Creates it if it is missing, and keeps its
/// content. Does nothing for devices, nor on file systems without locks. The lock of a killed
/// process is free. Throws Error, naming the path.
class WriterLock {
 public:
  explicit WriterLock(const std::string& path);
  WriterLock(WriterLock&& other) noexcept;
  WriterLock& operator=(WriterLock&&) = delete;
  ~WriterLock();

  /// Throws Error if the path now names another file, or none.
  void require_name() const;
  /// Removes the file, unless the path now names another one.
  void remove() const;

 private:
  bool attempt();

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace ostrakon
