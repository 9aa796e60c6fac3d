// SPDX-License-Identifier: Apache-2.0
#pragma once

// Elementary functions for inner loops. On hosts they have no calls or branches, so that every
// compiler vectorises them, and their bits do not depend on the C library. NVIDIA's GPUs have
// instructions for powers of two and reciprocals, with which CUDA's own functions take a third of
// the instructions: kernels that memory bounds have few to spare.

#include <cmath>
#include <ostrakon/math/portability.hpp>

namespace ostrakon::math {

/// Returns r of x = n ln 2 + r, |r| <= ln(2) / 2; `whole` is n. ln 2 has two parts (Cody & Waite
/// 1980): the high one has 9 bits, so its product with n is exact.
KOKKOS_INLINE_FUNCTION float rest_of_exponent(float x, float whole) {
  return multiply_add(whole, 2.12194440e-4f, multiply_add(whole, -0.693359375f, x));
}

/// Returns e^r - 1 by a minimax polynomial.
KOKKOS_INLINE_FUNCTION float exp_minus_1_of_rest(float r) {
  float q = 0x1.6a23ccp-10f;
  q = multiply_add(q, r, 0x1.123a20p-7f);
  q = multiply_add(q, r, 0x1.5558f2p-5f);
  q = multiply_add(q, r, 0x1.555492p-3f);
  q = multiply_add(q, r, 0x1.fffffcp-2f);
  return multiply_add(q, r * r, r);
}

/// Returns e^r for x = n ln 2 + r; `whole` is n.
KOKKOS_INLINE_FUNCTION float exp_of_rest(float x, float whole) {
  return exp_minus_1_of_rest(rest_of_exponent(x, whole)) + 1.0f;
}

/// Returns 2^n for `shifted` = 1.5 * 2^23 + 127 + n: n + 127, in the low bits, becomes the
/// exponent. For n = -127 it is 0, for n = 128 infinity.
KOKKOS_INLINE_FUNCTION float power_of_shifted(float shifted) {
  return bits_as<float>(bits_as<std::uint32_t>(shifted) << 23);
}

/// Returns e^x within 2 units in the last place; underflows through the subnormals to 0, overflows
/// to infinity, NaN gives NaN. e^x = 2^n e^r with an integer n.
KOKKOS_INLINE_FUNCTION float fast_exp(float x) {
#if defined(__CUDA_ARCH__)
  return ::expf(x);
#else
  // Beyond these limits the result is 0 or infinity. The comparisons keep NaN.
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;

  // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
  constexpr float shifter = 12582912.0f;
  constexpr std::uint32_t shifter_bits = 0x4B400000u;
  const float shifted = multiply_add(x, 1.44269504f, shifter);
  const std::int32_t n = static_cast<std::int32_t>(bits_as<std::uint32_t>(shifted) - shifter_bits);

  // 2^n is made of two factors, as 2^-150 and 2^128 are not normal numbers.
  const std::int32_t half = n >> 1;
  const std::uint32_t low_bits = static_cast<std::uint32_t>(half + 127) << 23;
  const std::uint32_t high_bits = static_cast<std::uint32_t>(n - half + 127) << 23;
  return exp_of_rest(x, shifted - shifter) * bits_as<float>(low_bits) * bits_as<float>(high_bits);
#endif
}

/// Double uses the C library's function, as its speed matters less.
KOKKOS_INLINE_FUNCTION double fast_exp(double x) { return exp(x); }

/// Returns 1 / (1 + e^-x) within 3 units in the last place; 0 below -88; NaN gives NaN. If the
/// result is subnormal, e^-x may be infinite: so fast_exp's method is used with a single factor
/// 2^n, which is 0 or infinity at the ends.
KOKKOS_INLINE_FUNCTION float fast_sigmoid(float x) {
#if defined(__CUDA_ARCH__)
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1.0f + ::expf(-x)));
  return result;
#else
  float y = -x;
  y = y < -88.0f ? -88.0f : y;
  y = y > 89.0f ? 89.0f : y;
  constexpr float shifter = 12582912.0f + 127.0f;
  const float shifted = multiply_add(y, 1.44269504f, shifter);
  return 1.0f / multiply_add(exp_of_rest(y, shifted - shifter), power_of_shifted(shifted), 1.0f);
#endif
}
KOKKOS_INLINE_FUNCTION double fast_sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

/// Returns tanh(x) within 3 units in the last place; NaN gives NaN. It is -m / (2 + m) for m =
/// e^(-2|x|) - 1, which loses no digits near 0.
KOKKOS_INLINE_FUNCTION float fast_tanh(float x) {
  float y = x < 0.0f ? 2.0f * x : -2.0f * x;
  y = y < -40.0f ? -40.0f : y;  // beyond it the result is 1
  constexpr float shifter = 12582912.0f + 127.0f;
  const float shifted = multiply_add(y, 1.44269504f, shifter);
  const float factor = power_of_shifted(shifted);
  const float m = multiply_add(exp_minus_1_of_rest(rest_of_exponent(y, shifted - shifter)), factor,
                               factor - 1.0f);
  const float result = m / (2.0f + m);
  return x < 0.0f ? result : -result;
}
KOKKOS_INLINE_FUNCTION double fast_tanh(double x) { return std::tanh(x); }

/// The standard normal distribution at x: the integral up to x, Phi(x), and the density.
template <class C>
struct Normal {
  C integral, density;
};

/// Returns both within 8 units in the last place, and 1/2 for Phi(0). Beyond |x| = 13.3, where they
/// are below 1e-38, density and Phi(-|x|) are 0; NaN gives NaN. With a = |x|, Phi(-a) =
/// e^(-a^2 / 2) R(a). R(a) (1 + a / 2.5) is 1/2 plus a polynomial of u = a / (2.5 + a), a change of
/// variable with which Shepherd & Laframboise (1981) approximate erfc. a^2 / 2 is the sum of a
/// product without rounding, of a's 12 high bits, and of a small rest.
KOKKOS_INLINE_FUNCTION Normal<float> fast_normal(float x) {
  float a = x < 0.0f ? -x : x;
  a = a > 16.0f ? 16.0f : a;
  const float high = bits_as<float>(bits_as<std::uint32_t>(a) & 0xFFFFF000u);
  const float low = -0.5f * (a - high) * (a + high);
  float y = -0.5f * high * high;
  y = y < -88.0f ? -88.0f : y;  // there the factor 2^n is 0
  constexpr float shifter = 12582912.0f + 127.0f;
  const float shifted = multiply_add(y, 1.44269504f, shifter);
  const float power = (exp_minus_1_of_rest(rest_of_exponent(y, shifted - shifter) + low) + 1.0f) *
                      power_of_shifted(shifted);
  const float t = 2.5f / (2.5f + a), u = 1.0f - t;
  float p = -0x1.902642p-6f;
  p = multiply_add(p, u, 0x1.58bbbep-4f);
  p = multiply_add(p, u, -0x1.534db4p-4f);
  p = multiply_add(p, u, 0x1.4cdfe0p-6f);
  p = multiply_add(p, u, -0x1.636ba2p-5f);
  p = multiply_add(p, u, 0x1.252a64p-6f);
  p = multiply_add(p, u, 0x1.e0f88ep-4f);
  p = multiply_add(p, u, 0x1.15afa4p-4f);
  p = multiply_add(p, u, -0x1.fd4ad2p-2f);
  p = multiply_add(p, u, 0.5f);
  const float tail = power * (t * p);
  return {x > 0.0f ? 1.0f - tail : tail, power * 0.398942280f};
}
KOKKOS_INLINE_FUNCTION Normal<double> fast_normal(double x) {
  return {0.5 * std::erfc(x * -0.70710678118654752440), 0.39894228040143267794 * exp(-0.5 * x * x)};
}

}  // namespace ostrakon::math
