// SPDX-License-Identifier: Apache-2.0
#pragma once

// Elements of messages of the fake NCCL: sums in 16 and 32 bits.

#include <fake_device/nccl.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

inline std::size_t size_of(ncclDataType_t type) {
  return type == ncclFloat32 ? 4 : type == ncclInt8 ? 1 : 2;
}

inline float float_of(std::uint16_t bits, ncclDataType_t type) {
  if (type == ncclBfloat16) {
    const std::uint32_t whole = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &whole, sizeof value);
    return value;
  }
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                      : exponent == 0 ? std::ldexp(fraction, -24)
                                      : std::ldexp(fraction + 1024, exponent - 25);
  return static_cast<float>((bits & 0x8000) != 0 ? -size : size);
}

/// Rounds to nearest, ties to even.
inline std::uint16_t bits_of(float value, ncclDataType_t type) {
  std::uint32_t whole = 0;
  std::memcpy(&whole, &value, sizeof whole);
  if (type == ncclBfloat16)
    return static_cast<std::uint16_t>(
        (std::isnan(value) ? whole | 0x400000U : whole + 0x7FFFU + (whole >> 16 & 1U)) >> 16);
  const std::uint32_t sign = whole >> 16 & 0x8000U;
  const double size = std::fabs(static_cast<double>(value));
  std::uint32_t bits = 0x7C00U;
  if (std::isnan(value)) {
    bits = 0x7E00U;
  } else if (size < 65520.0) {
    const int exponent = size < 0x1p-14 ? -14 : std::ilogb(size);
    // This is also right if it rounds up to the next power of two.
    bits = static_cast<std::uint32_t>(exponent + 14) * 1024U +
           static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  }
  return static_cast<std::uint16_t>(sign | bits);
}

/// a += b, for one element.
inline void add_to(char* a, const char* b, ncclDataType_t type) {
  if (type == ncclFloat32) {
    float sum, more;
    std::memcpy(&sum, a, sizeof sum);
    std::memcpy(&more, b, sizeof more);
    sum += more;
    std::memcpy(a, &sum, sizeof sum);
    return;
  }
  std::uint16_t sum, more;
  std::memcpy(&sum, a, sizeof sum);
  std::memcpy(&more, b, sizeof more);
  sum = bits_of(float_of(sum, type) + float_of(more, type), type);
  std::memcpy(a, &sum, sizeof sum);
}
