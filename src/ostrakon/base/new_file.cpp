// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/new_file.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <vector>

namespace ostrakon {
namespace {

constexpr std::int64_t block_bytes = std::int64_t{1} << 20;

/// Returns the path of the partial file. Throws Error for a folder, which a file can't replace.
std::string partial_of(const std::string& path) {
  require(!is_folder(path), "can't write '", path, "': a folder has that name");
  return path + ".partial";
}

}  // namespace

NewFile::NewFile(const std::string& path)
    : path_(path),
      partial_path_(partial_of(path)),
      lock_(partial_path_),
      file_(partial_path_, PlainFile::Mode::create) {}

NewFile::~NewFile() {
  if (!partial_path_.empty()) lock_.remove();
}

void NewFile::write(const void* data, std::int64_t bytes) {
  const char* const begin = static_cast<const char*>(data);
  checksum_.add(begin, bytes);
  for (std::int64_t at = 0; at < bytes;) {
    const std::int64_t room = block_bytes - static_cast<std::int64_t>(buffer_.size());
    const std::int64_t part = std::min(room, bytes - at);
    buffer_.append(begin + at, static_cast<std::size_t>(part));
    at += part;
    if (part == room) flush();
  }
}

void NewFile::flush() {
  const auto bytes = static_cast<std::int64_t>(buffer_.size());
  file_.write(written_, bytes, buffer_.data());
  written_ += bytes;
  buffer_.clear();
}

void NewFile::verify() const {
  std::vector<char> block(static_cast<std::size_t>(std::min(block_bytes, written_)));
  hdf5::Checksum found;
  for (std::int64_t at = 0; at < written_; at += block_bytes) {
    const std::int64_t bytes = std::min(block_bytes, written_ - at);
    file_.read(at, bytes, block.data());
    found.add(block.data(), bytes);
  }
  require(file_.size() == written_ && found.value() == checksum_.value(), "'", partial_path_,
          "' differs from what was written when it is read back");
}

void NewFile::finish() {
  flush();
  file_.sync();
  file_.drop_cache(0, written_);
  verify();
  file_.close();
  lock_.require_name();
  rename_file(partial_path_, path_);
  partial_path_.clear();
}

void replace_file(const std::string& path, const std::string& bytes) {
  NewFile file(path);
  file.write(bytes.data(), static_cast<std::int64_t>(bytes.size()));
  file.finish();
}

}  // namespace ostrakon
