// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/random.hpp>

namespace ostrakon::data {

/// 64 random bits, a function of a key and two counters.
inline std::uint64_t random_integer(std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  const math::RandomBits bits = math::philox(key, low, high);
  return std::uint64_t{bits.word[0]} | std::uint64_t{bits.word[1]} << 32;
}

/// A random number in [0, 1), uniform, a function of a key and two counters.
inline double random_unit(std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  return static_cast<double>(random_integer(key, low, high) >> 11) * 0x1p-53;
}

}  // namespace ostrakon::data
