// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/math/view.hpp>
#include <vector>

#include "math/compare.hpp"
#include "support/device_array.hpp"

namespace ostrakon::test {

/// Rows with a gap between them, so that not all begin at a vector where `gap` is odd.
template <class T>
struct Rows {
  std::int64_t rows, width, gap;
  DeviceArray<T> array;

  Rows(std::int64_t rows_, std::int64_t width_, std::int64_t gap_, std::uint64_t seed)
      : rows(rows_),
        width(width_),
        gap(gap_),
        array(random_values<T>(rows * (width + gap), seed)) {}
  View<T**> view() const { return {array.data(), rows, width, width + gap}; }
  operator View<T**>() const { return view(); }
  operator View<const T**>() const { return view(); }
  std::vector<T> host() const { return array.host(); }
};

}  // namespace ostrakon::test
