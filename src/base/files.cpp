// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files.hpp>

namespace ostrakon {
namespace {

void sync_to_disk(const std::string& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags);
  require(descriptor >= 0, "can't open '", path, "' to sync it: ", system_error());
  const bool synced = ::fsync(descriptor) == 0 || errno == EINVAL;  // some file systems can't
  const std::string reason = system_error();
  ::close(descriptor);
  require(synced, "can't write '", path, "' to disk: ", reason);
}

}  // namespace

std::string system_error() { return std::strerror(errno); }

std::string parent_folder(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

void sync_file(const std::string& path) { sync_to_disk(path, O_RDONLY); }

void sync_folder(const std::string& path) { sync_to_disk(path, O_RDONLY | O_DIRECTORY); }

void rename_file(const std::string& from, const std::string& to) {
  const bool renamed = std::rename(from.c_str(), to.c_str()) == 0;
  require(renamed, "can't rename '", from, "' to '", to, "': ", system_error());
  sync_folder(parent_folder(to));
}

}  // namespace ostrakon
