// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/file_type.hpp>
#include <ostrakon/base/files.hpp>
#include <ostrakon/checkpoint/input_file.hpp>

namespace ostrakon::checkpoint {

std::int64_t require_plain_file(const std::string& path, const std::string& kind) {
  using std::filesystem::file_type;
  const file_type type = type_of(path);
  require(type != file_type::not_found, kind, " '", path, "' does not exist");
  require(type != file_type::directory, "'", path, "' is a folder; expected a ", kind);
  require(type == file_type::regular, "'", path, "' is not a plain file; expected a ", kind);
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(path, failure);
  require(!failure, "can't read ", kind, " '", path, "': ", failure.message());
  return static_cast<std::int64_t>(size);
}

std::ifstream open_to_read(const std::string& path, const std::string& kind) {
  std::ifstream stream(path, std::ios::binary);
  require(stream.is_open(), "can't open ", kind, " '", path, "': ", system_error());
  return stream;
}

void read_bytes(std::ifstream& stream, const std::string& path, std::int64_t begin,
                std::int64_t bytes, void* out) {
  stream.clear();
  errno = 0;
  stream.seekg(begin);
  stream.read(static_cast<char*>(out), bytes);
  require(stream.good() && stream.gcount() == bytes, "can't read bytes ", begin, " to ",
          begin + bytes, " of '", path, "': ", errno == 0 ? "it ends before them" : system_error());
}

void require_length(const PlainFile& file, std::int64_t bytes) {
  require(file.ends_at(bytes), "can't read '", file.path(), "': the system says that it has ",
          bytes, " bytes, but reading finds another end");
}

}  // namespace ostrakon::checkpoint
