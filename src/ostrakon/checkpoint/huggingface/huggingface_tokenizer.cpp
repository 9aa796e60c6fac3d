// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/huggingface_tokenizer.hpp>

#include <algorithm>
#include <filesystem>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <vector>

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* tokenizer_files[] = {"tokenizer.json", "tokenizer.model", "vocab.json"};

std::string checksum_of(const std::string& path) {
  constexpr std::int64_t block_bytes = 1 << 20;
  const PlainFile file(path, PlainFile::Mode::read);
  hdf5::Checksum checksum;
  std::vector<char> block(block_bytes);
  for (std::int64_t at = 0, got = block_bytes; got == block_bytes; at += got) {
    got = file.read_up_to(at, block_bytes, block.data());
    checksum.add(block.data(), got);
  }
  return checksum.hex();
}

}  // namespace

bool is_huggingface_tokenizer(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return std::find(std::begin(tokenizer_files), std::end(tokenizer_files), name) !=
             std::end(tokenizer_files) &&
         is_plain_file(path);
}

std::string huggingface_tokenizer(const std::string& path) {
  if (is_huggingface_tokenizer(path))
    return fs::path(path).filename().string() + "-" + checksum_of(path);
  const std::string folder = is_folder(path) ? path : parent_folder(path);
  for (const char* const name : tokenizer_files) {
    const std::string file = (fs::path(folder) / name).string();
    if (is_huggingface_tokenizer(file)) return name + ("-" + checksum_of(file));
  }
  return "";
}

}  // namespace ostrakon::checkpoint
