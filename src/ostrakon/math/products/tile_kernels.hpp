// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels of ordered_gemm() for the vector instructions of one kind of processor. The sources
// tile_kernels_*.cpp are compiled for these instructions, so this header has plain declarations
// only.

#include <cstdint>
#include <ostrakon/math/products/ordered_gemm.hpp>

namespace ostrakon::math {
// Block sizes are chosen for an L1 cache of 32 KiB, an L2 cache of 512 KiB or more, and a share of
// some MiB of L3.

/// Rows of A that are packed at a time: a multiple of the rows of every tile.
constexpr std::int64_t block_rows = 1344;
/// Columns of B that are packed at a time.
constexpr std::int64_t panel_columns = 256;
/// Up to this number of rows, a sliver of B, one tile wide, is used as soon as it is packed.
constexpr std::int64_t few_rows = 252;
/// Up to this number of rows, B is not packed.
constexpr std::int64_t line_rows = 4;
/// Elements of a B that products of few rows read in place.
constexpr std::int64_t small_matrix = std::int64_t{1} << 17;
/// Up to this number of columns of C, an A that is stored in the order of tiles is not packed.
constexpr std::int64_t few_columns = 64;

/// Columns of a 16-bit C whose sums are kept in float at a time, if not all terms are packed.
constexpr std::int64_t kept_columns = 4 * panel_columns;

/// Floats of packed A and of a vector behind it: block_rows rows of product_chunk terms, or fewer
/// rows of more terms. tile_room: a kernel's whole workspace, 2 MiB, and 5.25 MiB more for a C of
/// 16 bits.
constexpr std::int64_t packed_a_floats = 7 * product_chunk * product_chunk;
constexpr std::int64_t tile_room = panel_columns * product_chunk + packed_a_floats;
constexpr std::int64_t tile_room_16bit = tile_room + block_rows * kept_columns;

/// bf16 and fp16 as bits, without member functions: these sources would compile such functions for
/// their instructions, and the linker might use them for all sources.
struct Bf16Bits {
  std::uint16_t bits;
};
struct Fp16Bits {
  std::uint16_t bits;
};

template <class T, class C>
using TileMultiply = void (*)(const OrderedProduct&, const T* a, const T* b, C* c, float* room);

/// The products for one kind of processor. `room`: tile_room floats, or tile_room_16bit for a C of
/// 16 bits, not initialised.
struct TileKernels {
  const char* name;
  TileMultiply<float, float> of_float;
  TileMultiply<Bf16Bits, float> of_bf16;
  TileMultiply<Bf16Bits, Bf16Bits> of_bf16_to_bf16;
  TileMultiply<Fp16Bits, float> of_fp16;
  TileMultiply<Fp16Bits, Fp16Bits> of_fp16_to_fp16;
};

const TileKernels& tile_kernels_plain();
const TileKernels& tile_kernels_avx2();
const TileKernels& tile_kernels_avx512();

}  // namespace ostrakon::math
