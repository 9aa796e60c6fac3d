// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/view.hpp>
#include <ostrakon/math/work_items.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/device_array.hpp"

namespace ostrakon {
namespace {

using test::DeviceArray;

#if !defined(OSTRAKON_CHECK_VIEWS)
static_assert(sizeof(View<float*>) == sizeof(float*) + sizeof(std::int64_t));
static_assert(sizeof(View<float**>) == sizeof(float*) + 3 * sizeof(std::int64_t));
#endif
static_assert(std::is_trivially_copyable<View<float*>>::value);
static_assert(std::is_trivially_copyable<View<float**>>::value);

// Conversions that compile, and some that must not.
static_assert(std::is_same<View<float*>, DeviceView<float*>>::value);
static_assert(std::is_convertible<View<float*>, View<const float*>>::value);
static_assert(std::is_convertible<View<float**>, View<const float**>>::value);
static_assert(!std::is_convertible<View<const float*>, View<float*>>::value);
static_assert(!std::is_convertible<View<const float**>, View<float**>>::value);
static_assert(!std::is_constructible<View<float*>, View<double*>>::value);
static_assert(!std::is_constructible<View<float*>, View<float**>>::value);
static_assert(!std::is_constructible<DeviceView<float*>, HostView<float*>>::value);
static_assert(!std::is_constructible<HostView<float*>, DeviceView<float*>>::value);
static_assert(!std::is_constructible<DeviceView<const float**>, HostView<float**>>::value);

// Neither a kernel with a host view nor a host loop with a device view compiles.
template <class X, class = void>
struct Fills : std::false_type {};
template <class X>
struct Fills<X, std::void_t<decltype(math::fill<float>(Exec(), std::declval<X>(), 1.0f))>>
    : std::true_type {};
static_assert(Fills<View<float*>>::value);
static_assert(!Fills<HostView<float*>>::value);

template <class X, class = void>
struct Multiplies : std::false_type {};
template <class X>
struct Multiplies<X, std::void_t<decltype(math::gemm<float>(
                         Exec(), math::Transpose::no, math::Transpose::no, 1.0f, std::declval<X>(),
                         View<float**>(), 0.0f, View<float**>()))>> : std::true_type {};
static_assert(Multiplies<View<float**>>::value);
static_assert(!Multiplies<HostView<float**>>::value);

template <class X, class = void>
struct AddsOnHost : std::false_type {};
template <class X>
struct AddsOnHost<X, std::void_t<decltype(math::add_to<float, OnHost>(
                         math::CallingThread(), std::declval<X>(), HostView<float*>()))>>
    : std::true_type {};
static_assert(AddsOnHost<HostView<const float*>>::value);
static_assert(!AddsOnHost<View<const float*>>::value);

/// Returns the numbers 0, 1, 2, ...
std::vector<float> count_up(std::int64_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

TEST(View, IndexesAnArray) {
  std::vector<float> values = count_up(6);
  const HostView<float*> x = host_view(values);
  EXPECT_EQ(x.size(), 6);
  EXPECT_EQ(x.extent(0), 6);
  EXPECT_EQ(x(4), 4.0f);
  x[5] = -1.0f;
  EXPECT_EQ(values[5], -1.0f);
}

TEST(View, IndexesAMatrixWhoseRowsAreApart) {
  std::vector<float> values = count_up(12);
  const HostView<float**> x(values.data(), 2, 3, 5);
  EXPECT_EQ(x.extent(0), 2);
  EXPECT_EQ(x.extent(1), 3);
  EXPECT_EQ(x(1, 2), 7.0f);
  EXPECT_EQ(x.row(1)(0), 5.0f);
  EXPECT_EQ(x.row(1).size(), 3);
}

TEST(View, PartsShareTheElements) {
  std::vector<float> values = count_up(12);
  const HostView<float*> x = host_view(values);
  EXPECT_EQ(x.range(3, 5).size(), 2);
  EXPECT_EQ(x.range(3, 5)(1), 4.0f);
  EXPECT_EQ(x.range(12, 12).size(), 0);

  const HostView<float**> matrix = x.matrix(3, 4);
  const HostView<float**> rows = matrix.row_range(1, 3);
  EXPECT_EQ(rows.rows(), 2);
  EXPECT_EQ(rows(1, 3), 11.0f);
  const HostView<float**> columns = matrix.column_range(1, 3);
  EXPECT_EQ(columns.columns(), 2);
  EXPECT_EQ(columns.stride(), 4);
  EXPECT_EQ(columns(2, 1), 10.0f);
  EXPECT_EQ(columns.row_range(2, 3).flat()(1), 10.0f);
  EXPECT_EQ(matrix.flat()(11), 11.0f);
}

TEST(View, WhatDoesNotExistHasNoParts) {
  const View<float*> none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.size(), 0);
  EXPECT_FALSE(none.range(3, 5));
  EXPECT_FALSE(none.matrix(2, 3));
  EXPECT_FALSE(View<float**>().row_range(1, 2));
  EXPECT_FALSE(View<float**>().column_range(1, 2));
}

/// nvcc allows no kernel in the body of a test, which is a private member.
void double_in_kernel(const View<float**>& x) {
  math::for_each_item(
      Exec(), "double", 6, KOKKOS_LAMBDA(std::int64_t i) { x(i / 3, i % 3) *= 2.0f; });
}

TEST(View, IsWhatKernelsCapture) {
  const DeviceArray<float> array(count_up(6));
  double_in_kernel(array.view().matrix(2, 3));
  EXPECT_EQ(array.host(), (std::vector<float>{0, 2, 4, 6, 8, 10}));
}

TEST(View, IsAViewOfKokkosToo) {
  const DeviceArray<float> array(12, 0.0f);
  Kokkos::deep_copy(array.view().range(2, 4).kokkos(), 1.0f);
  Kokkos::deep_copy(array.view().matrix(3, 4).column_range(1, 2).kokkos(), 2.0f);
  EXPECT_EQ(array.host(), (std::vector<float>{0, 2, 1, 1, 0, 2, 0, 0, 0, 2, 0, 0}));

  const Kokkos::View<float*, Memory> theirs("theirs", 3);
  EXPECT_EQ(device_view(theirs).data(), theirs.data());
  EXPECT_EQ(device_view(theirs).size(), 3);
}

}  // namespace
}  // namespace ostrakon
