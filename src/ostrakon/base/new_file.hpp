// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/files.hpp>
#include <ostrakon/base/hdf5.hpp>
#include <ostrakon/base/writer_lock.hpp>
#include <string>

namespace ostrakon {

/// A file that is written from its beginning to its end, as "<path>.partial". It gets its name when
/// all of it is on the disk, and was read back as it was written. Where another process writes it,
/// that is an error. Methods throw Error.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  /// Removes what was not finished.
  ~NewFile();

  void write(const void* data, std::int64_t bytes);
  void finish();

 private:
  void flush();
  void verify() const;

  std::string path_, partial_path_;  // the latter is empty when it is finished
  WriterLock lock_;                  // of partial_path_
  PlainFile file_;
  std::string buffer_;
  std::int64_t written_ = 0;
  hdf5::Checksum checksum_;
};

/// Writes a whole file so. Throws Error.
void replace_file(const std::string& path, const std::string& bytes);

}  // namespace ostrakon
