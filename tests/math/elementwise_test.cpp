// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementwise.hpp>

#include "math/compare.hpp"
#include "support/device_array.hpp"

namespace {

using namespace ostrakon;
using test::DeviceArray;
using test::largest_difference;
using test::random_values;
using test::same_bits;

template <class T>
class Elementwise : public ::testing::Test {};
using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, Scalars);

TYPED_TEST(Elementwise, FillsCopiesAndAdds) {
  using T = TypeParam;
  for (std::int64_t count : {0, 1, 17, 1000}) {
    const std::vector<T> x = random_values<T>(count, 1), y = random_values<T>(count, 2);
    const DeviceArray<T> device_x(x), device_y(y), filled(count), copied(count);
    math::fill<T>(Exec(), filled, T(2.5));
    EXPECT_EQ(filled.host(), std::vector<T>(count, T(2.5)));
    math::copy<T>(Exec(), device_x, copied);
    EXPECT_EQ(copied.host(), x);
    math::add_to<T, OnDevice>(Exec(), device_x, device_y);
    std::vector<T> sum = y;
    for (std::int64_t i = 0; i < count; ++i) sum[i] += x[i];
    EXPECT_EQ(device_y.host(), sum);
  }
}

/// Returns the fixed tree's sum for one element, by its recursive definition.
template <class T>
T tree_of(const std::vector<T>& x, std::int64_t first, std::int64_t pieces, std::int64_t count,
          std::int64_t element) {
  if (pieces == 1) return x[first * count + element];
  std::int64_t left = 1;
  while (2 * left < pieces) left *= 2;
  return tree_of(x, first, left, count, element) +
         tree_of(x, first + left, pieces - left, count, element);
}

TYPED_TEST(Elementwise, TreeSumAddsInTheOrderOfTheTree) {
  using T = TypeParam;
  for (int pieces = 1; pieces <= 17; ++pieces)
    for (std::int64_t count : {1, 7, 1500}) {
      const std::vector<T> x = random_values<T>(pieces * count, pieces);
      const DeviceArray<T> device_x(x);
      math::tree_sum(Exec(), device_x.matrix(pieces, count));
      std::vector<T> sum = device_x.host();
      sum.resize(count);
      std::vector<T> expected(count);
      for (std::int64_t i = 0; i < count; ++i) expected[i] = tree_of(x, 0, pieces, count, i);
      EXPECT_TRUE(same_bits(sum, expected)) << pieces << " pieces of " << count;
    }
}

TYPED_TEST(Elementwise, TheHostAloneHasTheSameBits) {
  using T = TypeParam;
  for (int pieces = 1; pieces <= 17; ++pieces)
    for (std::int64_t count : {0, 1, 7, 512, 1500}) {
      const std::vector<T> x = random_values<T>(pieces * count, pieces);
      const DeviceArray<T> device_x(x);
      math::tree_sum(Exec(), device_x.matrix(pieces, count));
      std::vector<T> expected = device_x.host();
      expected.resize(count);

      std::vector<T> apart = x, in_place = x, sum(count);
      math::host::tree_sum<T>(host_view(apart).matrix(pieces, count), host_view(sum));
      EXPECT_TRUE(same_bits(sum, expected)) << pieces << " pieces of " << count;
      math::host::tree_sum<T>(host_view(in_place).matrix(pieces, count),
                              host_view(in_place).range(0, count));
      in_place.resize(count);
      EXPECT_TRUE(same_bits(in_place, expected)) << pieces << " pieces of " << count;

      std::vector<T> added = sum;
      math::add_to<T, OnHost>(math::CallingThread(), host_view(x).range(0, count),
                              host_view(added).range(0, count));
      for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(added[i], sum[i] + x[i]);
    }
  EXPECT_THROW(math::host::tree_sum<T>({nullptr, 0, 5}, {nullptr, 5}), Error);
}

TYPED_TEST(Elementwise, ChainsOfTreesAreAddedInOrder) {
  using T = TypeParam;
  for (int pieces = 1; pieces <= 13; ++pieces)
    for (int tree : {1, 2, 3, 4, 8, 13, 100})
      for (std::int64_t count : {0, 1, 7, 256, 700})
        for (bool continues : {false, true}) {
          const std::vector<T> x = random_values<T>(pieces * count, pieces);
          const std::vector<T> start = random_values<T>(count, 99);
          std::vector<T> expected = start;
          for (std::int64_t i = 0; i < count; ++i)
            for (int piece = 0; piece < pieces; piece += tree) {
              const T sum = tree_of(x, piece, std::min(tree, pieces - piece), count, i);
              expected[i] = piece == 0 && !continues ? sum : expected[i] + sum;
            }
          std::vector<T> apart = x, sum = start;
          math::host::chain_sum<T>(host_view(apart).matrix(pieces, count), tree, continues,
                                   host_view(sum));
          EXPECT_TRUE(same_bits(sum, expected)) << pieces << " by " << tree << " of " << count;
          if (continues) continue;
          std::vector<T> in_place = x;
          math::host::chain_sum<T>(host_view(in_place).matrix(pieces, count), tree, false,
                                   host_view(in_place).range(0, count));
          in_place.resize(count);
          EXPECT_TRUE(same_bits(in_place, expected)) << pieces << " by " << tree;
        }
  EXPECT_THROW(math::host::chain_sum<T>({nullptr, 2, 5}, 0, false, {nullptr, 5}), Error);
  EXPECT_THROW(math::host::chain_sum<T>({nullptr, 0, 5}, 1, false, {nullptr, 5}), Error);
}

TYPED_TEST(Elementwise, TreeSumOfSubtreesIsThatOfTheWhole) {
  using T = TypeParam;
  constexpr std::int64_t count = 100;
  const std::vector<T> x = random_values<T>(8 * count, 9);
  const DeviceArray<T> whole(x), parts(x);
  math::tree_sum(Exec(), whole.matrix(8, count));
  for (int part = 0; part < 4; ++part) {
    const View<T**> pair = parts.matrix(8, count).row_range(2 * part, 2 * part + 2);
    math::tree_sum(Exec(), pair);
    math::copy<T>(Exec(), pair.row(0), parts.matrix(8, count).row(part));
  }
  math::tree_sum(Exec(), parts.matrix(4, count));
  std::vector<T> sum = whole.host(), sum_of_parts = parts.host();
  sum.resize(count);
  sum_of_parts.resize(count);
  EXPECT_TRUE(same_bits(sum, sum_of_parts));
}

TYPED_TEST(Elementwise, TreeSumRefusesNoPieces) {
  EXPECT_THROW(math::tree_sum<TypeParam>(Exec(), {nullptr, 0, 5}), Error);
}

TYPED_TEST(Elementwise, BiasIsAddedToEveryRowAndToNothingElse) {
  using T = TypeParam;
  for (std::int64_t columns : {1, 33, 5000}) {
    constexpr std::int64_t rows = 3, padding = 2;
    const std::int64_t stride = columns + padding;
    const std::vector<T> x = random_values<T>(rows * stride, 1),
                         bias = random_values<T>(columns, 2);
    const DeviceArray<T> device_x(x), device_bias(bias);
    math::add_bias<T>(Exec(), View<T**>(device_x.data(), rows, columns, stride), device_bias);
    std::vector<T> expected = x;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) expected[i * stride + j] += bias[j];
    EXPECT_EQ(device_x.host(), expected);
  }
}

/// Checks that the result is rounded once if the sum is wider, and that columns beyond are
/// unchanged.
template <class T>
void check_residual() {
  using C = compute_t<T>;
  for (std::int64_t columns : {1, 33, 5000})
    for (const bool has_bias : {false, true}) {
      constexpr std::int64_t rows = 3, padding = 2;
      const std::int64_t stride = columns + padding;
      const std::vector<T> x = random_values<T>(rows * stride, 1),
                           bias = random_values<T>(columns, 2);
      const std::vector<C> sum = random_values<C>(rows * columns, 3);
      std::vector<T> expected = random_values<T>(rows * stride, 4);
      const DeviceArray<T> device_x(x), device_bias(bias), y(expected);
      const DeviceArray<C> device_sum(sum);
      math::add_residual<T>(Exec(), View<T**>(device_x.data(), rows, columns, stride),
                            device_sum.matrix(rows, columns),
                            has_bias ? device_bias.view() : View<T*>(),
                            View<T**>(y.data(), rows, columns, stride));
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) {
          const C term = has_bias ? sum[i * columns + j] + C(bias[j]) : sum[i * columns + j];
          expected[i * stride + j] = static_cast<T>(C(x[i * stride + j]) + term);
        }
      EXPECT_TRUE(same_bits(y.host(), expected)) << columns << " columns, bias " << has_bias;
    }
}

TEST(Residual, IsAddedToTheSumAndTheBias) {
  check_residual<float>();
  check_residual<double>();
  check_residual<bf16>();
  check_residual<fp16>();
}

TEST(Residual, RefusesOtherShapes) {
  const DeviceArray<float> x(12, 0.0F), bias(5, 0.0F), y(12, 0.0F);
  const auto add = [&](View<float**> from, View<float**> sum, View<float*> more) {
    math::add_residual<float>(Exec(), from, sum, more, y.matrix(3, 4));
  };
  const View<float**> fits = x.matrix(3, 4), other = x.matrix(4, 3);
  EXPECT_NO_THROW(add(fits, fits, bias.view().range(0, 4)));
  EXPECT_THROW(add(other, fits, {}), Error);
  EXPECT_THROW(add(fits, other, {}), Error);
  EXPECT_THROW(add(fits, fits, bias), Error);
}

TYPED_TEST(Elementwise, ColumnSumsAgreeWithPlainLoops) {
  using T = TypeParam;
  for (std::int64_t rows : {0, 1, 63, 64, 65, 700, 2049})
    for (std::int64_t columns : {1, 17, 150, 256, 600}) {
      const std::int64_t stride = columns + 3;
      const std::vector<T> x = random_values<T>(rows * stride, rows + columns);
      const DeviceArray<T> device_x(x), sums(columns);
      math::column_sums<T>(Exec(), View<T**>(device_x.data(), rows, columns, stride), sums);
      std::vector<double> expected(columns, 0.0);
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) expected[j] += x[i * stride + j];
      EXPECT_LE(largest_difference(sums.host(), expected), sizeof(T) == 4 ? 2e-5 : 1e-13)
          << rows << " x " << columns;
    }
}

TYPED_TEST(Elementwise, ColumnSumsOfAPartAreThoseOfTheWhole) {
  using T = TypeParam;
  constexpr std::int64_t rows = 300, columns = 150, first = 41, last = 120;
  const DeviceArray<T> x(random_values<T>(rows * columns, 3)), whole(columns), part(last - first);
  const View<T**> matrix = x.matrix(rows, columns);
  math::column_sums<T>(Exec(), matrix, whole);
  math::column_sums<T>(Exec(), matrix.column_range(first, last), part);
  const std::vector<T> sums = whole.host();
  EXPECT_TRUE(same_bits(part.host(), std::vector<T>(sums.begin() + first, sums.begin() + last)));
}

// Every 512th row is added in order, then these sums by a tree, for any number of threads of a
// team.
TEST(ColumnSums, OrderFollowsFromTheShapeOnADevice) {
  if (!on_device) GTEST_SKIP() << "kernels run on the host";
  for (const std::int64_t rows : {0, 1, 500, 513, 5000})
    for (const std::int64_t columns : {1, 16, 20, 37}) {
      const std::vector<float> x = random_values<float>(rows * columns, 5);
      const DeviceArray<float> device_x(x), sums(columns);
      math::column_sums<float>(Exec(), device_x.matrix(rows, columns), sums);
      std::vector<float> expected(columns);
      for (std::int64_t c = 0; c < columns; ++c) {
        std::vector<float> lanes(512);
        for (std::int64_t r = 0; r < rows; ++r) lanes[r % 512] += x[r * columns + c];
        for (std::int64_t half = 256; half > 0; half /= 2)
          for (std::int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
        expected[c] = lanes[0];
      }
      EXPECT_TRUE(same_bits(sums.host(), expected)) << rows << " x " << columns;
    }
}

// Added one after the other, 100,000 floats of 0.1 would have an error of 1.4e-4.
TEST(ColumnSums, RoundingStaysSmallOverManyRows) {
  constexpr std::int64_t rows = 100000;
  const DeviceArray<float> x(std::vector<float>(rows, 0.1f)), sum(1);
  math::column_sums<float>(Exec(), x.matrix(rows, 1), sum);
  EXPECT_NEAR(sum.host()[0] / (rows * static_cast<double>(0.1f)), 1.0, 2e-5);
}

}  // namespace
