// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !defined(__clang__)
// GCC 12 takes the undefined operand of an intrinsic for an uninitialized variable.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstdint>
#include <ostrakon/math/products/tile_kernels.hpp>

namespace ostrakon::math {
namespace {

/// AVX-512F: of 32 registers a tile uses 28.
struct Avx512 {
  using Vector = __m512;
  static constexpr int width = 16, rows = 14, vectors = 2;
  static constexpr bool reads_in_place = true;
  // Tiles of attention: largest number of vectors, and rows for each number of vectors.
  static constexpr int most_vectors = 4;
  static constexpr int rows_of(int of) { return of < 3 ? 12 : of == 3 ? 8 : 6; }
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Vector x) { _mm512_storeu_ps(to, x); }
  static Vector load(const Bf16Bits* from) { return float_of(Bf16Bits{}, load_halves(from)); }
  static Vector load(const Fp16Bits* from) { return float_of(Fp16Bits{}, load_halves(from)); }
  /// Rounds to nearest, ties to even; NaN becomes a quiet NaN.
  static void store(Bf16Bits* to, Vector x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i halves =
        _mm512_srli_epi32(_mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                                               bits, _mm512_set1_epi32(0x00400000)),
                          16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(halves));
  }
  static void store(Fp16Bits* to, Vector x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  /// Splits pairs into their first and second elements.
  static void split(Bf16Bits, Vector pairs, Vector& even, Vector& odd) {
    const __m512i bits = _mm512_castps_si512(pairs);
    even = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    odd = _mm512_castsi512_ps(
        _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static void split(Fp16Bits, Vector pairs, Vector& even, Vector& odd) {
    const __m512i bits = _mm512_castps_si512(pairs);
    even = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(bits));
    odd = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
  }
  static Vector broadcast(float x) { return _mm512_set1_ps(x); }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  static Vector subtract(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
  static Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  static Vector divide(Vector a, Vector b) { return _mm512_div_ps(a, b); }
  static Vector multiply_add(Vector a, Vector b, Vector onto) {
    return _mm512_fmadd_ps(a, b, onto);
  }
  /// Returns a > b ? a : b, so b if one is NaN.
  static Vector larger(Vector a, Vector b) { return _mm512_max_ps(a, b); }
  /// Returns 2^(n - 127) from the lowest 8 bits n of each element; 0 for n = 0.
  static Vector power_of_low_bits(Vector x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 23));
  }
  /// Element i of vector j is the j-th float of line i, or its j-th pair of halves.
  template <class T>
  static void transpose(const T* const (&halves_or_floats)[width], Vector (&to)[width]) {
    const float* lines[width];
#pragma GCC unroll 16
    for (int i = 0; i < width; ++i) lines[i] = reinterpret_cast<const float*>(halves_or_floats[i]);
#pragma GCC unroll 4
    for (int c = 0; c < width; c += 4) {
      // Lane l of four[i] has 4 elements of line 4 l + i, where the loads put them.
      Vector four[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        four[i] = _mm512_castps128_ps512(_mm_loadu_ps(lines[i] + c));
        four[i] = _mm512_mask_broadcast_f32x4(four[i], 0x00f0, _mm_loadu_ps(lines[4 + i] + c));
        four[i] = _mm512_mask_broadcast_f32x4(four[i], 0x0f00, _mm_loadu_ps(lines[8 + i] + c));
        four[i] = _mm512_mask_broadcast_f32x4(four[i], 0xf000, _mm_loadu_ps(lines[12 + i] + c));
      }
      const Vector low = _mm512_unpacklo_ps(four[0], four[1]);
      const Vector high = _mm512_unpackhi_ps(four[0], four[1]);
      const Vector other_low = _mm512_unpacklo_ps(four[2], four[3]);
      const Vector other_high = _mm512_unpackhi_ps(four[2], four[3]);
      to[c] = _mm512_shuffle_ps(low, other_low, 0x44);
      to[c + 1] = _mm512_shuffle_ps(low, other_low, 0xee);
      to[c + 2] = _mm512_shuffle_ps(high, other_high, 0x44);
      to[c + 3] = _mm512_shuffle_ps(high, other_high, 0xee);
    }
  }

 private:
  template <class T>
  static __m256i load_halves(const T* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static Vector float_of(Bf16Bits, __m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static Vector float_of(Fp16Bits, __m256i bits) { return _mm512_cvtph_ps(bits); }
};

}  // namespace
}  // namespace ostrakon::math
