// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostrakon/math/block_team.hpp>
#include <ostrakon/math/byte_count.hpp>
#include <ostrakon/math/fp8/product.hpp>
#include <ostrakon/math/fp8/quantize.hpp>
#include <ostrakon/math/team_cluster.hpp>

#include "math/compare.hpp"
#include "math/fp8/fp8_matrices.hpp"
#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using test::expect_equal;
using test::Matrix;
using test::on_host;
using test::random_values;
using test::rounded;
using test::spread_values;

template <class T>
class Fp8Kernels : public ::testing::Test {};
using Fp8Elements = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Fp8Kernels, Fp8Elements);

TYPED_TEST(Fp8Kernels, RoundAndQuantizeByRowsAndColumns) {
  using T = TypeParam;
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                      {5, 33},
                                      {64, 70},
                                      {130, 129},
                                      {200, 64},
                                      {2100, 40},
                                      {4400, 24},
                                      {8400, 8},
                                      {45000, 8},
                                      {3, 20000},
                                      {2, 33000}})
    for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
      std::vector<T> values = spread_values<T>(rows, columns, 1);
      if (rows > 100) {
        values[static_cast<std::size_t>(7 * columns + 4)] =
            T(std::numeric_limits<float>::infinity());
        values[static_cast<std::size_t>(9 * columns)] = T(std::numeric_limits<float>::quiet_NaN());
      }
      const DeviceArray<T> x(values), by_row(rows * columns), by_column(rows * columns);
      const DeviceArray<std::uint32_t> maxima(column_maxima_workspace(rows, columns));
      const View<const T**> in = x.matrix(rows, columns);
      round_rows<T>(Exec(), format, in, by_row.matrix(rows, columns));
      round_columns<T>(Exec(), format, in, by_column.matrix(rows, columns), maxima);
      const Matrix given = on_host(x, rows, columns);
      const Matrix of_rows = rounded(format, given, false),
                   of_columns = rounded(format, given, true);
      expect_equal(on_host(by_row, rows, columns), of_rows, "rows");
      expect_equal(on_host(by_column, rows, columns), of_columns, "columns");

      /// `expected`: where `quantize` puts (r, c).
      const auto check_codes = [&](std::int64_t outer, std::int64_t inner, const auto& expected,
                                   const auto& quantize) {
        const std::int64_t padded = (inner + 15) / 16 * 16;
        const DeviceArray<std::uint8_t> codes(std::vector<std::uint8_t>(
            static_cast<std::size_t>(outer * padded), std::uint8_t{0x55}));
        const DeviceArray<float> scales(outer);
        quantize(Fp8Rows{format, codes.matrix(outer, padded), scales.view()});
        const std::vector<std::uint8_t> all = codes.host();
        const std::vector<float> factors = scales.host();
        for (std::int64_t r = 0; r < outer; ++r)
          for (std::int64_t c = 0; c < padded; ++c) {
            const std::uint8_t code = all[static_cast<std::size_t>(r * padded + c)];
            const double value =
                factors[static_cast<std::size_t>(r)] * double{float_of_fp8(format, code)};
            if (c >= inner)
              ASSERT_TRUE(code == 0 || std::isnan(value)) << r << " " << c;
            else if (const double e = expected(r, c); std::isnan(e))
              ASSERT_TRUE(std::isnan(value)) << r << " " << c;
            else
              ASSERT_EQ(value, e) << r << " " << c;
          }
      };
      check_codes(rows, columns, of_rows,
                  [&](const Fp8Rows& to) { quantize_rows<T>(Exec(), in, to); });
      for (const std::int64_t pieces : {1, 2}) {
        if (rows % pieces != 0 || (on_device && columns % 8 != 0)) continue;
        const std::int64_t run = rows / pieces;
        const Matrix of_pieces = rounded(format, given, true, run);
        check_codes(
            pieces * columns, run,
            [&, n = columns](std::int64_t r, std::int64_t c) {
              return of_pieces(r / n * run + c, r % n);
            },
            [&](const Fp8Rows& to) { quantize_columns<T>(Exec(), in, pieces, to); });
      }
    }
}

#if defined(OSTRAKON_COUNT_BYTES)
// What a device reads and writes, as plans have it. A matrix is read once up to the sizes that a
// team, or of columns a cluster, keeps on chip, and moves at most 1.25 times what must be up
// to 1.45 times these.
TYPED_TEST(Fp8Kernels, ReadsAMatrixOnce) {
  using T = TypeParam;
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{128, 4096},
                                      {2048, 64},
                                      {8192, 64},
                                      {16384, 32},
                                      {22128, 16},
                                      {40960, 16},
                                      {88512, 16},
                                      {128000, 8},
                                      {160000, 8},
                                      {32, 16384},
                                      {32, 57856},
                                      {32, 84000},
                                      {16, 120000}})
    for (const bool by_columns : {false, true}) {
      const std::int64_t outer = by_columns ? columns : rows, inner = by_columns ? rows : columns;
      const DeviceArray<T> x(random_values<T>(rows * columns, 1));
      const DeviceArray<std::uint8_t> codes(rows * columns);
      const DeviceArray<float> scales(outer);
      const Fp8Rows to{Fp8Format::e4m3, codes.matrix(outer, inner), scales.view()};
      const auto bytes = static_cast<double>(sizeof(T)),
                 numbers = static_cast<double>(rows * columns);
      const ByteCount of_x(x.data(), static_cast<std::size_t>(x.size()) * sizeof(T));
      const ByteCount of_codes(codes.data(), static_cast<std::size_t>(codes.size()));
      if (by_columns)
        quantize_columns<T>(Exec(), x.matrix(rows, columns), 1, to);
      else
        quantize_rows<T>(Exec(), x.matrix(rows, columns), to);
      const double reads = static_cast<double>(of_x.read()) / (bytes * numbers);
      EXPECT_EQ(of_codes.read() + of_x.written(), 0);
      EXPECT_EQ(static_cast<double>(of_codes.written()), numbers);
      EXPECT_DOUBLE_EQ(reads, device_reads(by_columns, inner, sizeof(T))) << rows << " " << columns;
      if (inner <= (by_columns ? 88512 : 57856)) {
        EXPECT_EQ(reads, 1.0) << rows << " " << columns;
      }
      if (inner <= (by_columns ? 128000 : 84000)) {
        EXPECT_LE(reads * bytes + 1, 1.25 * (bytes + 1)) << rows << " " << columns;
      }
    }
}

// With the shared memory of compute capabilities 8.9 and 9.0, with room for one run, and with none.
TYPED_TEST(Fp8Kernels, ColumnsHaveTheSameCodesWhateverStaysInSharedMemory) {
  using T = TypeParam;
  constexpr std::int64_t rows = 22484, columns = 16, padded = 22496;
  EXPECT_EQ(kept_of_column(rows, 0), 0);
  const DeviceArray<T> x(spread_values<T>(rows, columns, 1));
  std::vector<std::uint8_t> first;
  for (const std::int64_t memory :
       {226 << 10, 98 << 10, static_cast<int>(memory_of_maxima) + 256, 8192}) {
    const TeamMemoryLimit limit(memory);
    const ClusterLimit alone(1);
    const DeviceArray<std::uint8_t> codes(columns * padded);
    const DeviceArray<float> scales(columns);
    const ByteCount of_x(x.data(), static_cast<std::size_t>(x.size()) * sizeof(T));
    quantize_columns<T>(Exec(), x.matrix(rows, columns), 1,
                        {Fp8Format::e4m3, codes.matrix(columns, padded), scales.view()});
    const std::int64_t twice = rows - held_of_column - kept_of_column(rows, memory);
    EXPECT_EQ(static_cast<double>(of_x.read()),
              static_cast<double>((rows + twice) * columns) * sizeof(T))
        << memory;
    if (first.empty()) first = codes.host();
    EXPECT_EQ(codes.host(), first) << memory;
  }
  // Of three teams the last one has fewer rows than threads.
  for (const int teams : {2, 3}) {
    const TeamMemoryLimit limit(8192);
    const ClusterLimit cluster(teams);
    const DeviceArray<std::uint8_t> codes(columns * padded);
    const DeviceArray<float> scales(columns);
    quantize_columns<T>(Exec(), x.matrix(rows, columns), 1,
                        {Fp8Format::e4m3, codes.matrix(columns, padded), scales.view()});
    EXPECT_EQ(codes.host(), first) << teams;
  }
}
#endif

/// op(A) op(B) + onto in double, and the sum of the terms' absolute values.
std::pair<Matrix, Matrix> product(const Matrix& a, bool turn_a, const Matrix& b, bool turn_b) {
  const std::int64_t m = turn_a ? a.columns : a.rows, k = turn_a ? a.rows : a.columns;
  const std::int64_t n = turn_b ? b.rows : b.columns;
  Matrix sum{m, n, std::vector<double>(static_cast<std::size_t>(m * n))}, size = sum;
  for (std::int64_t r = 0; r < m; ++r)
    for (std::int64_t c = 0; c < n; ++c)
      for (std::int64_t i = 0; i < k; ++i) {
        const double term = (turn_a ? a(i, r) : a(r, i)) * (turn_b ? b(c, i) : b(i, c));
        sum(r, c) += term;
        size(r, c) += std::abs(term);
      }
  return {sum, size};
}

/// Sums of k terms in float, and one rounding to C. Tensor cores of compute capability 9.0 add
/// products of 8-bit numbers with 14 bits (DeepSeek-V3, 3.3.2), before they add these sums in
/// float.
template <class C>
void expect_near(const Matrix& c, const Matrix& expected, const Matrix& size, std::int64_t k) {
  const double of_sum = products_on_device ? 0x1p-12 : static_cast<double>(k) * 0x1p-23;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double of_result = is_16bit<C> ? 0x1p-8 * std::abs(expected.values[i]) : 0.0;
    ASSERT_LE(std::abs(c.values[i] - expected.values[i]), of_sum * size.values[i] + of_result) << i;
  }
}

/// Those of fp8 and mxfp8 that can be multiplied here.
std::vector<ProductDType> dtypes_here() {
  std::vector<ProductDType> all;
  for (const ProductDType dtype : {ProductDType::fp8, ProductDType::mxfp8})
    if (why_no_fp8(dtype).empty()) all.push_back(dtype);
  return all;
}

template <class T>
class Fp8Products : public ::testing::Test {};
TYPED_TEST_SUITE(Fp8Products, Fp8Elements);

TYPED_TEST(Fp8Products, MultiplyRoundedOperands) {
  using T = TypeParam;
  using C = compute_t<T>;
  const std::int64_t m = 48, n = 32, k = 288;
  enum class Adds { nothing, in_place, apart };
  for (const ProductDType dtype : dtypes_here())
    for (const bool turn_b : {true, false})
      for (const Adds adds : {Adds::nothing, Adds::in_place, Adds::apart}) {
        const Fp8Formats formats{turn_b ? Fp8Format::e4m3 : Fp8Format::e5m2, Fp8Format::e4m3,
                                 dtype};
        const std::int64_t run = dtype == ProductDType::mxfp8 ? 32 : 0;
        const std::int64_t rows_of_b = turn_b ? n : k, columns_of_b = turn_b ? k : n;
        const DeviceArray<T> a(spread_values<T>(m, k, 1));
        const DeviceArray<T> b(spread_values<T>(rows_of_b, columns_of_b, 2));
        const DeviceArray<T> before(random_values<T>(m * n, 3)), c(random_values<T>(m * n, 3));
        const DeviceArray<std::byte> workspace(fp8_gemm_workspace<T>(dtype, m, n, k));
        const auto multiply = [&](std::int64_t begin, std::int64_t end, const DeviceArray<T>& to) {
          const View<T**> rows = to.matrix(m, n).row_range(begin, end);
          fp8_gemm<T>(Exec(), formats, Transpose::no, turn_b ? Transpose::yes : Transpose::no,
                      View<const T**>(a.matrix(m, k).row_range(begin, end)),
                      View<const T**>(b.matrix(rows_of_b, columns_of_b)),
                      adds == Adds::nothing    ? View<const T**>()
                      : adds == Adds::in_place ? View<const T**>(rows)
                                               : before.matrix(m, n).row_range(begin, end),
                      rows, workspace.view());
        };
        multiply(0, m, c);
        auto [expected, size] =
            product(rounded(formats.a, on_host(a, m, k), false, run), false,
                    rounded(formats.b, on_host(b, rows_of_b, columns_of_b), !turn_b, run), turn_b);
        const Matrix addends = on_host(before, m, n);
        for (std::size_t i = 0; i < expected.values.size() && adds != Adds::nothing; ++i) {
          expected.values[i] += addends.values[i];
          size.values[i] += std::abs(addends.values[i]);
        }
        expect_near<T>(on_host(c, m, n), expected, size, k);
        // A part of the rows has the bits of all.
        const DeviceArray<T> in_parts(random_values<T>(m * n, 3));
        multiply(0, 16, in_parts);
        multiply(16, m, in_parts);
        EXPECT_TRUE(test::same_bits(in_parts.host(), c.host()));
        if (adds == Adds::nothing) {
          const DeviceArray<C> sums(m * n);
          fp8_gemm<T, C>(Exec(), formats, Transpose::no, turn_b ? Transpose::yes : Transpose::no,
                         View<const T**>(a.matrix(m, k)),
                         View<const T**>(b.matrix(rows_of_b, columns_of_b)), View<const C**>(),
                         sums.matrix(m, n), workspace.view());
          expect_near<C>(on_host(sums, m, n), expected, size, k);
        }
      }
}

TYPED_TEST(Fp8Products, ByPieceHaveScalesOfEachPiece) {
  using T = TypeParam;
  using C = compute_t<T>;
  const std::int64_t m = 48, n = 32, k = 288;
  // Rows of A become smaller, and those of B larger, so that all pieces count, but are not what
  // they should be with a scale of all rows.
  const auto values = [&](std::int64_t columns, std::uint64_t seed, int sign) {
    std::vector<T> all = random_values<T>(k * columns, seed);
    for (std::int64_t i = 0; i < k * columns; ++i) {
      T& value = all[static_cast<std::size_t>(i)];
      value = static_cast<T>(
          std::ldexp(static_cast<float>(value), sign * static_cast<int>(i / columns / 12)));
    }
    return all;
  };
  const DeviceArray<T> a(values(m, 1, -1)), b(values(n, 2, 1));
  for (const auto& [dtype, pieces] : {std::pair<ProductDType, std::int64_t>{ProductDType::fp8, 1},
                                      {ProductDType::fp8, 3},
                                      {ProductDType::fp8, 6},
                                      {ProductDType::mxfp8, 1},
                                      {ProductDType::mxfp8, 9}}) {
    if (!why_no_fp8(dtype).empty()) continue;
    const Fp8Formats formats{Fp8Format::e5m2, Fp8Format::e4m3, dtype};
    const DeviceArray<std::byte> workspace(fp8_gemm_by_piece_workspace<T>(dtype, m, n, k, pieces));
    const DeviceArray<C> c(m * n);
    fp8_gemm_by_piece<T>(Exec(), formats, View<const T**>(a.matrix(k, m)),
                         View<const T**>(b.matrix(k, n)), c.matrix(m, n), pieces, workspace.view());
    const std::int64_t run = dtype == ProductDType::mxfp8 ? 32 : k / pieces;
    const auto [expected, size] = product(rounded(formats.a, on_host(a, k, m), true, run), true,
                                          rounded(formats.b, on_host(b, k, n), true, run), false);
    expect_near<C>(on_host(c, m, n), expected, size, k);
  }
}

TYPED_TEST(Fp8Products, NumbersThatAreNotFiniteStaySo) {
  using T = TypeParam;
  const std::int64_t m = 32, n = 16, k = 64;
  for (const ProductDType dtype : dtypes_here())
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<T> values = random_values<T>(m * k, 1);
      values[static_cast<std::size_t>(5 * k + 7)] = T(bad);
      const DeviceArray<T> a(values), b(random_values<T>(n * k, 2)), c(m * n);
      const DeviceArray<std::byte> workspace(fp8_gemm_workspace<T>(dtype, m, n, k));
      fp8_gemm<T>(Exec(), {Fp8Format::e4m3, Fp8Format::e4m3, dtype}, Transpose::no, Transpose::yes,
                  View<const T**>(a.matrix(m, k)), View<const T**>(b.matrix(n, k)),
                  View<const T**>(), c.matrix(m, n), workspace.view());
      const Matrix result = on_host(c, m, n);
      for (std::int64_t r = 0; r < m; ++r)
        for (std::int64_t j = 0; j < n; ++j) EXPECT_EQ(std::isfinite(result(r, j)), r != 5) << r;
    }
}

TEST(Fp8ProductErrors, AskForRoomAndEqualPieces) {
  const DeviceArray<float> x(64 * 64);
  const DeviceArray<std::byte> small(64);
  EXPECT_THROW(
      fp8_gemm<float>(Exec(), {}, Transpose::no, Transpose::yes,
                      View<const float**>(x.matrix(64, 64)), View<const float**>(x.matrix(64, 64)),
                      View<const float**>(), x.matrix(64, 64), small.view()),
      Error);
  EXPECT_THROW(fp8_gemm_by_piece<float>(Exec(), {}, View<const float**>(x.matrix(64, 64)),
                                        View<const float**>(x.matrix(64, 64)), x.matrix(64, 64), 5,
                                        small.view()),
               Error);
  // Blocks are whole.
  const DeviceArray<std::byte> room(1 << 20);
  const Fp8Formats blocks{Fp8Format::e4m3, Fp8Format::e4m3, ProductDType::mxfp8};
  EXPECT_THROW(
      fp8_gemm<float>(Exec(), blocks, Transpose::no, Transpose::yes,
                      View<const float**>(x.matrix(48, 48)), View<const float**>(x.matrix(48, 48)),
                      View<const float**>(), x.matrix(48, 48), room.view()),
      Error);
  EXPECT_THROW(fp8_gemm_by_piece<float>(Exec(), blocks, View<const float**>(x.matrix(64, 64)),
                                        View<const float**>(x.matrix(64, 64)), x.matrix(64, 64), 4,
                                        room.view()),
               Error);
}

}  // namespace
}  // namespace ostrakon::math
