// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <string>
#include <vector>

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

/// Writes the actions of some steps, on all ranks, to a trace file. The first step of a process is
/// not typical: it is skipped if there are more.
class TraceRecorder {
 public:
  /// `steps`: how many to record; 0: none, and no file is made.
  explicit TraceRecorder(std::int64_t steps) : count_(steps) {}

  /// Makes a new file on rank 0; an existing file of another run is removed. Throws Error.
  void open(const std::string& path);
  /// `first`: the first step of this process; `last`: the last one of training; `origin`: the
  /// moment, in seconds of the clock of ActionTime, that times are relative to.
  void begin(std::int64_t first, std::int64_t last, double origin);
  /// Adds a step if it is to be recorded; the file is complete after each of them. If rank 0 can't
  /// write, the data waits, and why() gives the reason; it tries again after each later step.
  /// Collective over `world`.
  void record(std::int64_t step, const runtime::Program& program,
              const std::vector<runtime::ActionTime>& times, comm::Communicator& world);
  /// On rank 0: why the file is not complete; empty if it is.
  const std::string& why() const { return why_; }
  /// Closes the file on rank 0, after the last step. Throws Error where not all of it is on the
  /// disk; a later call tries again.
  void close();

 private:
  const std::int64_t count_;
  std::int64_t first_ = 0;  // first step to record
  double origin_ = 0.0;
  std::optional<TraceFile> file_;  // on rank 0
  std::string why_;
};

}  // namespace ostrakon::train
