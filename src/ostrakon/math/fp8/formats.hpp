// SPDX-License-Identifier: Apache-2.0
#pragma once

// 8-bit floats, as "OCP 8-bit Floating Point Specification (OFP8)", revision 1.0, defines them.
// Conversions operate on bits, so that hosts and devices agree.

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/kernel_form.hpp>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#include <cuda_fp8.h>
#endif

namespace ostrakon::math {

namespace fp8_bits {

/// Returns the code of |x|, of which `size` are the bits, rounded to nearest, ties to even, with
/// `mantissa` bits and the exponent's `bias`. `largest`: the code of the largest finite number,
/// which greater ones become.
template <int mantissa, int bias, std::uint32_t largest>
KOKKOS_INLINE_FUNCTION std::uint32_t rounded_code(std::uint32_t size) {
  constexpr int dropped = 23 - mantissa;
  constexpr std::uint32_t half = (1u << (dropped - 1)) - 1u;
  constexpr std::uint32_t least_normal = static_cast<std::uint32_t>(128 - bias) << 23;
  // The exponent's bias changes from 127; a carry out of the mantissa correctly increments it.
  const std::uint32_t normal =
      (size - (static_cast<std::uint32_t>(127 - bias) << 23) + half + ((size >> dropped) & 1u)) >>
      dropped;
  // The last bit of this float is the smallest number of the format, so that the sum rounds
  // correctly.
  constexpr std::uint32_t unit = static_cast<std::uint32_t>(128 - bias + dropped) << 23;
  const std::uint32_t subnormal =
      half_bits::of_float(half_bits::to_float(size) + half_bits::to_float(unit)) - unit;
  const std::uint32_t code = size < least_normal ? subnormal : normal;
  return code < largest ? code : largest;
}

KOKKOS_INLINE_FUNCTION std::uint8_t e4m3_of(float x) {
  const std::uint32_t bits = half_bits::of_float(x), size = bits & ~half_bits::float_sign;
  const std::uint32_t code =
      size < half_bits::float_infinity ? rounded_code<3, 7, 0x7E>(size) : 0x7Fu;
  return static_cast<std::uint8_t>(code | (bits >> 24 & 0x80u));
}

KOKKOS_INLINE_FUNCTION std::uint8_t e5m2_of(float x) {
  const std::uint32_t bits = half_bits::of_float(x), size = bits & ~half_bits::float_sign;
  const std::uint32_t code = size < half_bits::float_infinity    ? rounded_code<2, 15, 0x7B>(size)
                             : size == half_bits::float_infinity ? 0x7Cu
                                                                 : 0x7Eu;
  return static_cast<std::uint8_t>(code | (bits >> 24 & 0x80u));
}

KOKKOS_INLINE_FUNCTION float float_of_e4m3(std::uint8_t code) {
  const std::uint32_t size = code & 0x7Fu;
  const std::uint32_t normal = (size << 20) + (120u << 23);
  // 2^-6 + |x|, assembled from bits, minus 2^-6.
  const std::uint32_t subnormal = half_bits::of_float(
      half_bits::to_float((size << 20) + (121u << 23)) - half_bits::to_float(121u << 23));
  std::uint32_t result = size < 0x08u ? subnormal : normal;
  result = size == 0x7Fu ? half_bits::float_infinity | 0x00400000u : result;
  return half_bits::to_float(result | static_cast<std::uint32_t>(code & 0x80u) << 24);
}

/// An e5m2 is the upper half of an fp16.
KOKKOS_INLINE_FUNCTION float float_of_e5m2(std::uint8_t code) {
  return half_bits::float_of_fp16(static_cast<std::uint16_t>(code << 8));
}

}  // namespace fp8_bits

/// 4 bits of exponent, 3 of mantissa: 2^-9 to 448, NaN, no infinity.
struct e4m3 {
  static constexpr Fp8Format format = Fp8Format::e4m3;
  std::uint8_t bits;

  e4m3() = default;
  /// Rounds to nearest, ties to even, also to subnormals; too large becomes 448. Infinity and NaN
  /// become NaN.
  KOKKOS_INLINE_FUNCTION explicit e4m3(float x) : bits(fp8_bits::e4m3_of(x)) {}
  KOKKOS_INLINE_FUNCTION operator float() const { return fp8_bits::float_of_e4m3(bits); }
};

/// 5 bits of exponent, 2 of mantissa: 2^-16 to 57344, infinity and NaN.
struct e5m2 {
  static constexpr Fp8Format format = Fp8Format::e5m2;
  std::uint8_t bits;

  e5m2() = default;
  /// Rounds to nearest, ties to even, also to subnormals; too large becomes 57344. Infinity and NaN
  /// stay so.
  KOKKOS_INLINE_FUNCTION explicit e5m2(float x) : bits(fp8_bits::e5m2_of(x)) {}
  KOKKOS_INLINE_FUNCTION operator float() const { return fp8_bits::float_of_e5m2(bits); }
};

/// Returns the code of x in 8 bits, as the types above round, by one instruction where a device has
/// it: the instruction rounds finite numbers equally.
KOKKOS_INLINE_FUNCTION std::uint8_t fp8_of(Fp8Format format, float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE,
                               format == Fp8Format::e4m3 ? __NV_E4M3 : __NV_E5M2);
#else
  return format == Fp8Format::e4m3 ? fp8_bits::e4m3_of(x) : fp8_bits::e5m2_of(x);
#endif
}
/// Returns the codes of four numbers, the first one in the lowest byte.
KOKKOS_INLINE_FUNCTION std::uint32_t fp8_word_of(Fp8Format format, float a, float b, float c,
                                                 float d) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  const __nv_fp8_interpretation_t kind = format == Fp8Format::e4m3 ? __NV_E4M3 : __NV_E5M2;
  return __nv_cvt_float2_to_fp8x2(float2{a, b}, __NV_SATFINITE, kind) |
         std::uint32_t{__nv_cvt_float2_to_fp8x2(float2{c, d}, __NV_SATFINITE, kind)} << 16;
#else
  return fp8_of(format, a) | std::uint32_t{fp8_of(format, b)} << 8 |
         std::uint32_t{fp8_of(format, c)} << 16 | std::uint32_t{fp8_of(format, d)} << 24;
#endif
}
KOKKOS_INLINE_FUNCTION float float_of_fp8(Fp8Format format, std::uint8_t code) {
  return format == Fp8Format::e4m3 ? fp8_bits::float_of_e4m3(code) : fp8_bits::float_of_e5m2(code);
}

/// Returns x rounded to the format: what float_of_fp8() makes of fp8_of() for finite x.
KOKKOS_INLINE_FUNCTION float rounded_to(Fp8Format format, float x) {
  return float_of_fp8(format, fp8_of(format, x));
}

/// What numbers that share a scale are divided by before they are rounded: the smallest power of
/// two with which none of them exceeds the format's largest number. It changes no bit of their
/// mantissas; 2^-126 at least, as its inverse must be a float. NaN if a number is not finite.
struct Fp8Scale {
  float scale, inverse;

  /// `largest`: the bits of the largest absolute value, as a float's, which are in the order of
  /// these values, with infinity and NaN behind all others.
  KOKKOS_INLINE_FUNCTION Fp8Scale(Fp8Format format, std::uint32_t largest) {
    // The largest number of either format is 1.75 times a power of two.
    constexpr std::uint32_t mantissa = 0x007FFFFFu, of_largest = 0x00600000u;
    const int power = format == Fp8Format::e4m3 ? 8 : 15;
    int exponent = static_cast<int>(largest >> 23) - power + ((largest & mantissa) > of_largest);
    exponent = largest == 0 ? 127 : exponent < 1 ? 1 : exponent;
    const bool is_finite = largest < half_bits::float_infinity;
    const std::uint32_t nan = half_bits::float_infinity | 0x00400000u;
    scale = half_bits::to_float(is_finite ? static_cast<std::uint32_t>(exponent) << 23 : nan);
    inverse =
        half_bits::to_float(is_finite ? static_cast<std::uint32_t>(254 - exponent) << 23 : nan);
  }

  /// Returns the scale in e8m0: its exponent, or 255 for NaN.
  KOKKOS_INLINE_FUNCTION std::uint8_t exponent() const {
    return static_cast<std::uint8_t>(half_bits::of_float(scale) >> 23);
  }
};

}  // namespace ostrakon::math
