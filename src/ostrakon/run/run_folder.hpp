// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/base/files/folder_lock.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/run/console.hpp>
#include <ostrakon/run/metrics.hpp>
#include <string>

namespace ostrakon::train {

/// output.directory, which one run at a time may change: its lock, and the files in it except
/// checkpoints, weights.h5 and trace.json. Rank 0 makes all changes; on other hosts the folder may
/// not be visible.
class RunFolder {
 public:
  /// `break_lock`: take the folder from a run that has it. `times`: of the lock; for tests.
  RunFolder(std::string directory, comm::Communicator& world, Console& console, bool break_lock,
            FolderLockOptions times = {});
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  /// The path of a file in the folder.
  std::string file(const std::string& name) const;

  /// Takes the lock if the folder exists, before anything in it is read. Collective; throws
  /// CollectiveError that names the holder where another run has it.
  void lock_if_there();
  /// Makes the folder, and takes the lock if lock_if_there() did not. Returns, on rank 0, whether
  /// the lock was taken only now. Throws CollectiveError, also where output can't be written there.
  /// Collective.
  bool make();

  /// Throws Error where another run has taken the folder, so that this one must not write there any
  /// more. On rank 0, before each change that another process must not make at the same time.
  void check() const;
  /// Calls check() for all ranks: collective, throws CollectiveError.
  void require_held() const;
  /// Collective: whether the folder is still this run's.
  bool is_held() const;

  /// Prepares metrics.jsonl for steps after `last`. If it is another run's (`is_own` false), it is
  /// renamed. On rank 0; throws Error.
  void open_metrics(std::int64_t last, bool is_own);
  /// Writes a whole text file, replacing an existing one. On rank 0; throws Error.
  void write_file(const std::string& name, const std::string& content) const;
  /// Renames weights.h5 of an earlier run, so that it is not taken for this one's, which may end
  /// without any; it is kept, as it may be the only result of days. On rank 0; throws Error.
  void keep_earlier_weights() const;

  /// Calls check() before a checkpoint is saved, from any thread. Also tries to write waiting rows:
  /// a run that resumes from the checkpoint does not repeat their steps.
  void check_before_save() const;

  /// Adds a row to metrics.jsonl, after a check of the lock. Prints a message, once, if rows have
  /// to wait; see MetricsFile. Collective; throws CollectiveError where another run has taken the
  /// folder.
  void write(const StepMetrics& metrics);
  void write(const ValidationMetrics& metrics);
  void write(const EvaluationMetrics& metrics);
  /// Closes metrics.jsonl after the last row: some file systems report only now that there was no
  /// space. On rank 0; throws Error where not all rows are on the disk: a later call tries again.
  void close_metrics();

 private:
  void lock();
  template <class Metrics>
  void write_row(const Metrics& metrics);
  void tell(const MetricsFile::Waiting& waiting);

  const std::string directory_;
  comm::Communicator& world_;
  Console& console_;
  FolderLockOptions lock_options_;
  // The members below exist on rank 0 alone:
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<MetricsFile> metrics_;
  bool rows_wait_ = false;  ///< whether rows wait and the user was told
};

}  // namespace ostrakon::train
