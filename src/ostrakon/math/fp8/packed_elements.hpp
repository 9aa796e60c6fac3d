// SPDX-License-Identifier: Apache-2.0
#pragma once

// Vectors of elements as words of 32 bits. Elements of 16 bits would take a register each; words
// are compared as they are, and taken apart where elements are rounded.

#include <ostrakon/math/vectors.hpp>
#include <type_traits>

namespace ostrakon::math {

/// Returns the bits of |x| as a float.
template <class T>
KOKKOS_INLINE_FUNCTION std::uint32_t magnitude_bits(T x) {
  return half_bits::of_float(static_cast<float>(x)) & ~half_bits::float_sign;
}
KOKKOS_INLINE_FUNCTION std::uint32_t larger(std::uint32_t a, std::uint32_t b) {
  return a > b ? a : b;
}

/// Returns element k of those in `words`.
template <class T>
KOKKOS_INLINE_FUNCTION T element(const std::uint32_t* words, int k) {
  if constexpr (sizeof(T) == 2)
    return bits_as<T>(static_cast<std::uint16_t>(words[k / 2] >> (k % 2 * 16)));
  else if constexpr (sizeof(T) == 4)
    return bits_as<T>(words[k]);
  else
    return bits_as<T>(std::uint64_t{words[std::size_t{2} * k + 1]} << 32 |
                      words[std::size_t{2} * k]);
}

/// Returns it as a float.
template <class T>
KOKKOS_INLINE_FUNCTION float float_element(const std::uint32_t* words, int k) {
  const T value = element<T>(words, k);
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same<T, fp16>::value) {  // one instruction, as registers are few
    float converted = 0;
    asm("cvt.f32.f16 %0, %1;" : "=f"(converted) : "h"(value.bits));
    return converted;
  }
#endif
  return static_cast<float>(value);
}

KOKKOS_INLINE_FUNCTION std::uint32_t larger_halves(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  return __vmaxu2(a, b);
#else
  return (larger(a >> 16, b >> 16) << 16) | larger(a & 0xFFFFu, b & 0xFFFFu);
#endif
}

/// The largest absolute value of each element of vectors of some words.
template <class T, int words>
struct Maxima {
  std::uint32_t word[words] = {};

  KOKKOS_INLINE_FUNCTION static std::uint32_t larger_of(std::uint32_t a, std::uint32_t b) {
    return sizeof(T) == 2 ? larger_halves(a, b) : larger(a, b);
  }
  KOKKOS_INLINE_FUNCTION void add(const Vector<std::uint32_t, words>& elements) {
    if constexpr (sizeof(T) == 8) {
      for (int k = 0; k < words / 2; ++k)
        word[k] = larger(word[k], magnitude_bits(element<T>(elements.at, k)));
    } else {
      constexpr std::uint32_t without_signs = sizeof(T) == 2 ? 0x7FFF7FFFu : 0x7FFFFFFFu;
      for (int w = 0; w < words; ++w) word[w] = larger_of(word[w], elements.at[w] & without_signs);
    }
  }
  /// Returns the bits of maximum k as a float.
  KOKKOS_INLINE_FUNCTION static std::uint32_t of(const std::uint32_t* maxima, int k) {
    if constexpr (sizeof(T) == 2)
      return magnitude_bits(element<T>(maxima, k));
    else
      return maxima[k];
  }
};

}  // namespace ostrakon::math
