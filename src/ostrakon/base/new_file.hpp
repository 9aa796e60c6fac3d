// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/files/writer_lock.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <string>

namespace ostrakon {

/// A file that is written sequentially, as "<path>.partial". It is renamed after all bytes are on
/// the disk and were read back correctly. It is an error if another process writes the same file.
/// Methods throw Error.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  /// Removes the partial file if it was not finished.
  ~NewFile();

  void write(const void* data, std::int64_t bytes);
  void finish();

 private:
  void flush();
  void verify() const;

  std::string path_, partial_path_;  // partial_path_ is empty after the file is finished
  WriterLock lock_;                  // lock on partial_path_
  PlainFile file_;
  std::string buffer_;
  std::int64_t written_ = 0;
  hdf5::Checksum checksum_;
};

/// Writes a whole file through NewFile. Throws Error.
void replace_file(const std::string& path, const std::string& bytes);

}  // namespace ostrakon
