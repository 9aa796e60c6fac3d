// SPDX-License-Identifier: Apache-2.0
#pragma once

// 16-bit floats for storage and communication. Kernels convert them to float, compute in float, and
// round once when they store. Conversions on hosts operate on bits and have no branches, so that
// loops over them vectorise, which compilers don't do with _Float16; NVIDIA's GPUs have an
// instruction for each, which gives the same bits but for those of a NaN.

#include <ostrakon/math/portability.hpp>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define OSTRAKON_CONVERTS_HALVES 1
#else
#define OSTRAKON_CONVERTS_HALVES 0
#endif

namespace ostrakon {

namespace half_bits {

KOKKOS_INLINE_FUNCTION std::uint32_t of_float(float x) { return bits_as<std::uint32_t>(x); }
KOKKOS_INLINE_FUNCTION float to_float(std::uint32_t bits) { return bits_as<float>(bits); }

constexpr std::uint32_t float_sign = 0x80000000u;
constexpr std::uint32_t float_infinity = 0x7F800000u;

/// Returns the upper half of a float's bits after an increment; NaN becomes a quiet NaN. Not a
/// choice between two results: for sm_100 CUDA's compiler makes predicated instructions of that,
/// whose registers stay occupied through the loop over rows or teams that Kokkos makes of a kernel.
KOKKOS_INLINE_FUNCTION std::uint16_t upper_half(std::uint32_t bits, std::uint32_t increment) {
  const bool is_nan = (bits & ~float_sign) > float_infinity;
  const std::uint32_t rounded = bits + (is_nan ? 0u : increment);
  return static_cast<std::uint16_t>((rounded | (is_nan ? 0x00400000u : 0u)) >> 16);
}

KOKKOS_INLINE_FUNCTION std::uint16_t bf16_of(float x) {
#if OSTRAKON_CONVERTS_HALVES
  std::uint16_t half;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(x));
  return half;
#else
  const std::uint32_t bits = of_float(x);
  return upper_half(bits, 0x7FFFu + ((bits >> 16) & 1u));
#endif
}

/// Returns the bits of the nearest fp16, ties to even; infinity from 65520 on. After Giesen's
/// "float->half variants".
KOKKOS_INLINE_FUNCTION std::uint16_t fp16_of(float x) {
#if OSTRAKON_CONVERTS_HALVES
  std::uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
  return half;
#else
  const std::uint32_t bits = of_float(x);
  const std::uint32_t size = bits & ~float_sign;
  // The exponent's bias changes from 127 to 15; a carry out of the mantissa correctly increments
  // the exponent.
  const std::uint32_t normal = (size - (112u << 23) + 0xFFFu + ((size >> 13) & 1u)) >> 13;
  // In 0.5 + |x| the last bit is 2^-24, the smallest fp16, so the sum rounds correctly.
  const std::uint32_t subnormal = of_float(to_float(size) + 0.5f) - 0x3F000000u;
  const std::uint32_t nan = 0x7E00u | ((size >> 13) & 0x3FFu);
  std::uint32_t result = size < 0x38800000u ? subnormal : normal;  // below 2^-14
  result = size >= 0x47800000u ? 0x7C00u : result;                 // from 2^16 on
  result = size > float_infinity ? nan : result;
  return static_cast<std::uint16_t>(result | ((bits & float_sign) >> 16));
#endif
}

KOKKOS_INLINE_FUNCTION float float_of_fp16(std::uint16_t half) {
#if OSTRAKON_CONVERTS_HALVES
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
  return x;
#else
  const std::uint32_t size = half & 0x7FFFu;
  const std::uint32_t normal = (size << 13) + (112u << 23);
  // 2^-14 + |x|, assembled from bits, minus 2^-14.
  const std::uint32_t subnormal =
      of_float(to_float((size << 13) + (113u << 23)) - to_float(113u << 23));
  const std::uint32_t nan = float_infinity | 0x00400000u | (size << 13);
  std::uint32_t result = size < 0x0400u ? subnormal : normal;
  result = size == 0x7C00u ? float_infinity : result;
  result = size > 0x7C00u ? nan : result;
  return to_float(result | (static_cast<std::uint32_t>(half & 0x8000u) << 16));
#endif
}

}  // namespace half_bits

/// bfloat16: the upper half of a float. 8 bits of precision, the range of float.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  /// Rounds to nearest, ties to even; too large becomes infinity, NaN stays NaN.
  KOKKOS_INLINE_FUNCTION explicit bf16(float x) : bits(half_bits::bf16_of(x)) {}
  /// Converts to float first.
  template <class A, class = std::enable_if_t<std::is_arithmetic<A>::value>>
  KOKKOS_INLINE_FUNCTION explicit bf16(A x) : bf16(static_cast<float>(x)) {}
  KOKKOS_INLINE_FUNCTION operator float() const {
    return half_bits::to_float(static_cast<std::uint32_t>(bits) << 16);
  }

  KOKKOS_INLINE_FUNCTION static bf16 from_bits(std::uint16_t bits) {
    bf16 x;
    x.bits = bits;
    return x;
  }
};

/// IEEE 754 binary16. 11 bits of precision, from 2^-24 to 65504.
struct fp16 {
  std::uint16_t bits;

  fp16() = default;
  /// Rounds to nearest, ties to even, also to subnormals; too large becomes infinity, NaN stays
  /// NaN.
  KOKKOS_INLINE_FUNCTION explicit fp16(float x) : bits(half_bits::fp16_of(x)) {}
  /// Converts to float first.
  template <class A, class = std::enable_if_t<std::is_arithmetic<A>::value>>
  KOKKOS_INLINE_FUNCTION explicit fp16(A x) : fp16(static_cast<float>(x)) {}
  KOKKOS_INLINE_FUNCTION operator float() const { return half_bits::float_of_fp16(bits); }

  KOKKOS_INLINE_FUNCTION static fp16 from_bits(std::uint16_t bits) {
    fp16 x;
    x.bits = bits;
    return x;
  }
};

static_assert(sizeof(bf16) == 2 && std::is_trivially_copyable<bf16>::value &&
                  std::is_trivially_default_constructible<bf16>::value,
              "arrays of bf16 are plain memory");
static_assert(sizeof(fp16) == 2 && std::is_trivially_copyable<fp16>::value &&
                  std::is_trivially_default_constructible<fp16>::value,
              "arrays of fp16 are plain memory");

/// The type in which kernels over arrays of T compute.
template <class T>
struct ComputeType {
  using type = T;
};
template <>
struct ComputeType<bf16> {
  using type = float;
};
template <>
struct ComputeType<fp16> {
  using type = float;
};
template <class T>
using compute_t = typename ComputeType<T>::type;

/// Whether T has less precision than kernels compute in.
template <class T>
constexpr bool is_16bit = !std::is_same<T, compute_t<T>>::value;

// A template that is defined in a source is instantiated there for each type by name, and only
// macros can do that from one list. These expand M(T) for each type of arrays, and M(T, S) with
// each type in which sums over such arrays are stored: T itself, and that in which kernels compute.
#define OSTRAKON_FOR_ALL_NUMBERS(M) M(float) M(double) M(bf16) M(fp16)
#define OSTRAKON_FOR_ALL_SUMS(M) \
  M(float, float) M(double, double) M(bf16, bf16) M(bf16, float) M(fp16, fp16) M(fp16, float)

namespace math {

/// Rounds x to one of the two adjacent bf16: to the one farther from 0 with a probability, over
/// uniform `random_bits`, equal to the fraction of the way from the nearer one; the mean is x. A
/// bf16 is unchanged; NaN stays NaN.
KOKKOS_INLINE_FUNCTION bf16 round_stochastically(float x, std::uint16_t random_bits) {
  const std::uint32_t bits = half_bits::of_float(x);
  return bf16::from_bits(half_bits::upper_half(bits, random_bits));
}

}  // namespace math

}  // namespace ostrakon
