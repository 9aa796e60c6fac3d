// SPDX-License-Identifier: Apache-2.0
#pragma once

// ordered_gemm() by the vector instructions of one kind of processor. The sources
// tile_kernels_*.cpp are compiled for these, so this header has plain declarations only.

#include <cstdint>
#include <ostrakon/math/ordered_gemm.hpp>

namespace ostrakon::math {
// Sizes for a nearest cache of 32 KiB, a second of 512 KiB or more, and a share of some MiB in a
// third.

/// Rows of A that are packed at a time: a multiple of every tile's.
constexpr std::int64_t block_rows = 1344;
/// Columns of B that are packed at a time.
constexpr std::int64_t panel_columns = 256;
/// So many rows use a sliver of B, one tile wide, as soon as it is packed.
constexpr std::int64_t few_rows = 252;
/// So many need no packed B.
constexpr std::int64_t line_rows = 4;
/// Elements of a B that few rows read where it lies.
constexpr std::int64_t small_matrix = std::int64_t{1} << 17;
/// Columns of C for which an A that lies in the order of tiles is not packed.
constexpr std::int64_t few_columns = 64;

/// Floats of packed A, whose slivers of 6 rows take room for 8; and all that a kernel writes into,
/// 2 MiB.
constexpr std::int64_t packed_a_floats = block_rows / 6 * 8 * product_chunk;
constexpr std::int64_t tile_room = panel_columns * product_chunk + packed_a_floats;

using TileMultiply = void (*)(const OrderedProduct&, const float* a, const float* b, float* c,
                              float* room);

void tile_multiply_plain(const OrderedProduct&, const float* a, const float* b, float* c,
                         float* room);
void tile_multiply_avx2(const OrderedProduct&, const float* a, const float* b, float* c,
                        float* room);
void tile_multiply_avx512(const OrderedProduct&, const float* a, const float* b, float* c,
                          float* room);

}  // namespace ostrakon::math
