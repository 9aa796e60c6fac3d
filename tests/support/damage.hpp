// SPDX-License-Identifier: Apache-2.0
#pragma once

// Changes files by one bit, as a disk or a network may do.

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "scratch_folder.hpp"

namespace ostrakon::testing {

/// Changes a bit of the byte at offset `place` of a file.
inline void damage(const std::string& path, std::size_t place) {
  std::string bytes = read_bytes(path);
  if (place >= bytes.size())
    throw std::runtime_error(path + " has no byte " + std::to_string(place));
  bytes[place] = static_cast<char>(bytes[place] ^ 1);
  write_bytes(path, bytes);
}

/// Changes a bit in the middle of a file, for files without unused bytes.
inline void damage(const std::string& path) { damage(path, read_bytes(path).size() / 2); }

/// Returns the offset of a byte among floating-point values: half of the bytes around it have their
/// highest bit set, unlike in text. HDF5 leaves unused bytes between its objects.
inline std::size_t place_in_values(const std::string& bytes) {
  constexpr std::size_t window = 256;
  for (std::size_t begin = bytes.size() / 2; begin + window < bytes.size(); ++begin) {
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto high = std::count_if(first, first + window, [](char byte) { return byte < 0; });
    if (high >= 96) return begin + window / 2;
  }
  throw std::runtime_error("no values in " + std::to_string(bytes.size()) + " bytes");
}

/// Changes a bit of a value in a weights file or checkpoint.
inline void damage_a_value(const std::string& path) {
  damage(path, place_in_values(read_bytes(path)));
}

}  // namespace ostrakon::testing
