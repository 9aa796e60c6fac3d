// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>
#include <string>
#include <vector>

// The header of a safetensors file. Only safetensors*.cpp include this file.

namespace ostrakon::checkpoint::safetensors {

constexpr const char* kind = "safetensors file";  ///< for messages
constexpr const char* metadata_key = "__metadata__";
constexpr std::int64_t length_bytes = 8;                 ///< size of the header's length
constexpr std::int64_t most_header_bytes = 100'000'000;  ///< as in the format's own library

struct Header {
  std::map<std::string, SafetensorsTensor> tensors;  ///< all in file number 0
  std::map<std::string, std::string> metadata;
};

/// Reads the header of `file`, which has `size` bytes. Everything is checked: JSON with the
/// format's keys, sizes that match dtypes and shapes, and contiguous tensors up to the file's end.
/// Throws Error that names the file, by `path`, and the tensor.
Header read_header(const PlainFile& file, const std::string& path, std::int64_t size);

/// Returns the bytes of a tensor. Throws Error, beginning with `where`, for a dtype that is not in
/// the format, a shape that is too large, or a size that is not a whole number of bytes.
std::int64_t bytes_of(const std::string& where, const std::string& dtype_name,
                      const std::vector<std::int64_t>& shape);

}  // namespace ostrakon::checkpoint::safetensors
