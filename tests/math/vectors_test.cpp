// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/math/fast_divide.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>

#include "math/compare.hpp"
#include "support/device_array.hpp"

namespace {

using namespace ostrakon;
using test::DeviceArray;
using test::random_values;
using test::same_bits;

TEST(Vectors, HoldSixteenBytesOfTheWidestType) {
  EXPECT_EQ(math::vector_elements<bf16>(), 8);
  EXPECT_EQ((math::vector_elements<bf16, float>()), 4);
  EXPECT_EQ((math::vector_elements<float, double>()), 2);
  EXPECT_EQ(sizeof(math::Vector<bf16, 8>), 16U);
  EXPECT_EQ(alignof(math::Vector<bf16, 8>), 16U);
  EXPECT_EQ(alignof(math::Vector<bf16, 4>), 8U);
}

TEST(Vectors, LanesOutsideAreZeroAndStay) {
  alignas(16) float x[24];
  for (int i = 0; i < 24; ++i) x[i] = static_cast<float>(i + 1);
  for (int past = 0; past < 4; ++past)
    for (std::int64_t count = 0; count < 10; ++count)
      for (std::int64_t begin = math::first_vector<4>(x + past); begin < count; begin += 4) {
        auto values = math::load_lanes<4>(static_cast<const float*>(x + past), begin, count);
        alignas(16) float y[24] = {};
        math::store_lanes<4>(y + past, begin, count, values);
        for (std::int64_t i = 0; i < 4; ++i) {
          const bool is_inside = begin + i >= 0 && begin + i < count;
          EXPECT_EQ(values.at[i], is_inside ? x[past + begin + i] : 0.0f);
          if (is_inside) {
            EXPECT_EQ(y[past + begin + i], values.at[i]);
          }
          values.at[i] = 5.0f;
        }
        EXPECT_EQ(std::count(y, y + 24, 0.0f),
                  24 - (std::min(count, begin + 4) - std::max<std::int64_t>(0, begin)));
      }
  EXPECT_EQ(math::first_vector<4>(x), 0);
  EXPECT_EQ(math::first_vector<4>(x + 3), -3);
}

// Lambdas are in functions, as bodies of tests are private members, which CUDA does not allow.

template <class T>
void map_rows(View<const T**> x, View<const float**> y, View<T**> sum, View<float**> product) {
  math::for_each_row(
      Exec(), "map_rows", x.rows(), x.columns(),
      KOKKOS_LAMBDA(const math::Row& row, std::int64_t r) {
        row.map([](std::int64_t i, float a, float b) { return a + b + static_cast<float>(i % 3); },
                sum.row(r), x.row(r), y.row(r));
        row.map_two(
            [](std::int64_t, float a, float b, float c) {
              return math::Two<float, float>{c, a * b};
            },
            sum.row(r), product.row(r), x.row(r), y.row(r), sum.row(r));
      });
}

template <class T>
void reduce_rows(View<const T**> x, View<float*> sums, View<float*> largest) {
  math::for_each_row(
      Exec(), "reduce_rows", x.rows(), x.columns(),
      KOKKOS_LAMBDA(const math::Row& row, std::int64_t r) {
        const float sum = row.template sum_of<float>(
            [](std::int64_t i, float value) { return i % 2 == 0 ? value : 0.0f; }, x.row(r));
        const float most =
            row.maximum_of([](std::int64_t, float value) { return value; }, -0.5f, x.row(r));
        row.once([&] {
          sums[r] = sum;
          largest[r] = most;
        });
      });
}

template <class T>
class RowKernels : public ::testing::Test {};
using Types = ::testing::Types<float, bf16, fp16>;
TYPED_TEST_SUITE(RowKernels, Types);

TYPED_TEST(RowKernels, DoNotDependOnWhereRowsBegin) {
  using T = TypeParam;
  constexpr std::int64_t rows = 3;
  for (const std::int64_t columns : {1, 5, 8, 37, 100})
    for (const std::int64_t stride : {columns, columns + 1, columns + 8})
      for (const std::int64_t first : {0, 1, 3})
        for (const std::int64_t other : {0, 2}) {
          const std::vector<T> x = random_values<T>(first + rows * stride + 8, 1);
          const std::vector<float> y = random_values<float>(first + rows * stride + 8, 2);
          const DeviceArray<T> device_x(x), sum(std::int64_t(x.size()), T(7.0f));
          const DeviceArray<float> device_y(y), product(std::int64_t(y.size()), 7.0f);
          const auto in = [&](const auto& array, std::int64_t begin) {
            using Element = std::remove_pointer_t<decltype(array.data())>;
            return View<Element**>(array.data() + begin, rows, columns, stride);
          };
          map_rows<T>(in(device_x, first), in(device_y, other), in(sum, first), in(product, other));
          std::vector<T> expected_sum(x.size(), T(7.0f));
          std::vector<float> expected_product(y.size(), 7.0f), sums(rows), largest(rows, -0.5f);
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t i = 0; i < columns; ++i) {
              const float a = x[first + r * stride + i], b = y[other + r * stride + i];
              expected_sum[first + r * stride + i] = T(a + b + static_cast<float>(i % 3));
              expected_product[other + r * stride + i] = a * b;
              if (i % 2 == 0) sums[r] += a;
              largest[r] = std::max(largest[r], a);
            }
          EXPECT_TRUE(same_bits(sum.host(), expected_sum));
          EXPECT_TRUE(same_bits(product.host(), expected_product));
          const DeviceArray<float> device_sums(rows), device_largest(rows);
          reduce_rows<T>(in(device_x, first), device_sums, device_largest);
          EXPECT_TRUE(same_bits(device_largest.host(), largest));
          const std::vector<float> found = device_sums.host();
          for (std::int64_t r = 0; r < rows; ++r) EXPECT_NEAR(found[r], sums[r], 1e-5);
        }
}

TEST(FastDivide, GivesQuotientsAndRests) {
  const std::int64_t most = (std::int64_t{1} << 31) - 1;
  for (const std::int64_t divisor :
       {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{7}, std::int64_t{64},
        std::int64_t{641}, std::int64_t{50257}, std::int64_t{65535}, std::int64_t{65537},
        (std::int64_t{1} << 30) - 1, (std::int64_t{1} << 30) + 1, most, most + 1, most + 2,
        std::int64_t{1} << 40}) {
    const math::FastDivide by(divisor);
    const auto check = [&](std::int64_t index) {
      if (index < 0 || index > most) return;
      ASSERT_EQ(by.quotient(index), index / divisor) << index << " / " << divisor;
      ASSERT_EQ(by.rest(index), index % divisor) << index << " % " << divisor;
    };
    for (std::int64_t index = 0; index < 1000; ++index) check(index);
    for (std::int64_t index = most - 1000; index <= most; ++index) check(index);
    for (std::int64_t k = 1; k < 2000; ++k)
      for (std::int64_t d = -1; d <= 1; ++d) {
        check(k * divisor + d);
        check(most / divisor * divisor - k % 100 * divisor + d);
      }
  }
  EXPECT_THROW(math::FastDivide(0), Error);
}

}  // namespace
