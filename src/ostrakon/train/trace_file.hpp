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
  /// Where the last step's end could not be written, tries again; returns as end_step().
  std::string retry();
  /// Throws Error where the system could not write all of it to the disk. Nothing is lost then: a
  /// later call tries again. After one that has returned, further calls do nothing.
  void close();

 private:
  void write_waiting();

  PlainFile file_;
  bool is_open_ = true;
  std::int64_t at_ = 0;  // where what waits belongs
  std::string waiting_, end_;
};

}  // namespace ostrakon::train
