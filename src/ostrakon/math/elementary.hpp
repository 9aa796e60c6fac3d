// SPDX-License-Identifier: Apache-2.0
#pragma once

// Elementary functions for inner loops. They have no calls or branches, so that every compiler
// vectorises them, and their bits do not depend on the C library.

#include <cstring>
#include <ostrakon/math/portability.hpp>

namespace ostrakon::math {

/// Returns e^x within 2 units in the last place; underflows through the subnormals to 0, overflows
/// to infinity, NaN gives NaN. x = n ln 2 + r with an integer n (ln 2 in two parts, after Cody &
/// Waite 1980), e^x = 2^n e^r with a minimax polynomial for e^r on |r| <= ln(2) / 2.
KOKKOS_INLINE_FUNCTION float fast_exp(float x) {
  // Beyond these limits the result is 0 or infinity. The comparisons keep NaN.
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;

  // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
  constexpr float shifter = 12582912.0f;
  constexpr std::uint32_t shifter_bits = 0x4B400000u;
  const float shifted = x * 1.44269504f + shifter;
  const float whole = shifted - shifter;
  std::uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  const std::int32_t n = static_cast<std::int32_t>(bits - shifter_bits);

  // The high part of ln 2 has 9 bits, so its product with `whole` is exact.
  const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  float q = 0x1.6a23ccp-10f;
  q = q * r + 0x1.123a20p-7f;
  q = q * r + 0x1.5558f2p-5f;
  q = q * r + 0x1.555492p-3f;
  q = q * r + 0x1.fffffcp-2f;
  const float power = (q * (r * r) + r) + 1.0f;

  // 2^n is made of two factors, as 2^-150 and 2^128 are not normal numbers.
  const std::int32_t half = n >> 1;
  const std::uint32_t low_bits = static_cast<std::uint32_t>(half + 127) << 23;
  const std::uint32_t high_bits = static_cast<std::uint32_t>(n - half + 127) << 23;
  float low;
  float high;
  std::memcpy(&low, &low_bits, sizeof low);
  std::memcpy(&high, &high_bits, sizeof high);
  return power * low * high;
}

/// Double uses the C library's function, as its speed matters less.
KOKKOS_INLINE_FUNCTION double fast_exp(double x) { return exp(x); }

/// Returns 1 / (1 + e^-x) within 3 units in the last place; 0 below -88; NaN gives NaN. If the
/// result is subnormal, e^-x may be infinite: so fast_exp's method is used with a single factor
/// 2^n, which is 0 or infinity at the ends.
KOKKOS_INLINE_FUNCTION float fast_sigmoid(float x) {
  float y = -x;
  y = y < -88.0f ? -88.0f : y;
  y = y > 89.0f ? 89.0f : y;
  // The exponent's bias is included: n + 127 is in the low bits.
  constexpr float shifter = 12582912.0f + 127.0f;
  const float shifted = y * 1.44269504f + shifter;
  const float whole = shifted - shifter;
  std::uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits <<= 23;
  float factor;
  std::memcpy(&factor, &bits, sizeof factor);
  const float r = (y - whole * 0.693359375f) + whole * 2.12194440e-4f;
  float q = 0x1.6a23ccp-10f;
  q = q * r + 0x1.123a20p-7f;
  q = q * r + 0x1.5558f2p-5f;
  q = q * r + 0x1.555492p-3f;
  q = q * r + 0x1.fffffcp-2f;
  return 1.0f / (1.0f + ((q * (r * r) + r) + 1.0f) * factor);
}
KOKKOS_INLINE_FUNCTION double fast_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

}  // namespace ostrakon::math
