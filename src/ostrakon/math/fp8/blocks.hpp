// SPDX-License-Identifier: Apache-2.0
#pragma once

// Matrices in MXFP8: 8-bit numbers of which 32 adjacent ones share a scale, a power of two, as "OCP
// Microscaling Formats (MX) Specification", version 1.0, defines them. A scale follows from the
// largest of its numbers alone, by Fp8Scale: the smallest with which this one fits. The
// specification proposes half of it where the number is above 1.75 times a power of two, so that it
// saturates. T: float, double, bf16 or fp16; numbers are converted to float first.

#include <ostrakon/math/fp8/formats.hpp>
#include <ostrakon/math/view.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {

/// Numbers with one scale.
constexpr std::int64_t mx_block = 32;

/// Scales of a matrix are in the order of cuBLASLt: tiles of 128 rows and 4 blocks, one behind the
/// other along a row (cuBLAS documentation, "1D Block Scaling Factors Layout").
constexpr std::int64_t scale_tile_rows = 128, scale_tile_blocks = 4;

/// Bytes of the scales of a matrix (rows, columns).
KOKKOS_INLINE_FUNCTION constexpr std::int64_t block_scales_bytes(std::int64_t rows,
                                                                 std::int64_t columns) {
  return items_for(rows, scale_tile_rows) * scale_tile_rows *
         items_for(columns, mx_block * scale_tile_blocks) * scale_tile_blocks;
}

/// Returns the index of the scale of a row's block, in a matrix of so many columns.
KOKKOS_INLINE_FUNCTION constexpr std::int64_t scale_index(std::int64_t row, std::int64_t block,
                                                          std::int64_t columns) {
  const std::int64_t tiles = items_for(columns, mx_block * scale_tile_blocks);
  const std::int64_t tile = row / scale_tile_rows * tiles + block / scale_tile_blocks;
  return tile * scale_tile_rows * scale_tile_blocks + row % 32 * 16 +
         row % scale_tile_rows / 32 * scale_tile_blocks + block % scale_tile_blocks;
}

/// Matrices in MXFP8, one or several below each other.
struct MxRows {
  Fp8Format format = Fp8Format::e4m3;
  View<std::uint8_t**> codes;  ///< (matrices * rows, columns)
  View<std::uint8_t*> scales;  ///< exponents, biased by 127, of each matrix block_scales_bytes()
};

/// `to` = x (rows, columns), with blocks of each row. The columns are a multiple of 32.
template <class T>
void quantize_row_blocks(const Exec& exec, View<const T**> x, const MxRows& to);

/// `to`, a matrix (columns, rows / pieces) for each piece of x, which is a run of its rows, = the
/// piece transposed, with blocks of each column. The rows of a piece are a multiple of 32.
template <class T>
void quantize_column_blocks(const Exec& exec, View<const T**> x, std::int64_t pieces,
                            const MxRows& to);

/// `to` = x as quantize_row_blocks() rounds it, multiplied by the scales. It is exact in float and
/// bf16.
template <class T>
void round_row_blocks(const Exec& exec, Fp8Format format, View<const T**> x, View<T**> to);

/// `to` = x as quantize_column_blocks() rounds it, multiplied by the scales, and not transposed.
template <class T>
void round_column_blocks(const Exec& exec, Fp8Format format, View<const T**> x, View<T**> to);

}  // namespace ostrakon::math
