// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace ostrakon {

/// A file that only grows. Methods throw Error, naming the path and the reason. The file can be
/// used again after an error, as there may be space later.
class AppendFile {
 public:
  /// Creates the file if it does not exist; keeps its content.
  explicit AppendFile(const std::string& path);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  /// Appends all of `bytes`, or throws and appends nothing. A part that the system took before it
  /// failed is cut off again. If it can't be cut off, the bytes count as appended, and the next
  /// call writes the rest first.
  void append(const std::string& bytes);
  /// Throws if the system could not write everything to the disk. Nothing can be appended after it
  /// has returned.
  void close();

 private:
  std::size_t put(const std::string& bytes);
  void complete();
  bool cut_off(std::size_t bytes);

  std::string path_;
  int descriptor_ = -1;
  std::string rest_;     // bytes that count as appended but are not in the file yet
  std::string failure_;  // why put() has failed
};

}  // namespace ostrakon
