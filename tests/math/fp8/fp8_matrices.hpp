// SPDX-License-Identifier: Apache-2.0
#pragma once

// Matrices that tests round to 8 bits by plain loops, independently of the library's kernels.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/math/fp8/formats.hpp>
#include <vector>

#include "support/device_array.hpp"

namespace ostrakon::test {

/// A matrix of the host, row-major.
struct Matrix {
  std::int64_t rows, columns;
  std::vector<double> values;
  double& operator()(std::int64_t r, std::int64_t c) { return values[r * columns + c]; }
  double operator()(std::int64_t r, std::int64_t c) const { return values[r * columns + c]; }
};

/// All finite numbers of a format that are not negative, by their codes.
inline std::vector<double> numbers(math::Fp8Format format) {
  std::vector<double> all;
  for (int code = 0; code < (format == math::Fp8Format::e4m3 ? 0x7F : 0x7C); ++code)
    all.push_back(double{math::float_of_fp8(format, static_cast<std::uint8_t>(code))});
  return all;
}

/// Returns x rounded to a format, by a search among all of its numbers, with the scale of
/// `largest`.
inline double nearest(math::Fp8Format format, double x, double largest) {
  if (largest == 0.0) return x;
  if (!std::isfinite(largest)) return std::numeric_limits<double>::quiet_NaN();
  static const std::vector<double> numbers_of[] = {numbers(math::Fp8Format::e4m3),
                                                   numbers(math::Fp8Format::e5m2)};
  const std::vector<double>& all = numbers_of[format == math::Fp8Format::e4m3 ? 0 : 1];
  double scale = std::ldexp(1.0, -126);
  while (largest / scale > all.back()) scale *= 2;
  const double size = std::abs(x) / scale;
  const auto above = static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), size) -
                                              all.begin());  // the index of a number is its code
  std::size_t code = above;
  if (above > 0) {
    const double further = (all[above] - size) - (size - all[above - 1]);
    if (further > 0.0 || (further == 0.0 && above % 2 == 1)) code = above - 1;
  }
  return std::copysign(all[code] * scale, x);
}

/// The matrix with scales of its columns, of each run of `run` rows by itself, or of its rows, of
/// each run of `run` columns.
inline Matrix rounded(math::Fp8Format format, const Matrix& x, bool by_column,
                      std::int64_t run = 0) {
  Matrix result = x;
  if (run == 0) run = by_column ? x.rows : x.columns;
  std::vector<double> largest(x.values.size());
  const auto scaled_by = [&](std::int64_t r, std::int64_t c) -> double& {
    return largest[static_cast<std::size_t>(by_column ? r / run * x.columns + c
                                                      : r * x.columns + c / run)];
  };
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.columns; ++c) {
      double& most = scaled_by(r, c);
      most = std::max(
          most, std::isnan(x(r, c)) ? std::numeric_limits<double>::infinity() : std::abs(x(r, c)));
    }
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.columns; ++c)
      result(r, c) = nearest(format, x(r, c), scaled_by(r, c));
  return result;
}

template <class T>
Matrix on_host(const DeviceArray<T>& x, std::int64_t rows, std::int64_t columns) {
  const std::vector<T> values = x.host();
  Matrix matrix{rows, columns, {}};
  for (std::int64_t i = 0; i < rows * columns; ++i)
    matrix.values.push_back(static_cast<double>(values[static_cast<std::size_t>(i)]));
  return matrix;
}

/// Numbers of very different size: rows and columns differ by powers of two, some are 0.
template <class T>
std::vector<T> spread_values(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  std::vector<T> values = random_values<T>(rows * columns, seed);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      T& value = values[static_cast<std::size_t>(r * columns + c)];
      const double size = std::ldexp(1.0, static_cast<int>(r % 7 * 3 - c % 5 * 2));
      value = static_cast<T>(static_cast<float>(static_cast<double>(value) * size));
      if (r == 3 || c == 2 || (r + c) % 11 == 0) value = T(0);
    }
  return values;
}

inline void expect_equal(const Matrix& a, const Matrix& b, const char* what) {
  ASSERT_EQ(a.values.size(), b.values.size()) << what;
  for (std::size_t i = 0; i < a.values.size(); ++i)
    if (std::isnan(b.values[i]))
      ASSERT_TRUE(std::isnan(a.values[i])) << what << " " << i;
    else
      ASSERT_EQ(a.values[i], b.values[i]) << what << " " << i;
}

}  // namespace ostrakon::test
