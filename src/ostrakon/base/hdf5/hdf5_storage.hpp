// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/files/writer_lock.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::hdf5 {

/// The bytes of an HDF5 file, which HDF5 reads and writes through our file driver. HDF5 can't close
/// a file whose writes fail, and crashes at exit while one is open. So write failures are hidden
/// from it: the first one is kept here, for the caller of HDF5 to throw. Structure that is written
/// afterwards stays in memory until HDF5 has closed the file; values are dropped, as HDF5 does not
/// read them back. Reads may fail visibly.
class Storage : public std::enable_shared_from_this<Storage> {
 public:
  /// Opens the file; to write it, with a WriterLock. Throws Error. `name`: the final path of the
  /// file, for messages.
  Storage(const std::string& path, PlainFile::Mode mode, const std::string& name);
  /// Creates an empty file in memory; only bytes that are written take space.
  explicit Storage(const std::string& name);

  const std::string& name() const { return name_; }
  /// Sets up an HDF5 access property list to open this file. Returns false if HDF5 can't.
  bool set_driver(std::int64_t access);

  /// Why a read or write failed; empty if none has.
  const std::string& failure() const { return failure_; }
  /// Returns failure(), and forgets a failed read, as the next one may succeed.
  std::string take_failure();

  /// Syncs the file to disk, after HDF5 has closed it. Throws Error, also for an earlier failure.
  void finish();

  /// These forward to WriterLock, for a file that is written.
  void require_name() const { lock_->require_name(); }
  void remove() const { lock_->remove(); }

  // These functions are for the driver, and throw nothing.
  std::int64_t size() const { return size_; }
  /// Reads bytes; those beyond the end of the file are zero. Returns false if the file can't be
  /// read.
  bool read(std::int64_t offset, std::int64_t bytes, void* data) noexcept;
  enum class Content { values, structure };
  /// Writes bytes; returns false if bytes that can't be written don't fit into memory either.
  bool write(std::int64_t offset, std::int64_t bytes, const void* data, Content content) noexcept;
  void resize(std::int64_t bytes) noexcept;

 private:
  void note_failure() noexcept;

  std::optional<WriterLock> lock_;  // null if the file is only read
  std::optional<PlainFile> file_;
  std::string name_;
  std::int64_t size_ = 0;
  bool is_lost_ = false;  // whether a write has failed
  std::string failure_;
  std::vector<std::pair<std::int64_t, std::string>> kept_;  // bytes that are in no file, by offset
};

}  // namespace ostrakon::hdf5
