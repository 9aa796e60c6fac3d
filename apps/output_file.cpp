// SPDX-License-Identifier: Apache-2.0
#include "output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/input.hpp>
#include <ostrakon/base/format.hpp>

namespace ostrakon::apps {

void require_output(const std::string& option, const std::string& path) {
  require_expanded(text(option, " is ", shown(path)), path);
}

void require_reader(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  require(descriptor >= 0 || errno != ENXIO, path, ": is a pipe without a reader");
  if (descriptor >= 0) ::close(descriptor);
}

void require_free_name(const std::string& path, bool overwrite) {
  const std::filesystem::file_type type = type_of_name(path);
  if (type == std::filesystem::file_type::not_found) return;
  require(!is_there(path) || !is_folder(path), "'", path,
          "' is a folder; expected a new name or, with --overwrite, a file");
  require(overwrite, "'", path, "' is there already; expected a new name, or --overwrite to ",
          "replace it");
}

}  // namespace ostrakon::apps
