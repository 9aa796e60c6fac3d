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

/// Columns of a C of 16 bits whose sums are kept in float at a time, where not all terms are
/// packed.
constexpr std::int64_t kept_columns = 4 * panel_columns;

/// Floats of packed A and of a vector behind it: block_rows of product_chunk terms, or fewer rows
/// of more. And all that a kernel writes into, 2 MiB, and 5.25 more for a C of 16 bits.
constexpr std::int64_t packed_a_floats = 7 * product_chunk * product_chunk;
constexpr std::int64_t tile_room = panel_columns * product_chunk + packed_a_floats;
constexpr std::int64_t tile_room_16bit = tile_room + block_rows * kept_columns;

/// bf16 and fp16 as bits: types without functions, which these sources would compile for their
/// instructions and the linker might take for all.
struct Bf16Bits {
  std::uint16_t bits;
};
struct Fp16Bits {
  std::uint16_t bits;
};

template <class T, class C>
using TileMultiply = void (*)(const OrderedProduct&, const T* a, const T* b, C* c, float* room);

/// All products of one kind of processor. `room`: tile_room floats, for a C of 16 bits
/// tile_room_16bit, whatever is in them.
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
