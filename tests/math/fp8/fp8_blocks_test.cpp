// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <ostrakon/math/byte_count.hpp>
#include <ostrakon/math/fp8/blocks.hpp>

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
class Fp8Blocks : public ::testing::Test {};
using Fp8BlockElements = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(Fp8Blocks, Fp8BlockElements);

/// Where cuBLASLt looks for the scale of a block, by its documentation of "1D block scaling": tiles
/// of 128 rows and 4 blocks, in a tile 32 runs of 16 bytes, of rows r, r + 32, r + 64 and r + 96.
std::size_t place_of_scale(std::int64_t row, std::int64_t block, std::int64_t blocks) {
  const std::int64_t tile = row / 128 * ((blocks + 3) / 4) + block / 4;
  return static_cast<std::size_t>(tile * 512 + row % 32 * 16 + row / 32 % 4 * 4 + block % 4);
}

TYPED_TEST(Fp8Blocks, HaveScalesWhereTheLibraryLooks) {
  using T = TypeParam;
  for (const auto& [rows, columns, pieces] :
       {std::array<std::int64_t, 3>{32, 32, 1}, {96, 160, 3}, {256, 64, 2}, {160, 288, 1}})
    for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
      std::vector<T> values = spread_values<T>(rows, columns, 1);
      values[static_cast<std::size_t>(7 * columns + 4)] = T(std::numeric_limits<float>::infinity());
      values[static_cast<std::size_t>(9 * columns)] = T(std::numeric_limits<float>::quiet_NaN());
      const DeviceArray<T> x(values), by_row(rows * columns), by_column(rows * columns);
      const View<const T**> in = x.matrix(rows, columns);
      round_row_blocks<T>(Exec(), format, in, by_row.matrix(rows, columns));
      round_column_blocks<T>(Exec(), format, in, by_column.matrix(rows, columns));
      const Matrix given = on_host(x, rows, columns);
      const Matrix of_rows = rounded(format, given, false, 32);
      const Matrix of_columns = rounded(format, given, true, 32);
      expect_equal(on_host(by_row, rows, columns), of_rows, "rows");
      expect_equal(on_host(by_column, rows, columns), of_columns, "columns");

      const auto check = [&](std::int64_t matrices, std::int64_t outer, std::int64_t inner,
                             const auto& expected, const auto& quantize) {
        const std::int64_t blocks = inner / 32;
        const std::int64_t bytes = (outer + 127) / 128 * ((blocks + 3) / 4) * 512;
        ASSERT_EQ(block_scales_bytes(outer, inner), bytes);
        const DeviceArray<std::uint8_t> codes(matrices * outer * inner);
        const DeviceArray<std::uint8_t> scales(std::vector<std::uint8_t>(
            static_cast<std::size_t>(matrices * bytes), std::uint8_t{0x55}));
        quantize(MxRows{format, codes.matrix(matrices * outer, inner), scales.view()});
        const std::vector<std::uint8_t> all = codes.host();
        std::vector<std::uint8_t> exponents = scales.host();
        for (std::int64_t r = 0; r < matrices * outer; ++r)
          for (std::int64_t b = 0; b < blocks; ++b) {
            std::uint8_t& exponent = exponents[static_cast<std::size_t>(r / outer * bytes) +
                                               place_of_scale(r % outer, b, blocks)];
            const double scale = exponent == 0xFF ? std::numeric_limits<double>::quiet_NaN()
                                                  : std::ldexp(1.0, exponent - 127);
            exponent = 0;
            for (std::int64_t c = b * 32; c < (b + 1) * 32; ++c) {
              const double value =
                  scale *
                  double{float_of_fp8(format, all[static_cast<std::size_t>(r * inner + c)])};
              if (const double e = expected(r, c); std::isnan(e))
                ASSERT_TRUE(std::isnan(value)) << r << " " << c;
              else
                ASSERT_EQ(value, e) << r << " " << c;
            }
          }
        // Those of no block are 0.
        EXPECT_EQ(exponents, std::vector<std::uint8_t>(exponents.size()));
      };
      check(1, rows, columns, of_rows,
            [&](const MxRows& to) { quantize_row_blocks<T>(Exec(), in, to); });
      const std::int64_t run = rows / pieces;
      check(
          pieces, columns, run,
          [&, n = columns](std::int64_t r, std::int64_t c) {
            return of_columns(r / n * run + c, r % n);
          },
          [&, p = pieces](const MxRows& to) { quantize_column_blocks<T>(Exec(), in, p, to); });
    }
}

#if defined(OSTRAKON_COUNT_BYTES)
TYPED_TEST(Fp8Blocks, AreReadAndWrittenOnce) {
  using T = TypeParam;
  constexpr std::int64_t rows = 128, columns = 1088;
  const DeviceArray<T> x(random_values<T>(rows * columns, 1));
  for (const bool by_columns : {false, true}) {
    const std::int64_t outer = by_columns ? columns : rows, inner = by_columns ? rows : columns;
    const DeviceArray<std::uint8_t> codes(rows * columns), scales(block_scales_bytes(outer, inner));
    const ByteCount of_x(x.data(), static_cast<std::size_t>(x.size()) * sizeof(T));
    const ByteCount of_codes(codes.data(), static_cast<std::size_t>(codes.size()));
    const MxRows to{Fp8Format::e4m3, codes.matrix(outer, inner), scales.view()};
    if (by_columns)
      quantize_column_blocks<T>(Exec(), x.matrix(rows, columns), 1, to);
    else
      quantize_row_blocks<T>(Exec(), x.matrix(rows, columns), to);
    EXPECT_EQ(of_x.read(), x.size() * static_cast<std::int64_t>(sizeof(T)));
    EXPECT_EQ(of_codes.written(), codes.size());
    EXPECT_EQ(of_x.written() + of_codes.read(), 0);
  }
}
#endif

}  // namespace
}  // namespace ostrakon::math
