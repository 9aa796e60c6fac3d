// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/file_type.hpp>
#include <system_error>

namespace ostrakon {
namespace {

using std::filesystem::file_type;

file_type known(const std::filesystem::file_status& status, const std::string& path,
                const std::error_code& problem) {
  require(status.type() != file_type::none, "can't look at '", path, "': ", problem.message());
  return status.type();
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

void require_plain_file(const std::string& path, const std::string& kind) {
  const file_type type = type_of(path);
  require(type != file_type::not_found, kind, " '", path, "' does not exist");
  require(type != file_type::directory, "'", path, "' is a folder; expected a ", kind);
  require(type == file_type::regular, "'", path, "' is not a plain file; expected a ", kind);
}

}  // namespace ostrakon
