// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/input_file.hpp>

#include <cerrno>
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>

namespace ostrakon::checkpoint {

std::int64_t plain_file_size(const std::string& path, const std::string& kind) {
  require_plain_file(path, kind);
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(path, failure);
  require(!failure, "can't read ", kind, " '", path, "': ", failure.message());
  return static_cast<std::int64_t>(size);
}

std::string read_plain_file(const std::string& path, const std::string& kind,
                            std::int64_t most_bytes) {
  const std::int64_t size = plain_file_size(path, kind);
  require(size <= most_bytes, kind, " '", path, "' has ", size, " bytes; expected at most ",
          most_bytes);
  std::string content(static_cast<std::size_t>(size), '\0');
  PlainFile(path, PlainFile::Mode::read).read(0, size, content.data());
  return content;
}

void require_length(const PlainFile& file, std::int64_t bytes) {
  require(file.ends_at(bytes), "can't read '", file.path(), "': the system says that it has ",
          bytes, " bytes, but reading finds another end");
}

}  // namespace ostrakon::checkpoint
