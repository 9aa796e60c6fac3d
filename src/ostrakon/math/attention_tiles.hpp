// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention on the host in tiles of queries by keys that stay in the nearest caches, by the vector
// instructions of one kind of processor. The sources attention_tiles_*.cpp are compiled for these,
// so this header has plain declarations only. Elements T are float, Bf16Bits or Fp16Bits; 16 bits
// become float where they are read, and all is computed in float.
//
// All sums are chains of fused multiply-adds in an order that depends on positions alone, as
// ordered_gemm()'s: bits depend neither on the processor nor on which queries are in a tile, but
// for the sign of a zero.

#include <cstdint>
#include <ostrakon/math/tile_kernels.hpp>

namespace ostrakon::math {

/// Queries, and keys, of a tile: those whose positions have the same quotient.
constexpr std::int64_t attention_tile = 64;
/// Columns of the widest head that tiles have room for.
constexpr std::int64_t attention_tile_width = 256;

/// Rows of a matrix `row` elements apart.
template <class T>
struct AttentionRows {
  const T* first;
  std::int64_t row;
};

/// Rows that are read or written after the tiles at work, as those of the next head: brought from
/// memory meanwhile, a few with each product of some rows.
template <class T>
struct AttentionAhead {
  AttentionRows<T> arrays[7];
  std::int64_t count;  ///< of the arrays
  std::int64_t rows;   ///< of each
  std::int64_t width;  ///< elements of a row
  std::int64_t at_once;
  std::int64_t row = 0, array = 0;  ///< what is next: all arrays' first rows come first
};

/// Queries [begin, end) of one head, all in one tile.
template <class T>
struct AttentionQueryTile {
  std::int64_t begin, end;  ///< positions
  std::int64_t head_width;
  float scale;               ///< of scores
  AttentionAhead<T>* ahead;  ///< or null
};

/// Forward: `keys` and `values` begin at position 0. Row i of `out`, out_row elements apart, is
/// that of query begin + i; its scores have the largest value largest[i] and, less that, the sum of
/// exponentials total[i].
template <class T>
struct AttentionForwardTile : AttentionQueryTile<T> {
  AttentionRows<T> queries, keys, values;
  T* out;
  std::int64_t out_row;
  float* largest;
  float* total;
};

/// The keys [begin, end) of one head whose gradients are summed up, all in one tile, and their
/// values.
template <class T>
struct AttentionKeyTile {
  std::int64_t begin, end;
  std::int64_t head_width;
  float scale;
  AttentionRows<T> keys, values;  ///< from `begin` on
};

/// Backward: what some queries add to the gradients of a key tile, dkeys and dvalues, of rows
/// attention_row() apart; and to their own gradient, or with key tile 0 that is set.
template <class T>
struct AttentionBackwardTile : AttentionQueryTile<T> {
  std::int64_t key_begin, key_end;
  AttentionRows<T> queries, dout;
  const float* log_sum_exp;  ///< from `begin` on, as delta
  const float* delta;        ///< the sum of dout times out of each row
  float* dqueries;
  std::int64_t dqueries_row;
  float* dkeys;
  float* dvalues;
};

/// head_width rounded up to whole vectors.
constexpr std::int64_t attention_row(std::int64_t head_width) {
  return (head_width + 15) / 16 * 16;
}

/// Floats that a tile writes into, aligned to cache lines.
constexpr std::int64_t attention_tile_room =
    attention_tile * (7 * attention_tile_width + 2 * attention_tile + 4);

/// Where in `room` there is space for the gradients of a key tile and of its values, one after the
/// other: 2 * attention_tile * attention_row(head_width) floats that the kernels leave alone.
inline float* attention_sums(std::int64_t head_width, float* room) {
  return room +
         attention_tile * (2 * head_width + 3 * attention_row(head_width) + 2 * attention_tile + 1);
}

template <class T>
struct AttentionTileKernel {
  void (*forward)(const AttentionForwardTile<T>&, float* room);
  /// Brings keys and values into `room` for the calls of backward that follow.
  void (*pack_keys)(const AttentionKeyTile<T>&, float* room);
  void (*backward)(const AttentionBackwardTile<T>&, float* room);
};

/// For one set of instructions.
struct AttentionTileKernels {
  AttentionTileKernel<float> of_float;
  AttentionTileKernel<Bf16Bits> of_bf16;
  AttentionTileKernel<Fp16Bits> of_fp16;
};

AttentionTileKernels attention_tiles_plain();
AttentionTileKernels attention_tiles_avx2();
AttentionTileKernels attention_tiles_avx512();

/// Those of this processor.
const AttentionTileKernels& attention_tiles();

/// Bytes of attention_room().
std::int64_t attention_room_bytes();
/// This thread's, from its first use on: attention_tile_room floats.
float* attention_room();

}  // namespace ostrakon::math
