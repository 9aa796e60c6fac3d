// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace ostrakon::math {
namespace {

/// AVX2 and FMA: 16 registers, of which a tile takes 12.
struct Avx2 {
  using Vector = __m256;
  static constexpr int width = 8, rows = 6, vectors = 2;
  static constexpr bool reads_in_place = false;
  // Tiles of attention: so many vectors, and rows for each number of them.
  static constexpr int most_vectors = 2;
  static constexpr int rows_of(int of) { return of == 1 ? 8 : 6; }
  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Vector x) { _mm256_storeu_ps(to, x); }
  static Vector broadcast(float x) { return _mm256_set1_ps(x); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static Vector subtract(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
  static Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  static Vector multiply_add(Vector a, Vector b, Vector onto) {
    return _mm256_fmadd_ps(a, b, onto);
  }
  static Vector larger(Vector a, Vector b) { return _mm256_max_ps(a, b); }
  static Vector power_of_low_bits(Vector x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23));
  }
  static void transpose(const float* const (&lines)[width], Vector (&to)[width]) {
#pragma GCC unroll 2
    for (int c = 0; c < width; c += 4) {
      // Lane l of four[i] has 4 elements of line 4 l + i: loads put them there.
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
};

}  // namespace
}  // namespace ostrakon::math
