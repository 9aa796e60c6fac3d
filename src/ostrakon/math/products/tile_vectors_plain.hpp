// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/products/tile_kernels.hpp>
#include <type_traits>

namespace ostrakon::math {
namespace {

/// For processors without kernels of their own. It is compiled with the same instructions as all
/// other sources, so inline functions can be shared. Compilers for processors with fused
/// multiply-adds vectorise these loops; others call fma() of the C library, which is slow, but has
/// the same bits.
struct Plain {
  static constexpr int width = 4, rows = 4, vectors = 2;
  static constexpr bool reads_in_place = false;
  // Tiles of attention: largest number of vectors, and rows for each number of vectors.
  static constexpr int most_vectors = 2;
  static constexpr int rows_of(int) { return 4; }
  struct Vector {
    float lane[width];
  };
  static Vector zero() { return {}; }
  static Vector load(const float* from) { return {{from[0], from[1], from[2], from[3]}}; }
  static void store(float* to, const Vector& x) {
    for (int i = 0; i < width; ++i) to[i] = x.lane[i];
  }
  template <class T>
  static Vector load(const T* from) {
    Vector result;
    for (int i = 0; i < width; ++i) result.lane[i] = float_of(from[i]);
    return result;
  }
  static void store(Bf16Bits* to, const Vector& x) {
    for (int i = 0; i < width; ++i) to[i].bits = half_bits::bf16_of(x.lane[i]);
  }
  static void store(Fp16Bits* to, const Vector& x) {
    for (int i = 0; i < width; ++i) to[i].bits = half_bits::fp16_of(x.lane[i]);
  }
  /// Splits pairs into their first and second elements.
  template <class T>
  static void split(T, const Vector& pairs, Vector& even, Vector& odd) {
    for (int i = 0; i < width; ++i) {
      T pair[2];
      __builtin_memcpy(pair, &pairs.lane[i], sizeof pair);
      even.lane[i] = float_of(pair[0]);
      odd.lane[i] = float_of(pair[1]);
    }
  }
  static Vector broadcast(float x) { return {{x, x, x, x}}; }
  static Vector add(const Vector& a, const Vector& b) {
    Vector result;
    for (int i = 0; i < width; ++i) result.lane[i] = a.lane[i] + b.lane[i];
    return result;
  }
  static Vector subtract(const Vector& a, const Vector& b) {
    Vector result;
    for (int i = 0; i < width; ++i) result.lane[i] = a.lane[i] - b.lane[i];
    return result;
  }
  static Vector multiply(const Vector& a, const Vector& b) {
    Vector result;
    for (int i = 0; i < width; ++i) result.lane[i] = a.lane[i] * b.lane[i];
    return result;
  }
  static Vector divide(const Vector& a, const Vector& b) {
    Vector result;
    for (int i = 0; i < width; ++i) result.lane[i] = a.lane[i] / b.lane[i];
    return result;
  }
  static Vector multiply_add(const Vector& a, const Vector& b, const Vector& onto) {
    Vector result;
    for (int i = 0; i < width; ++i)
      result.lane[i] = __builtin_fmaf(a.lane[i], b.lane[i], onto.lane[i]);
    return result;
  }
  static Vector larger(const Vector& a, const Vector& b) {
    Vector result;
    for (int i = 0; i < width; ++i) result.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
    return result;
  }
  static Vector power_of_low_bits(const Vector& x) {
    Vector result;
    for (int i = 0; i < width; ++i) {
      std::uint32_t bits;
      __builtin_memcpy(&bits, &x.lane[i], sizeof bits);
      bits <<= 23;
      __builtin_memcpy(&result.lane[i], &bits, sizeof bits);
    }
    return result;
  }
  /// Element i of vector j is the j-th float of line i, or its j-th pair of halves.
  template <class T>
  static void transpose(const T* const (&lines)[width], Vector (&to)[width]) {
    constexpr std::int64_t elements = std::is_same<T, float>::value ? 1 : 2;
    for (int i = 0; i < width; ++i)
      for (int j = 0; j < width; ++j)
        __builtin_memcpy(&to[j].lane[i], lines[i] + j * elements, sizeof(float));
  }

 private:
  static float float_of(Bf16Bits x) {
    return half_bits::to_float(static_cast<std::uint32_t>(x.bits) << 16);
  }
  static float float_of(Fp16Bits x) { return half_bits::float_of_fp16(x.bits); }
};

}  // namespace
}  // namespace ostrakon::math
