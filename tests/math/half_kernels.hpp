// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/math/rows/norm.hpp>
#include <type_traits>
#include <vector>

#include "math/compare.hpp"
#include "support/device_array.hpp"

// Kernels over 16-bit arrays compared with the same kernels in double, for the same rounded inputs:
// 16-bit outputs may differ by the rounding of their stores, float outputs by float's.

namespace ostrakon::math::halves {

using test::converted;
using test::DeviceArray;
using test::random_values;
using test::same_bits;

using Doubles = std::vector<double>;

/// Largest relative change by one rounded store.
template <class T>
constexpr double one_store = std::is_same<T, bf16>::value ? 0x1p-8 : 0x1p-11;

/// Returns values that T holds exactly, from -scale to scale, around `offset`.
template <class T>
Doubles inputs(std::int64_t count, std::uint64_t seed, double scale = 1, double offset = 0) {
  Doubles values = random_values<double>(count, seed);
  for (double& value : values) value = static_cast<double>(T(offset + scale * value));
  return values;
}

template <class T>
DeviceArray<T> device(const Doubles& values) {
  return DeviceArray<T>(converted<T>(values));
}

/// Returns an array of NaNs, which show elements that were not written.
template <class T>
DeviceArray<T> unwritten(std::int64_t count) {
  return DeviceArray<T>(count, T(std::numeric_limits<float>::quiet_NaN()));
}

template <class T>
Doubles doubles(const DeviceArray<T>& array) {
  return converted<double>(array.host());
}

template <class T>
View<T**> matrix(const DeviceArray<T>& array, std::int64_t columns) {
  return {array.data(), columns == 0 ? 0 : array.size() / columns, columns};
}

/// Returns the largest error of a row of `columns`, relative to the row's largest element or
/// `smallest`; infinity for NaN.
inline double row_error(const Doubles& values, const Doubles& expected, std::int64_t columns,
                        double smallest = 1e-30) {
  if (values.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t row = 0; row < expected.size(); row += static_cast<std::size_t>(columns)) {
    double scale = smallest, error = 0;
    for (std::size_t i = row; i < row + static_cast<std::size_t>(columns); ++i) {
      scale = std::max(scale, std::abs(expected[i]));
      const double difference = std::abs(values[i] - expected[i]);
      if (!(difference <= error)) error = difference;
      if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    }
    worst = std::max(worst, error / scale);
  }
  return worst;
}

/// The smallest normal number of fp16: below it the absolute rounding error of a store is constant.
constexpr double smallest_normal = 0x1p-14;

/// The error of float arithmetic in addition to the rounding of stores.
constexpr double float_sums = 2e-5;

#define EXPECT_STORED(values, expected, columns, stores)           \
  EXPECT_LE(row_error(values, expected, columns, smallest_normal), \
            (stores)*one_store<TypeParam> + float_sums)
#define EXPECT_FLOAT(values, expected) \
  EXPECT_LE(row_error(values, expected, static_cast<std::int64_t>((expected).size())), float_sums)

using Halves = ::testing::Types<bf16, fp16>;

}  // namespace ostrakon::math::halves
