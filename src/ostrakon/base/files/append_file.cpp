// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/files/append_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <utility>

namespace ostrakon {

AppendFile::AppendFile(const std::string& path) : path_(path) {
  do descriptor_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  while (descriptor_ < 0 && errno == EINTR);
  require(descriptor_ >= 0, "can't write '", path, "': ", system_error());
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

/// Writes `bytes` and returns how many of them the system took.
std::size_t AppendFile::put(const std::string& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t taken = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
    if (taken < 0 && errno == EINTR) continue;
    if (taken <= 0) {
      failure_ = text("can't write '", path_,
                      "': ", taken < 0 ? system_error() : "the system takes no more");
      break;
    }
    done += static_cast<std::size_t>(taken);
  }
  return done;
}

void AppendFile::complete() {
  rest_.erase(0, put(rest_));
  require(rest_.empty(), failure_);
}

/// Removes the last `bytes` bytes of the file; returns false if the system fails to.
bool AppendFile::cut_off(std::size_t bytes) {
  struct stat status {};
  return ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode) &&
         status.st_size >= static_cast<off_t>(bytes) &&
         ::ftruncate(descriptor_, status.st_size - static_cast<off_t>(bytes)) == 0;
}

void AppendFile::append(const std::string& bytes) {
  complete();
  const std::size_t done = put(bytes);
  if (done == bytes.size()) return;
  require(done > 0 && !cut_off(done), failure_);
  rest_ = bytes.substr(done);
}

// Network file systems may report only now that there was no space.
void AppendFile::close() {
  if (descriptor_ < 0) return;
  complete();
  int failed = 0;
  do failed = ::fsync(descriptor_);
  while (failed != 0 && errno == EINTR);
  require(failed == 0 || errno == EINVAL,  // pipes and some file systems can't sync
          "can't write '", path_, "' to disk: ", system_error());
  const bool closed = ::close(std::exchange(descriptor_, -1)) == 0 || errno == EINTR;
  require(closed, "can't write '", path_, "': ", system_error());
}

}  // namespace ostrakon
