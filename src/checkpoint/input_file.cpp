// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files.hpp>
#include <ostrakon/checkpoint/input_file.hpp>

namespace ostrakon::checkpoint {

std::int64_t require_plain_file(const std::string& path, const std::string& kind) {
  ostrakon::require_plain_file(path, kind);
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(path, failure);
  require(!failure, "can't read ", kind, " '", path, "': ", failure.message());
  return static_cast<std::int64_t>(size);
}

}  // namespace ostrakon::checkpoint
