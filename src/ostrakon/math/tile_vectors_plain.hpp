// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon::math {
namespace {

/// For processors without kernels of their own. A compiler for one with fused multiply-adds makes
/// vector instructions of these loops; others call the C library, which is slow and as exact.
struct Plain {
  static constexpr int width = 4, rows = 4, vectors = 2;
  static constexpr bool reads_in_place = false;
  // Tiles of attention: so many vectors, and rows for each number of them.
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
  static void transpose(const float* const (&lines)[width], Vector (&to)[width]) {
    for (int i = 0; i < width; ++i)
      for (int j = 0; j < width; ++j) to[j].lane[i] = lines[i][j];
  }
};

}  // namespace
}  // namespace ostrakon::math
