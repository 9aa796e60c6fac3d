// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace ostrakon {

/// What the system says of its last call that failed.
std::string system_error();

/// The folder that a path lies in; "." where the path names none.
std::string parent_folder(const std::string& path);

/// "a/b" of "a/b//"; "/" stays.
std::string without_slashes(std::string path);

/// Whether nothing has that name. Not where the system won't say.
bool is_missing(const std::string& path);

/// Makes sure that a folder's list of names has reached the disk. Throws Error.
void sync_folder(const std::string& path);

/// Gives the file `from` the name `to`, for good: replaces what has that name, and syncs the
/// folder. Throws Error.
void rename_file(const std::string& from, const std::string& to);

/// From now on a write beyond the largest size that the system lets this process' files have
/// (ulimit -f) is an error like any other, not the end of the process (SIGXFSZ). For programs,
/// first in main.
void get_errors_for_file_sizes();

/// Bytes that may be written to the file system that a path is on; largest int64 where it doesn't
/// say.
std::int64_t free_bytes(const std::string& path);

/// Memory that files are read to and written from without a copy by the system: it begins at a
/// multiple of `alignment`, and so should offsets and byte counts.
class TransferBuffer {
 public:
  static constexpr std::int64_t alignment = 4096;

  explicit TransferBuffer(std::int64_t bytes);
  char* data() const { return data_.get(); }
  std::int64_t bytes() const { return bytes_; }

  /// The multiple of `alignment` that `offset` is, or that is before it.
  static std::int64_t round_down(std::int64_t offset) { return offset / alignment * alignment; }
  static std::int64_t round_up(std::int64_t offset) { return round_down(offset + alignment - 1); }

 private:
  struct Free {
    void operator()(char* data) const;
  };
  std::unique_ptr<char, Free> data_;
  std::int64_t bytes_;
};

/// An open file, read and written at any place, by any thread. Methods throw Error, naming the
/// path.
class PlainFile {
 public:
  enum class Mode {
    read,   ///< of a plain file: folders, devices, pipes and Git LFS pointers are refused
    write,  ///< read too; made if it is not there, what is in it stays
    create  ///< as write, emptied
  };
  PlainFile(const std::string& path, Mode mode);
  PlainFile(PlainFile&& other) noexcept;
  PlainFile& operator=(PlainFile&&) = delete;
  ~PlainFile();

  const std::string& path() const { return path_; }
  std::int64_t size() const;
  /// Whether reading finds the end there: some systems report an older size for a while.
  bool ends_at(std::int64_t bytes) const;

  /// From now on what is aligned as TransferBuffer says passes between memory and disk without a
  /// copy in the system's memory, where the file system can do so: large files are transferred
  /// faster, and evict nothing from that memory. One thread at a time may use the file then.
  void prefer_direct() { wants_direct_ = true; }
  /// All `bytes` bytes, however many calls that takes. `read` throws where the file ends before.
  void read(std::int64_t offset, std::int64_t bytes, void* data) const;
  /// The same, or as many of them as there are before the end of the file. Returns their number.
  std::int64_t read_up_to(std::int64_t offset, std::int64_t bytes, void* data) const;
  /// Bytes as of `read`, somewhere in `buffer`, which has space for them and twice the alignment
  /// more: read with what is around them, so that it may be direct.
  const char* read_aligned(std::int64_t offset, std::int64_t bytes,
                           const TransferBuffer& buffer) const;
  void write(std::int64_t offset, std::int64_t bytes, const void* data);
  void resize(std::int64_t bytes);
  /// Asks the system to begin with writing these bytes to disk, without waiting for it.
  void begin_sync(std::int64_t offset, std::int64_t bytes);
  void sync();
  /// Asks the system to drop its cached copy of what is on disk already, so that it is read from
  /// there.
  void drop_cache(std::int64_t offset, std::int64_t bytes);
  /// Throws where the system could not write all of it.
  void close();

 private:
  bool go_direct(std::int64_t offset, std::int64_t bytes, const void* data) const;

  std::string path_;
  int descriptor_ = -1;
  mutable bool wants_direct_ = false, is_direct_ = false;
};

}  // namespace ostrakon
