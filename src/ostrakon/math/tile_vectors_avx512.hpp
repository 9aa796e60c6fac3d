// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !defined(__clang__)
// GCC 12 takes the undefined operand of an intrinsic for an uninitialized variable.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstdint>

namespace ostrakon::math {
namespace {

/// AVX-512F: 32 registers, of which a tile takes 28.
struct Avx512 {
  using Vector = __m512;
  static constexpr int width = 16, rows = 14, vectors = 2;
  static constexpr bool reads_in_place = true;
  // Tiles of attention: so many vectors, and rows for each number of them.
  static constexpr int most_vectors = 4;
  static constexpr int rows_of(int of) { return of < 3 ? 12 : of == 3 ? 8 : 6; }
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Vector x) { _mm512_storeu_ps(to, x); }
  static Vector broadcast(float x) { return _mm512_set1_ps(x); }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  static Vector subtract(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
  static Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  static Vector multiply_add(Vector a, Vector b, Vector onto) {
    return _mm512_fmadd_ps(a, b, onto);
  }
  /// a > b ? a : b, so b where one is NaN.
  static Vector larger(Vector a, Vector b) { return _mm512_max_ps(a, b); }
  /// 2^(n - 127) from the lowest 8 bits n of each element; 0 for n = 0.
  static Vector power_of_low_bits(Vector x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 23));
  }
  static void transpose(const float* const (&lines)[width], Vector (&to)[width]) {
#pragma GCC unroll 4
    for (int c = 0; c < width; c += 4) {
      // Lane l of four[i] has 4 elements of line 4 l + i: loads put them there.
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
};

}  // namespace
}  // namespace ostrakon::math
