// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/scratch_folder.hpp"

// Safetensors files with tensors of any dtype, written without the code under test.

namespace ostrakon::test::stored {

using Floats = std::vector<float>;
using Shape = std::vector<std::int64_t>;

/// A tensor as it is stored.
struct Stored {
  std::string name, dtype;
  Shape shape;
  std::string bytes;
};

inline std::int64_t elements_in(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

inline void write_stored(const std::string& path, const std::vector<Stored>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const Stored& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const std::string json = header.dump();
  std::string file;
  for (int i = 0; i < 8; ++i)
    file += static_cast<char>(static_cast<std::uint64_t>(json.size()) >> (8 * i) & 255);
  testing::write_bytes(path, file + json + data);
}

inline float float_at(const Stored& tensor, std::int64_t index) {
  float value = 0.0f;
  std::memcpy(&value, tensor.bytes.data() + 4 * index, sizeof value);
  return value;
}

inline int byte_at(const Stored& tensor, std::int64_t index) {
  return static_cast<unsigned char>(tensor.bytes[static_cast<std::size_t>(index)]);
}

/// E4M3 by its definition, in double.
inline double e4m3(int code) {
  const int exponent = code / 8 % 16, mantissa = code % 8;
  double size = exponent == 0 ? mantissa / 8.0 * std::pow(2.0, -6)
                              : (1 + mantissa / 8.0) * std::pow(2.0, exponent - 7);
  if (exponent == 15 && mantissa == 7) size = std::nan("");
  return code >= 128 ? -size : size;
}

inline constexpr float e2m1[] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

inline std::string random_bytes(std::int64_t count) {
  static std::mt19937 generator(5);
  std::string bytes;
  for (std::int64_t i = 0; i < count; ++i) bytes += static_cast<char>(generator() & 255);
  return bytes;
}

}  // namespace ostrakon::test::stored
