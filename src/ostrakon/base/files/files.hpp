// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace ostrakon {

/// The system's message for its last call that failed.
std::string system_error();

/// The folder that contains `path`; "." if the path names none.
std::string parent_folder(const std::string& path);

/// Removes trailing slashes: "a/b//" becomes "a/b"; "/" stays.
std::string without_slashes(std::string path);

/// Whether no file has that name; false if the system can't tell.
bool is_missing(const std::string& path);

/// Syncs a folder, so that the names in it have reached the disk. Throws Error.
void sync_folder(const std::string& path);

/// Renames the file `from` to `to`, replacing any file of that name, and syncs the folder, so that
/// the new name survives a crash. Throws Error.
void rename_file(const std::string& from, const std::string& to);

/// Makes writes beyond the process' file size limit (ulimit -f) ordinary errors; they would end the
/// process by SIGXFSZ. Programs call it first in main.
void ignore_sigxfsz();

/// Free bytes of the file system that a path is on; the largest int64 if the system doesn't tell.
std::int64_t free_bytes(const std::string& path);

/// A buffer for direct I/O: it begins at a multiple of `alignment`, and file offsets and byte
/// counts should be such multiples, too.
class DirectIoBuffer {
 public:
  static constexpr std::int64_t alignment = 4096;

  explicit DirectIoBuffer(std::int64_t bytes);
  char* data() const { return data_.get(); }
  std::int64_t bytes() const { return bytes_; }

  /// Returns the largest multiple of `alignment` that is not above `offset`.
  static std::int64_t round_down(std::int64_t offset) { return offset / alignment * alignment; }
  static std::int64_t round_up(std::int64_t offset) { return round_down(offset + alignment - 1); }

 private:
  struct Free {
    void operator()(char* data) const;
  };
  std::unique_ptr<char, Free> data_;
  std::int64_t bytes_;
};

/// An open file for reads and writes at any offset, from any thread. Methods throw Error, naming
/// the path.
class PlainFile {
 public:
  enum class Mode {
    read,   ///< opens a plain file; refuses folders, devices, pipes and Git LFS pointers
    write,  ///< opens for reading and writing; creates the file if it is missing, keeps its content
    create  ///< as write, but empties the file
  };
  PlainFile(const std::string& path, Mode mode);
  PlainFile(PlainFile&& other) noexcept;
  PlainFile& operator=(PlainFile&&) = delete;
  ~PlainFile();

  const std::string& path() const { return path_; }
  std::int64_t size() const;
  /// Whether reading finds the end of the file there: some systems report an older size for a
  /// while.
  bool ends_at(std::int64_t bytes) const;

  /// Uses direct I/O from now on, where the file system can and offsets, sizes and memory are
  /// aligned as DirectIoBuffer says: large transfers are faster, and do not evict others from the
  /// page cache. Only one thread at a time may use the file afterwards.
  void prefer_direct() { wants_direct_ = true; }
  /// Reads exactly `bytes` bytes, in as many system calls as needed; throws if the file ends
  /// before.
  void read(std::int64_t offset, std::int64_t bytes, void* data) const;
  /// Reads up to `bytes` bytes, fewer at the end of the file. Returns their number.
  std::int64_t read_up_to(std::int64_t offset, std::int64_t bytes, void* data) const;
  /// Reads as `read` does, and returns where in `buffer` the bytes are. `buffer` must have space
  /// for them and twice the alignment: the range is widened to aligned offsets, so that the read
  /// can be direct.
  const char* read_aligned(std::int64_t offset, std::int64_t bytes,
                           const DirectIoBuffer& buffer) const;
  void write(std::int64_t offset, std::int64_t bytes, const void* data);
  void resize(std::int64_t bytes);
  /// Asks the system to begin writing these bytes to disk, without waiting.
  void begin_sync(std::int64_t offset, std::int64_t bytes);
  void sync();
  /// Asks the system to drop bytes that are on disk from its page cache, so that they are read from
  /// the disk next.
  void drop_cache(std::int64_t offset, std::int64_t bytes);
  /// Throws if the system could not write all bytes.
  void close();

 private:
  bool go_direct(std::int64_t offset, std::int64_t bytes, const void* data) const;

  std::string path_;
  int descriptor_ = -1;
  mutable bool wants_direct_ = false, is_direct_ = false;
};

}  // namespace ostrakon
