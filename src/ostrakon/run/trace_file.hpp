// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/files/files.hpp>
#include <string>

namespace ostrakon::train {

/// A trace file that is complete after each step: the next step overwrites its end. Text that can't
/// be written because the disk is full waits in memory for the next try.
class TraceFile {
 public:
  /// Throws Error where the file can't be made.
  explicit TraceFile(const std::string& path) : file_(path, PlainFile::Mode::create) {}

  /// Adds text to the current step.
  void add(const std::string& part);
  /// Writes waiting text, then the end of the file. Returns why it can't; empty: the file is
  /// complete.
  std::string end_step(const std::string& end);
  /// Tries again to write the last step's end; returns as end_step().
  std::string retry();
  /// Throws Error where not all of the file could be written to the disk. Nothing is lost then: a
  /// later call tries again. After a call that has returned, further calls do nothing.
  void close();

 private:
  void write_waiting();

  PlainFile file_;
  bool is_open_ = true;
  std::int64_t at_ = 0;  // offset in the file of the waiting text
  std::string waiting_, end_;
};

}  // namespace ostrakon::train
