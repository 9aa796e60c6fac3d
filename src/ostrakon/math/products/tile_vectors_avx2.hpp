// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <ostrakon/math/products/tile_kernels.hpp>

namespace ostrakon::math {
namespace {

/// AVX2, FMA and F16C: of 16 registers a tile uses 12.
struct Avx2 {
  using Vector = __m256;
  static constexpr int width = 8, rows = 6, vectors = 2;
  static constexpr bool reads_in_place = false;
  // Tiles of attention: largest number of vectors, and rows for each number of vectors.
  static constexpr int most_vectors = 2;
  static constexpr int rows_of(int of) { return of == 1 ? 8 : 6; }
  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Vector x) { _mm256_storeu_ps(to, x); }
  static Vector load(const Bf16Bits* from) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_halves(from)), 16));
  }
  static Vector load(const Fp16Bits* from) { return _mm256_cvtph_ps(load_halves(from)); }
  /// Rounds to nearest, ties to even; NaN becomes a quiet NaN.
  static void store(Bf16Bits* to, Vector x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    const __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    store_halves(to, _mm256_srli_epi32(
                         _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded),
                                                              _mm256_castsi256_ps(quiet), is_nan)),
                         16));
  }
  static void store(Fp16Bits* to, Vector x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  /// Splits pairs into their first and second elements.
  static void split(Bf16Bits, Vector pairs, Vector& even, Vector& odd) {
    const __m256i bits = _mm256_castps_si256(pairs);
    even = _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
    odd = _mm256_castsi256_ps(
        _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static void split(Fp16Bits, Vector pairs, Vector& even, Vector& odd) {
    const __m256i bits = _mm256_castps_si256(pairs);
    even = _mm256_cvtph_ps(halves(_mm256_and_si256(bits, _mm256_set1_epi32(0xffff))));
    odd = _mm256_cvtph_ps(halves(_mm256_srli_epi32(bits, 16)));
  }
  static Vector broadcast(float x) { return _mm256_set1_ps(x); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static Vector subtract(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
  static Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  static Vector divide(Vector a, Vector b) { return _mm256_div_ps(a, b); }
  static Vector multiply_add(Vector a, Vector b, Vector onto) {
    return _mm256_fmadd_ps(a, b, onto);
  }
  static Vector larger(Vector a, Vector b) { return _mm256_max_ps(a, b); }
  static Vector power_of_low_bits(Vector x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23));
  }
  /// Element i of vector j is the j-th float of line i, or its j-th pair of halves.
  template <class T>
  static void transpose(const T* const (&halves_or_floats)[width], Vector (&to)[width]) {
    const float* lines[width];
#pragma GCC unroll 8
    for (int i = 0; i < width; ++i) lines[i] = reinterpret_cast<const float*>(halves_or_floats[i]);
#pragma GCC unroll 2
    for (int c = 0; c < width; c += 4) {
      // Lane l of four[i] has 4 elements of line 4 l + i, where the loads put them.
      Vector four[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        four[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(lines[i] + c)),
                                       _mm_loadu_ps(lines[4 + i] + c), 1);
      const Vector low = _mm256_unpacklo_ps(four[0], four[1]);
      const Vector high = _mm256_unpackhi_ps(four[0], four[1]);
      const Vector other_low = _mm256_unpacklo_ps(four[2], four[3]);
      const Vector other_high = _mm256_unpackhi_ps(four[2], four[3]);
      to[c] = _mm256_shuffle_ps(low, other_low, 0x44);
      to[c + 1] = _mm256_shuffle_ps(low, other_low, 0xee);
      to[c + 2] = _mm256_shuffle_ps(high, other_high, 0x44);
      to[c + 3] = _mm256_shuffle_ps(high, other_high, 0xee);
    }
  }

 private:
  template <class T>
  static __m128i load_halves(const T* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  /// Packs the lower halves of elements whose upper halves are 0.
  static __m128i halves(__m256i x) {
    return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  }
  template <class T>
  static void store_halves(T* to, __m256i x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves(x));
  }
};

}  // namespace
}  // namespace ostrakon::math
