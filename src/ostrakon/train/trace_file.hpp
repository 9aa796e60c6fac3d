// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/files.hpp>
#include <string>

namespace ostrakon::train {

/// A trace file, which is complete after each step: the next step overwrites its end.
class TraceFile {
 public:
  /// Throws Error where it can't be made.
  explicit TraceFile(const std::string& path) : file_(path, PlainFile::Mode::create) {}

  /// Adds to the present step. Throws nothing: end_step() does.
  void add(const std::string& part);
  /// Writes what ends the file. Throws Error where anything of the step could not be written.
  void end_step(const std::string& end);
  /// Throws Error where the system could not write all of it to the disk. May be called again.
  void close();

 private:
  PlainFile file_;
  bool is_open_ = true;
  std::int64_t at_ = 0;
  std::string failure_;  // why something could not be written
};

}  // namespace ostrakon::train
