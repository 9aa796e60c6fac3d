// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/files/writer_lock.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/files/lock_file.hpp>
#include <system_error>
#include <utility>

namespace ostrakon {

WriterLock::WriterLock(const std::string& path) : path_(path) {
  constexpr int attempts = 100;  // each attempt fails only if another process ends at that moment
  try {
    for (int i = 0; i < attempts; ++i)
      if (attempt()) return;
    throw Error(text("'", path_, "' is being written by other processes"));
  } catch (...) {
    if (descriptor_ >= 0) ::close(descriptor_);
    throw;
  }
}

WriterLock::WriterLock(WriterLock&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

WriterLock::~WriterLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

/// Opens and locks the file; returns false if it was renamed or removed before it was locked.
bool WriterLock::attempt() {
  if (descriptor_ >= 0) ::close(descriptor_);
  do descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  while (descriptor_ < 0 && errno == EINTR);
  require(descriptor_ >= 0, "can't write '", path_, "': ", system_error());
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  require(known, "can't look at '", path_, "': ", system_error());
  if (!S_ISREG(status.st_mode)) return true;
  const int error = lock_in_kernel(descriptor_);
  require(!is_refusal(error), "'", path_, "' is being written by another process");
  require(error == 0 || has_no_locks(error), "can't lock '", path_,
          "': ", std::generic_category().message(error));
  return is_file_of(path_, descriptor_);
}

void WriterLock::require_name() const {
  struct stat opened {
  }, named{};
  const bool known =
      ::fstat(descriptor_, &opened) == 0 && (::stat(path_.c_str(), &named) == 0 || errno == ENOENT);
  require(known, "can't look at '", path_, "': ", system_error());
  require(opened.st_dev == named.st_dev && opened.st_ino == named.st_ino, "'", path_,
          "' was removed or replaced by another process");
}

void WriterLock::remove() const {
  try {
    if (is_file_of(path_, descriptor_)) ::unlink(path_.c_str());
  } catch (const Error&) {
    // The file stays; the next writer of that name empties it.
  }
}

}  // namespace ostrakon
