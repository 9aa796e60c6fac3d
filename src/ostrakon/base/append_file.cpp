// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/append_file.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files.hpp>
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

void AppendFile::append(const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t put = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
    if (put < 0 && errno == EINTR) continue;
    require(put >= 0, "can't write '", path_, "': ", system_error());
    require(put > 0, "can't write '", path_, "': the system takes no more");
    done += static_cast<std::size_t>(put);
  }
}

// Network file systems may report only now that there was no space.
void AppendFile::close() {
  if (descriptor_ < 0) return;
  int failed = 0;
  do failed = ::fsync(descriptor_);
  while (failed != 0 && errno == EINTR);
  require(failed == 0 || errno == EINVAL,  // pipes and some file systems can't
          "can't write '", path_, "' to disk: ", system_error());
  const bool closed = ::close(std::exchange(descriptor_, -1)) == 0 || errno == EINTR;
  require(closed, "can't write '", path_, "': ", system_error());
}

}  // namespace ostrakon
