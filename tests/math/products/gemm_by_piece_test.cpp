// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/gemm_facts.hpp>
#include <string>
#include <vector>

#include "math/compare.hpp"
#include "support/device_array.hpp"

namespace {

using namespace ostrakon;
using math::Transpose;
using test::DeviceArray;
using test::random_values;

/// Returns the order of additions as text: "((0+1)+2)".
std::string tree_text(std::int64_t pieces) {
  std::vector<std::string> slots(static_cast<std::size_t>(math::tree_slots(pieces)));
  math::sum_pieces(
      pieces, [&](std::int64_t slot, std::int64_t piece) { slots.at(slot) = text(piece); },
      [&](std::int64_t from, std::int64_t to) {
        EXPECT_EQ(from, to + 1);
        slots[to] = text("(", slots[to], "+", slots.at(from), ")");
      });
  return slots[0];
}

TEST(PieceTree, HasTheLargestPowerOfTwoOnItsLeft) {
  EXPECT_EQ(tree_text(1), "0");
  EXPECT_EQ(tree_text(2), "(0+1)");
  EXPECT_EQ(tree_text(3), "((0+1)+2)");
  EXPECT_EQ(tree_text(4), "((0+1)+(2+3))");
  EXPECT_EQ(tree_text(7), "(((0+1)+(2+3))+((4+5)+6))");
  EXPECT_EQ(tree_text(8), "(((0+1)+(2+3))+((4+5)+(6+7)))");
}

template <class T>
class GemmByPiece : public ::testing::Test {};
using Elements = ::testing::Types<float, double, bf16, fp16>;
TYPED_TEST_SUITE(GemmByPiece, Elements);

/// Computes the products of pieces one by one, and adds them by the tree.
template <class T>
std::vector<compute_t<T>> one_by_one(const DeviceArray<T>& a, const DeviceArray<T>& b,
                                     std::int64_t k, std::int64_t m, std::int64_t n,
                                     std::int64_t pieces) {
  using C = compute_t<T>;
  std::vector<std::vector<C>> slots(static_cast<std::size_t>(math::tree_slots(pieces)));
  const std::int64_t terms = k / pieces;
  math::sum_pieces(
      pieces,
      [&](std::int64_t slot, std::int64_t piece) {
        DeviceArray<C> c(m * n);
        math::gemm<T, C>(Exec(), Transpose::yes, Transpose::no, 1,
                         View<const T**>(a.data() + piece * terms * m, terms, m),
                         View<const T**>(b.data() + piece * terms * n, terms, n), 0,
                         View<C**>(c.data(), m, n));
        slots.at(slot) = c.host();
      },
      [&](std::int64_t from, std::int64_t to) {
        for (std::size_t i = 0; i < slots[to].size(); ++i) slots[to][i] += slots[from][i];
      });
  return slots[0];
}

TYPED_TEST(GemmByPiece, IsTheTreeOfItsPieces) {
  using T = TypeParam;
  using C = compute_t<T>;
  struct Case {
    std::int64_t k, m, n, pieces;
  };
  // Pieces within one chunk of terms, and longer ones; more rows of C than are summed at a time.
  for (const Case& x : {Case{96, 40, 33, 1}, Case{96, 40, 33, 3}, Case{512, 48, 70, 2},
                        Case{512, 48, 70, 8}, Case{2400, 17, 64, 8}, Case{56, 700, 8192, 7}}) {
    const DeviceArray<T> a(random_values<T>(x.k * x.m, 1));
    const DeviceArray<T> b(random_values<T>(x.k * x.n, 2));
    DeviceArray<C> c(std::vector<C>(static_cast<std::size_t>(x.m * x.n), C(7)));
    DeviceArray<C> workspace(math::gemm_by_piece_workspace(x.m, x.n, x.pieces));
    math::gemm_by_piece<T>(Exec(), View<const T**>(a.data(), x.k, x.m),
                           View<const T**>(b.data(), x.k, x.n), View<C**>(c.data(), x.m, x.n),
                           x.pieces, workspace.view());
    const std::vector<C> expected = one_by_one<T>(a, b, x.k, x.m, x.n, x.pieces);
    SCOPED_TRACE(text(x.k, " terms, ", x.m, " by ", x.n, ", ", x.pieces, " pieces"));
    constexpr DType dtype = std::is_same<T, bf16>::value   ? DType::bf16
                            : std::is_same<T, fp16>::value ? DType::fp16
                                                           : DType::fp32;
    const bool cuts_rows = x.m == 700;
    if (!cuts_rows || math::is_row_partition_invariant(dtype)) {
      EXPECT_EQ(c.host(), expected);
      continue;
    }
    const std::vector<C> found = c.host();
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-4) << i;
  }
}

TYPED_TEST(GemmByPiece, AddsAsAWholeWhereItSaysSo) {
  using T = TypeParam;
  using C = compute_t<T>;
  constexpr std::int64_t m = 19, n = 35;
  for (const std::int64_t terms : {1, 7, 255, 256, 257, 600}) {
    EXPECT_EQ(math::adds_as_a_whole<T>(terms),
              (products_on_device || (std::is_same<T, float>::value && terms <= 256)));
    if (!math::adds_as_a_whole<T>(terms)) continue;
    const DeviceArray<T> a(random_values<T>(m * terms, 1)), b(random_values<T>(terms * n, 2));
    const std::vector<C> before = random_values<C>(m * n, 3);
    const DeviceArray<C> product(m * n), added(before);
    const auto multiply = [&](C beta, const DeviceArray<C>& to) {
      math::gemm<T, C>(Exec(), Transpose::no, Transpose::no, 1, a.matrix(m, terms),
                       b.matrix(terms, n), beta, to.matrix(m, n));
    };
    multiply(0, product);
    multiply(1, added);
    std::vector<C> expected = product.host();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
    EXPECT_TRUE(test::same_bits(added.host(), expected)) << terms;
    // One piece is added in the same way.
    const DeviceArray<C> piece(m * n), onto(before);
    const auto multiply_piece = [&](const DeviceArray<C>& to, C beta) {
      math::gemm_by_piece<T>(Exec(), a.matrix(terms, m), b.matrix(terms, n), to.matrix(m, n), 1, {},
                             beta);
    };
    multiply_piece(piece, 0);
    multiply_piece(onto, 1);
    expected = piece.host();
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
    EXPECT_TRUE(test::same_bits(onto.host(), expected)) << terms;
    EXPECT_THROW(math::gemm_by_piece<T>(Exec(), a.matrix(2 * (terms / 2), m),
                                        b.matrix(2 * (terms / 2), n), onto.matrix(m, n), 2, {}, 1),
                 Error);
  }
}

/// Products of some columns of A with some rows of B, as pieces of a layer have them.
TYPED_TEST(GemmByPiece, SumOfProductsIsTheTreeOfThem) {
  using T = TypeParam;
  using C = compute_t<T>;
  constexpr std::int64_t m = 21, n = 34;
  for (const std::int64_t terms : {40, 256, 300})
    for (const std::int64_t pieces : {1, 2, 3, 6, 8}) {
      const std::int64_t k = pieces * terms;
      const DeviceArray<T> a(random_values<T>(m * k, 1)), b(random_values<T>(k * n, 2));
      const auto multiply = [&](std::int64_t piece, C beta, View<C**> to) {
        const std::int64_t begin = piece * terms, end = begin + terms;
        math::gemm<T, C>(Exec(), Transpose::no, Transpose::no, 1,
                         a.matrix(m, k).column_range(begin, end),
                         b.matrix(k, n).row_range(begin, end), beta, to);
      };
      const DeviceArray<C> sum(m * n), workspace((math::tree_slots(pieces) - 1) * m * n);
      std::vector<std::int64_t> order;
      const auto matrix_of = [&](std::int64_t i) {
        return i == 0 ? sum.matrix(m, n)
                      : View<C*>(workspace).range((i - 1) * m * n, i * m * n).matrix(m, n);
      };
      for (std::int64_t piece = 0; piece < pieces; ++piece)
        math::sum_product<T>(Exec(), piece, pieces, terms, matrix_of, [&](C beta, View<C**> to) {
          order.push_back(piece);
          multiply(piece, beta, to);
        });

      std::vector<std::vector<C>> slots(static_cast<std::size_t>(math::tree_slots(pieces)));
      std::vector<std::int64_t> all;
      math::sum_pieces(
          pieces,
          [&](std::int64_t slot, std::int64_t piece) {
            const DeviceArray<C> product(m * n);
            multiply(piece, 0, product.matrix(m, n));
            slots[slot] = product.host();
            all.push_back(piece);
          },
          [&](std::int64_t from, std::int64_t to) {
            for (std::size_t i = 0; i < slots[to].size(); ++i) slots[to][i] += slots[from][i];
          });
      EXPECT_TRUE(test::same_bits(sum.host(), slots[0])) << pieces << " pieces of " << terms;
      EXPECT_EQ(order, all);
    }
}

TEST(AddMatrix, AddsRowsWhereverTheyAre) {
  constexpr std::int64_t rows = 5, columns = 37, stride = 40;
  const std::vector<float> from = random_values<float>(rows * stride, 1);
  std::vector<float> expected = random_values<float>(rows * stride, 2);
  const DeviceArray<float> terms(from), sum(expected);
  math::add_matrix<float>(Exec(), View<float**>(terms.data(), rows, columns, stride),
                          View<float**>(sum.data(), rows, columns, stride));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) expected[i * stride + j] += from[i * stride + j];
  EXPECT_TRUE(test::same_bits(sum.host(), expected));
}

TEST(GemmByPieces, RefusesPiecesThatDoNotFit) {
  DeviceArray<float> a(30), c(100);
  EXPECT_THROW(math::gemm_by_piece<float>(Exec(), View<const float**>(a.data(), 10, 3),
                                          View<const float**>(a.data(), 10, 3),
                                          View<float**>(c.data(), 3, 3), 4, {}),
               Error);
  EXPECT_THROW(math::gemm_by_piece<float>(Exec(), View<const float**>(a.data(), 10, 3),
                                          View<const float**>(a.data(), 10, 3),
                                          View<float**>(c.data(), 3, 3), 5, {}),
               Error);  // no workspace
}

/// Runs have any length, including 0, which adds +0.
TYPED_TEST(GemmByPiece, RunsNeedNotBeEqual) {
  using T = TypeParam;
  using C = compute_t<T>;
  const std::int64_t rows = 700, m = 20, n = 33;
  const std::vector<std::int64_t> offsets = {5, 5, 18, 307, 307, 600};
  const auto pieces = static_cast<std::int64_t>(offsets.size()) - 1;
  const DeviceArray<T> a(random_values<T>(rows * m, 1)), b(random_values<T>(rows * n, 2));
  const DeviceArray<C> workspace(math::gemm_by_piece_workspace(m, n, pieces)), c(m * n);
  math::gemm_by_run<T>(Exec(), a.matrix(rows, m), b.matrix(rows, n), c.matrix(m, n),
                       host_view(offsets), workspace);
  // Each run is computed alone, as on a rank that has no other.
  std::vector<std::vector<C>> slots(static_cast<std::size_t>(math::tree_slots(pieces)));
  math::sum_pieces(
      pieces,
      [&](std::int64_t slot, std::int64_t piece) {
        const std::vector<std::int64_t> alone = {offsets[piece], offsets[piece + 1]};
        const DeviceArray<C> one(m * n);
        math::gemm_by_run<T>(Exec(), a.matrix(rows, m), b.matrix(rows, n), one.matrix(m, n),
                             host_view(alone), {});
        slots.at(slot) = one.host();
      },
      [&](std::int64_t from, std::int64_t to) {
        for (std::size_t i = 0; i < slots[to].size(); ++i) slots[to][i] += slots[from][i];
      });
  EXPECT_TRUE(test::same_bits(c.host(), slots[0]));
}

/// Rows in chunks, the last one padded, as for a library, and by gemm_by_row.
TYPED_TEST(GemmByPiece, RowsHaveTheirBitsInAnyCompany) {
  using T = TypeParam;
  if (std::is_same<T, double>::value) GTEST_SKIP() << "a CBLAS promises nothing";
  const std::int64_t rows = 101, k = 300, n = 37;
  const DeviceArray<T> a(random_values<T>(rows * k, 1)), b(random_values<T>(n * k, 2));
  for (const std::int64_t at_once : {math::rows_of_a_product<T>, std::int64_t{16}}) {
    if (at_once == 0 && !math::is_partition_invariant<T>()) continue;
    const DeviceArray<T> workspace(math::gemm_by_row_workspace<T>(k, n, at_once));
    const auto multiply = [&](std::int64_t begin, std::int64_t end) {
      const DeviceArray<T> c((end - begin) * n);
      math::gemm_by_row<T>(
          Exec(), Transpose::yes, View<const T**>(a.matrix(rows, k).row_range(begin, end)),
          View<const T**>(b.matrix(n, k)), c.matrix(end - begin, n), workspace, at_once);
      return c.host();
    };
    const std::vector<T> all = multiply(0, rows);
    EXPECT_TRUE(multiply(7, 7).empty());
    for (const auto& [begin, end] : {std::pair{0, 1}, std::pair{3, 20}, std::pair{50, 101}})
      EXPECT_TRUE(test::same_bits(multiply(begin, end),
                                  std::vector<T>(all.begin() + begin * n, all.begin() + end * n)))
          << begin << " to " << end << ", " << at_once << " at once";
  }
}

}  // namespace
