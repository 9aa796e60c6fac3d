// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon {

/// A file that only grows. Methods throw Error, naming the path and the reason.
class AppendFile {
 public:
  /// Makes the file where it is not there; what is in it stays.
  explicit AppendFile(const std::string& path);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  /// Adds all of it at the end of the file, at once where the system takes it at once.
  void append(const std::string& bytes);
  /// Throws where the system could not write all of it to the disk. Nothing can be added then.
  void close();

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace ostrakon
