// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/files.hpp>
#include <string>

namespace ostrakon::train {

/// A trace file, which is complete after each step: the next step overwrites its end. What can't be
/// written, as the disk is full, waits in memory for the next try.
class TraceFile {
 public:
  /// Throws Error where it can't be made.
  explicit TraceFile(const std::string& path) : file_(path, PlainFile::Mode::create) {}

  /// Adds to the present step.
  void add(const std::string& part);
  /// Writes what ends the file, after what waits. Returns why it can't; empty: the file is
  /// complete.
  std::string end_step(const std::string& end);
  /// Throws Error where the system could not write all of it to the disk. May be called again.
  void close();

 private:
  void write_waiting();

  PlainFile file_;
  bool is_open_ = true;
  std::int64_t at_ = 0;  // where what waits belongs
  std::string waiting_, end_;
};

}  // namespace ostrakon::train
