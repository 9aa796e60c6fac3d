// SPDX-License-Identifier: Apache-2.0
#pragma once

// Elementary functions for inner loops. They have no calls or branches, so that every compiler
// vectorises them, and their bits do not depend on the C library.

#include <cstring>
#include <ostrakon/math/portability.hpp>

namespace ostrakon::math {

/// Returns e^r for x = n ln 2 + r, |r| <= ln(2) / 2, by a minimax polynomial; `whole` is n. ln 2
/// has two parts (Cody & Waite 1980): the high one has 9 bits, so its product with n is exact.
KOKKOS_INLINE_FUNCTION float exp_of_rest(float x, float whole) {
  const float r = multiply_add(whole, 2.12194440e-4f, multiply_add(whole, -0.693359375f, x));
  float q = 0x1.6a23ccp-10f;
  q = multiply_add(q, r, 0x1.123a20p-7f);
  q = multiply_add(q, r, 0x1.5558f2p-5f);
  q = multiply_add(q, r, 0x1.555492p-3f);
  q = multiply_add(q, r, 0x1.fffffcp-2f);
  return multiply_add(q, r * r, r) + 1.0f;
}

/// Returns e^x within 2 units in the last place; underflows through the subnormals to 0, overflows
/// to infinity, NaN gives NaN. e^x = 2^n e^r with an integer n.
KOKKOS_INLINE_FUNCTION float fast_exp(float x) {
  // Beyond these limits the result is 0 or infinity. The comparisons keep NaN.
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;

  // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
  constexpr float shifter = 12582912.0f;
  constexpr std::uint32_t shifter_bits = 0x4B400000u;
  const float shifted = multiply_add(x, 1.44269504f, shifter);
  std::uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  const std::int32_t n = static_cast<std::int32_t>(bits - shifter_bits);

  // 2^n is made of two factors, as 2^-150 and 2^128 are not normal numbers.
  const std::int32_t half = n >> 1;
  const std::uint32_t low_bits = static_cast<std::uint32_t>(half + 127) << 23;
  const std::uint32_t high_bits = static_cast<std::uint32_t>(n - half + 127) << 23;
  float low;
  float high;
  std::memcpy(&low, &low_bits, sizeof low);
  std::memcpy(&high, &high_bits, sizeof high);
  return exp_of_rest(x, shifted - shifter) * low * high;
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
  const float shifted = multiply_add(y, 1.44269504f, shifter);
  std::uint32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits <<= 23;
  float factor;
  std::memcpy(&factor, &bits, sizeof factor);
  return 1.0f / multiply_add(exp_of_rest(y, shifted - shifter), factor, 1.0f);
}
KOKKOS_INLINE_FUNCTION double fast_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

}  // namespace ostrakon::math
