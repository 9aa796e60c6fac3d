// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files.hpp>
#include <ostrakon/checkpoint/input_file.hpp>

namespace ostrakon::checkpoint {

std::int64_t require_plain_file(const std::string& path, const std::string& kind) {
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  require(std::filesystem::exists(status), kind, " '", path, "' does not exist");
  require(!std::filesystem::is_directory(status), "'", path, "' is a folder; expected a ", kind);
  require(std::filesystem::is_regular_file(status), "'", path, "' is not a plain file; expected a ",
          kind);
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
  stream.seekg(begin);
  stream.read(static_cast<char*>(out), bytes);
  require(stream.good() && stream.gcount() == bytes, "can't read bytes ", begin, " to ",
          begin + bytes, " of '", path, "': it ends before them, or the disk fails");
}

}  // namespace ostrakon::checkpoint
