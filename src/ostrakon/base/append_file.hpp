// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace ostrakon {

/// A file that only grows. Methods throw Error, naming the path and the reason; the file can be
/// used again then, as there may be room for more later.
class AppendFile {
 public:
  /// Makes the file where it is not there; what is in it stays.
  explicit AppendFile(const std::string& path);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  /// Adds all of it at the end of the file, at once where the system takes it at once; or, where it
  /// throws, nothing. What the system took before it failed is cut off again. If it can't be, it
  /// counts as added, and the next call writes its rest first.
  void append(const std::string& bytes);
  /// Throws where the system could not write all of it to the disk. Nothing can be added after it
  /// has returned.
  void close();

 private:
  std::size_t put(const std::string& bytes);
  void complete();
  bool cut_off(std::size_t bytes);

  std::string path_;
  int descriptor_ = -1;
  std::string rest_;     // of what counts as added, and is not in the file
  std::string failure_;  // why put() has stopped
};

}  // namespace ostrakon
