// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostrakon/base/files.hpp>
#include <ostrakon/base/writer_lock.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::hdf5 {

/// The bytes below an HDF5 file, as HDF5 reads and writes them through a file driver of our own.
/// HDF5 can't close a file whose writing fails, and crashes at exit with one that is still open. So
/// it is never told: the first failure is kept here, for those who called HDF5 to throw, and what
/// is written afterwards stays in memory until HDF5 has closed the file, but for values, which it
/// need not find again. Reading may fail.
class Storage : public std::enable_shared_from_this<Storage> {
 public:
  /// Opens the file; to write it, as WriterLock says. Throws Error. `name`: the path that it will
  /// have, for messages.
  Storage(const std::string& path, PlainFile::Mode mode, const std::string& name);
  /// In memory alone, empty: only what is written takes space.
  explicit Storage(const std::string& name);

  const std::string& name() const { return name_; }
  /// Sets up an HDF5 property list for access, to open this file. False where HDF5 can't.
  bool set_driver(std::int64_t access);

  /// Why reading or writing failed; empty: it did not.
  const std::string& failure() const { return failure_; }
  /// The same, and a failure to read is forgotten: perhaps it can be read next time.
  std::string take_failure();

  /// Makes sure that all is on the disk. HDF5 has closed the file. Throws Error, also for what
  /// failed before.
  void finish();

  /// These do what WriterLock does, for a file that is written.
  void require_name() const { lock_->require_name(); }
  void remove() const { lock_->remove(); }

  // For the driver. The functions throw nothing.
  std::int64_t size() const { return size_; }
  /// What lies beyond the file's end is zeros. False where it can't be read.
  bool read(std::int64_t offset, std::int64_t bytes, void* data) noexcept;
  enum class Content { values, structure };
  /// False where there is no memory left to keep what can't be written.
  bool write(std::int64_t offset, std::int64_t bytes, const void* data, Content content) noexcept;
  void resize(std::int64_t bytes) noexcept;

 private:
  void note_failure() noexcept;

  std::optional<WriterLock> lock_;  // of what is written
  std::optional<PlainFile> file_;
  std::string name_;
  std::int64_t size_ = 0;
  bool is_lost_ = false;  // writing has failed
  std::string failure_;
  std::vector<std::pair<std::int64_t, std::string>> kept_;  // what is in no file, and where
};

}  // namespace ostrakon::hdf5
