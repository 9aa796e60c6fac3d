// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/files/file_type.hpp>

#include <sys/stat.h>

#include <cerrno>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <system_error>

namespace ostrakon {
namespace {

using std::filesystem::file_type;

file_type known(const std::filesystem::file_status& status, const std::string& path,
                const std::error_code& problem) {
  require(status.type() != file_type::none, "can't look at '", path, "': ", problem.message());
  return status.type();
}

/// Returns false if the path does not exist, or is a broken link.
bool find(const std::string& path, struct stat& found) {
  const int status = ::stat(path.c_str(), &found);
  if (status != 0 && (errno == ENOENT || errno == ENOTDIR)) return false;
  require(status == 0, "can't look at '", path, "': ", system_error());
  return true;
}

}  // namespace

file_type type_of(const std::string& path) {
  std::error_code problem;
  return known(std::filesystem::status(path, problem), path, problem);
}

file_type type_of_name(const std::string& path) {
  std::error_code problem;
  return known(std::filesystem::symlink_status(path, problem), path, problem);
}

bool is_folder(const std::string& path) { return type_of(path) == file_type::directory; }
bool is_plain_file(const std::string& path) { return type_of(path) == file_type::regular; }

bool is_there(const std::string& path) { return type_of(path) != file_type::not_found; }

std::string broken_link(const std::string& path) {
  std::string named = without_slashes(path);
  while (type_of_name(named) == file_type::not_found && parent_folder(named) != named)
    named = parent_folder(named);
  if (is_there(named)) return "";
  return text("'", named,
              "' is a link whose target does not exist, or is not mounted on this host");
}

bool are_same(const std::string& a, const std::string& b) {
  struct stat of_a = {}, of_b = {};
  return find(a, of_a) && find(b, of_b) && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

void require_plain_file(const std::string& path, const std::string& kind) {
  const file_type type = type_of(path);
  if (type == file_type::not_found) {
    const std::string broken = broken_link(path);
    throw Error(broken.empty() ? text(kind, " '", path, "' does not exist") : broken);
  }
  require(type != file_type::directory, "'", path, "' is a folder; expected a ", kind);
  require(type == file_type::regular, "'", path, "' is not a plain file; expected a ", kind);
}

}  // namespace ostrakon
