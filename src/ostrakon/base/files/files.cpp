// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/files/files.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <new>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/lfs_pointer.hpp>
#include <system_error>
#include <utility>

namespace ostrakon {
namespace {

int open_file(const std::string& path, PlainFile::Mode mode) {
  const bool reads = mode == PlainFile::Mode::read;
  // Opening a pipe for reading blocks until there is a writer, unless O_NONBLOCK is set.
  int flags = O_CLOEXEC | (reads ? O_RDONLY | O_NONBLOCK : O_RDWR | O_CREAT);
  if (mode == PlainFile::Mode::create) flags |= O_TRUNC;
  int descriptor = -1;
  do descriptor = ::open(path.c_str(), flags, 0666);
  while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0 && errno == ENOENT) {
    const std::string reason = system_error(), broken = broken_link(path);
    throw Error(text("can't ", reads ? "open" : "write", " '", path,
                     "': ", broken.empty() ? reason : broken));
  }
  require(descriptor >= 0, "can't ", reads ? "open" : "write", " '", path, "': ", system_error());
  return descriptor;
}

struct stat status_of(int descriptor, const std::string& path) {
  struct stat status {};
  const bool known = ::fstat(descriptor, &status) == 0;
  require(known, "can't read '", path, "': ", system_error());
  return status;
}

}  // namespace

std::string system_error() { return std::strerror(errno); }

std::string parent_folder(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

bool is_missing(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::status(path, ignored).type() == std::filesystem::file_type::not_found;
}

void sync_folder(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY);
  require(descriptor >= 0, "can't open '", path, "' to sync it: ", system_error());
  const bool synced = ::fsync(descriptor) == 0 || errno == EINVAL;  // not supported everywhere
  const std::string reason = system_error();
  ::close(descriptor);
  require(synced, "can't write '", path, "' to disk: ", reason);
}

void rename_file(const std::string& from, const std::string& to) {
  const bool renamed = std::rename(from.c_str(), to.c_str()) == 0;
  require(renamed, "can't rename '", from, "' to '", to, "': ", system_error());
  sync_folder(parent_folder(to));
}

void ignore_sigxfsz() { std::signal(SIGXFSZ, SIG_IGN); }

std::int64_t free_bytes(const std::string& path) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0 || status.f_blocks == 0 || status.f_frsize == 0)
    return most;
  const std::uint64_t blocks = status.f_bavail, size = status.f_frsize;
  if (blocks > static_cast<std::uint64_t>(most) / size) return most;
  return static_cast<std::int64_t>(blocks * size);
}

// --- DirectIoBuffer ------------------------------------------------------------------------------

DirectIoBuffer::DirectIoBuffer(std::int64_t bytes)
    : data_(static_cast<char*>(std::aligned_alloc(static_cast<std::size_t>(alignment),
                                                  static_cast<std::size_t>(round_up(bytes))))),
      bytes_(round_up(bytes)) {
  if (!data_) throw std::bad_alloc();
}

void DirectIoBuffer::Free::operator()(char* data) const { std::free(data); }

// --- PlainFile -----------------------------------------------------------------------------------

PlainFile::PlainFile(const std::string& path, Mode mode)
    : path_(path), descriptor_(open_file(path, mode)) {
  if (mode != Mode::read) return;
  try {
    const struct stat status = status_of(descriptor_, path_);
    require(!S_ISDIR(status.st_mode), "can't read '", path_, "': it is a folder");
    require(S_ISREG(status.st_mode), "can't read '", path_, "': it is not a plain file");
    if (status.st_size > static_cast<off_t>(most_lfs_pointer_bytes)) return;
    std::string found(most_lfs_pointer_bytes, '\0');
    found.resize(static_cast<std::size_t>(
        read_up_to(0, static_cast<std::int64_t>(found.size()), found.data())));
    require_no_lfs_pointer(path_, found);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

PlainFile::PlainFile(PlainFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      wants_direct_(other.wants_direct_),
      is_direct_(other.is_direct_) {}

PlainFile::~PlainFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::int64_t PlainFile::size() const { return status_of(descriptor_, path_).st_size; }

bool PlainFile::ends_at(std::int64_t bytes) const {
  char buffer[2];
  const std::int64_t first = bytes > 0 ? bytes - 1 : 0;
  ssize_t got = 0;
  do got = ::pread(descriptor_, buffer, sizeof buffer, first);
  while (got < 0 && errno == EINTR);
  require(got >= 0, "can't read '", path_, "': ", system_error());
  return got == bytes - first;
}

/// Switches direct I/O on if it is wanted and this transfer allows it, else off; returns whether it
/// is on.
bool PlainFile::go_direct(std::int64_t offset, std::int64_t bytes, const void* data) const {
  const auto is_aligned = [](std::int64_t number) {
    return number % DirectIoBuffer::alignment == 0;
  };
  const bool can = wants_direct_ && is_aligned(offset) && is_aligned(bytes) &&
                   is_aligned(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(data)));
  if (can == is_direct_) return can;
  const int flags = ::fcntl(descriptor_, F_GETFL);
  const bool set =
      flags >= 0 && ::fcntl(descriptor_, F_SETFL, can ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
  // Some file systems refuse direct I/O here, others at the first transfer.
  if (!set && can) wants_direct_ = false;
  is_direct_ = can && set;
  return is_direct_;
}

void PlainFile::read(std::int64_t offset, std::int64_t bytes, void* data) const {
  const std::int64_t done = read_up_to(offset, bytes, data);
  require(done == bytes, "'", path_, "' ends at byte ", offset + done, "; expected bytes ", offset,
          " to ", offset + bytes);
}

std::int64_t PlainFile::read_up_to(std::int64_t offset, std::int64_t bytes, void* data) const {
  char* out = static_cast<char*>(data);
  std::int64_t done = 0;
  while (done < bytes) {
    const bool direct = go_direct(offset + done, bytes - done, out + done);
    const ssize_t got =
        ::pread(descriptor_, out + done, static_cast<std::size_t>(bytes - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EINVAL && direct) {
      wants_direct_ = false;
      continue;
    }
    require(got >= 0, "can't read '", path_, "': ", system_error());
    if (got == 0) break;
    done += got;
  }
  return done;
}

const char* PlainFile::read_aligned(std::int64_t offset, std::int64_t bytes,
                                    const DirectIoBuffer& buffer) const {
  const std::int64_t begin = DirectIoBuffer::round_down(offset);
  const std::int64_t end = DirectIoBuffer::round_up(offset + bytes);
  if (end - begin > buffer.bytes()) throw std::logic_error("a transfer buffer is too small");
  // The range is not extended beyond the end of the file.
  const bool has_all = end <= size();
  read(begin, (has_all ? end : offset + bytes) - begin, buffer.data());
  return buffer.data() + (offset - begin);
}

void PlainFile::write(std::int64_t offset, std::int64_t bytes, const void* data) {
  const char* from = static_cast<const char*>(data);
  for (std::int64_t done = 0; done < bytes;) {
    const bool direct = go_direct(offset + done, bytes - done, from + done);
    const ssize_t put =
        ::pwrite(descriptor_, from + done, static_cast<std::size_t>(bytes - done), offset + done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EINVAL && direct) {
      wants_direct_ = false;
      continue;
    }
    require(put >= 0, "can't write '", path_, "': ", system_error());
    require(put > 0, "can't write '", path_, "': the system takes no more");
    done += put;
  }
}

void PlainFile::resize(std::int64_t bytes) {
  int failed = 0;
  do failed = ::ftruncate(descriptor_, bytes);
  while (failed != 0 && errno == EINTR);
  require(failed == 0, "can't give '", path_, "' ", bytes, " bytes: ", system_error());
}

void PlainFile::begin_sync(std::int64_t offset, std::int64_t bytes) {
  // This is only a hint, so errors are ignored: sync() reports them.
  [[maybe_unused]] const int ignored =
      ::sync_file_range(descriptor_, offset, bytes, SYNC_FILE_RANGE_WRITE);
}

void PlainFile::sync() {
  int failed = 0;
  do failed = ::fsync(descriptor_);
  while (failed != 0 && errno == EINTR);
  require(failed == 0 || errno == EINVAL,  // some file systems lack fsync
          "can't write '", path_, "' to disk: ", system_error());
}

void PlainFile::drop_cache(std::int64_t offset, std::int64_t bytes) {
  [[maybe_unused]] const int ignored =
      ::posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_DONTNEED);
}

void PlainFile::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  // A close that a signal interrupts has released the descriptor nevertheless.
  const bool closed = descriptor < 0 || ::close(descriptor) == 0 || errno == EINTR;
  require(closed, "can't write '", path_, "': ", system_error());
}

}  // namespace ostrakon
