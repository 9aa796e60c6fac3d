// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <ostrakon/base/files.hpp>
#include <ostrakon/checkpoint/safetensors.hpp>
#include <string>
#include <vector>

// The header of a safetensors file. For safetensors*.cpp alone.

namespace ostrakon::checkpoint::safetensors {

constexpr const char* kind = "safetensors file";  ///< for messages
constexpr const char* metadata_key = "__metadata__";
constexpr std::int64_t length_bytes = 8;                 ///< of the header's length
constexpr std::int64_t most_header_bytes = 100'000'000;  ///< that of the format's own library

struct Header {
  std::map<std::string, SafetensorsTensor> tensors;  ///< all in file number 0
  std::map<std::string, std::string> metadata;
};

/// Reads the header of `file`, which has `size` bytes. Nothing in it is believed before all of it
/// was checked: JSON of the format's keys, sizes that fit dtypes and shapes, tensors one after the
/// other to the file's end. Throws Error that names the file, by `path`, and the tensor.
Header read_header(const PlainFile& file, const std::string& path, std::int64_t size);

/// Bytes of a tensor. Throws Error, which begins with `where`, for a dtype that the format has not,
/// and for a shape that is too large, or whose last byte is not full.
std::int64_t bytes_of(const std::string& where, const std::string& dtype_name,
                      const std::vector<std::int64_t>& shape);

}  // namespace ostrakon::checkpoint::safetensors
