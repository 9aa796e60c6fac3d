// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/files/lock_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>

namespace ostrakon {

LockText read_lock_text(const std::string& path) {
  LockText found;
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) {
    found.error = errno;
    return found;
  }
  found.text.resize(4096);
  const ssize_t bytes = pread(descriptor, found.text.data(), found.text.size(), 0);
  if (bytes < 0) found.error = errno;
  close(descriptor);
  found.text.resize(bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
  return found;
}

int lock_in_kernel(int descriptor) {
  struct flock all {};
  all.l_type = F_WRLCK;
  all.l_whence = SEEK_SET;
  return fcntl(descriptor, F_OFD_SETLK, &all) == 0 ? 0 : errno;
}

bool is_refusal(int error) { return error == EAGAIN || error == EACCES; }

bool has_no_locks(int error) {
  return error == ENOLCK || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL;
}

bool is_removed(int error) { return error == ENOENT || error == ESTALE; }

bool is_file_of(const std::string& path, int descriptor) {
  struct stat opened {
  }, named{};
  if (fstat(descriptor, &opened) == 0 && stat(path.c_str(), &named) == 0)
    return opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
  require(is_removed(errno), path, " can't be looked at: ", system_error());
  return false;
}

}  // namespace ostrakon
