// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/huggingface_tokenizer.hpp>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/base/text.hpp>
#include <ostrakon/checkpoint/input_file.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <vector>

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* tokenizer_files[] = {"tokenizer.json", "tokenizer.model", "vocab.json"};

constexpr const char* companions[] = {
    "tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "tokenizer.model",       "vocab.json",
    "merges.txt",        "chat_template.jinja",   "generation_config.json"};

constexpr std::int64_t any_size = std::numeric_limits<std::int64_t>::max();

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

CopiedFiles copy_huggingface_companions(const std::string& from, const std::string& to,
                                        const std::string& tokenizer) {
  CopiedFiles copied;
  if (!is_folder(from)) {
    copied.note = text("the weights came from '", from,
                       "', which is not there: copy the files of its tokenizer yourself");
    return copied;
  }
  const std::string theirs = huggingface_tokenizer(from);
  if (!theirs.empty() && theirs != tokenizer) {
    copied.note = text("the tokenizer of the weights is ", tokenizer, ", that of '", from, "' is ",
                       theirs, ": its files are not copied");
    return copied;
  }
  for (const char* const name : companions) {
    const std::string file = (fs::path(from) / name).string();
    if (!is_plain_file(file)) continue;
    write_text_file((fs::path(to) / name).string(), name, read_plain_file(file, name, any_size));
    copied.names.emplace_back(name);
  }
  return copied;
}

}  // namespace ostrakon::checkpoint
