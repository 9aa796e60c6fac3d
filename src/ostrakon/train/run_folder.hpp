// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/base/folder_lock.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/train/console.hpp>
#include <ostrakon/train/metrics.hpp>
#include <string>

namespace ostrakon::train {

/// output.directory, which one run at a time may change: its lock, and the files in it but for
/// checkpoints, weights.h5 and trace.json. Rank 0 makes all changes; on other hosts the folder may
/// not be visible.
class RunFolder {
 public:
  /// `break_lock`: take the folder from a run that has it. `times`: of the lock; for tests.
  RunFolder(std::string directory, comm::Communicator& world, Console& console, bool break_lock,
            FolderLockOptions times = {});
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  /// Path of a file in it.
  std::string file(const std::string& name) const;

  /// Takes the lock where the folder is there, before anything in it is looked at. Collective;
  /// throws AgreedError that names the holder where another run has it.
  void lock_if_there();
  /// Makes the folder, and takes the lock where lock_if_there() did not. Returns, on rank 0,
  /// whether it did only now. Throws AgreedError, also where output can't go there. Collective.
  bool make();

  /// Throws Error where another run has taken the folder: nothing of ours goes there any more. On
  /// rank 0, before each change that another process must not make at the same time.
  void check() const;
  /// Checks for all ranks: collective, throws AgreedError.
  void require_held() const;
  /// Collective: whether require_held() throws nothing.
  bool is_held() const;

  /// Makes metrics.jsonl ready for steps after `last`. That of another run (`is_own` false) is
  /// renamed. On rank 0; throws Error.
  void open_metrics(std::int64_t last, bool is_own);
  /// Writes a text file whole, in place of what is there. On rank 0; throws Error.
  void write_file(const std::string& name, const std::string& content) const;
  /// Weights of an earlier run are not to be taken for those of this one, which may end without
  /// any; but they may be all that is left of days. Renames weights.h5. On rank 0; throws Error.
  void keep_earlier_weights() const;

  /// Checks before a checkpoint is saved, from any thread. Tries to write rows that wait: a run
  /// that resumes from the checkpoint does not repeat their steps.
  void check_before_save() const;

  /// Adds a row to metrics.jsonl, after a look at the lock. Says, once, where rows have to wait;
  /// see MetricsFile. Collective; throws AgreedError where another run has taken the folder.
  void write(const StepMetrics& metrics);
  void write(const ValidationMetrics& metrics);
  /// After the last row: some file systems report only now that there was no space. On rank 0;
  /// throws Error where not all rows are on the disk: a later call tries again.
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
  // On rank 0:
  std::unique_ptr<FolderLock> lock_;
  std::unique_ptr<MetricsFile> metrics_;
  bool rows_wait_ = false;  ///< and the user was told
};

}  // namespace ostrakon::train
