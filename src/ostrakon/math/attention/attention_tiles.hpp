// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention on the host in tiles of queries by keys that stay in the L1 and L2 caches, for the
// vector instructions of one kind of processor. The sources attention_tiles_*.cpp are compiled for
// these instructions, so this header has plain declarations only. Elements T are float, Bf16Bits or
// Fp16Bits; 16-bit elements are converted to float when they are read, and all arithmetic is in
// float.
//
// All sums are chains of fused multiply-adds in an order that depends on positions alone, as in
// ordered_gemm(): except for the sign of a zero, bits depend neither on the processor nor on which
// queries share a tile.

#include <cstdint>
#include <ostrakon/math/products/tile_kernels.hpp>

namespace ostrakon::math {

/// Size of tiles of queries and of keys: a tile has the positions with the same quotient by it.
constexpr std::int64_t attention_tile = 64;
/// Largest head width that fits the tiles.
constexpr std::int64_t attention_tile_width = 256;

/// Rows of a matrix `row` elements apart.
template <class T>
struct AttentionRows {
  const T* first;
  std::int64_t row;
};

/// Rows that are used after the current tiles, such as those of the next head: they are prefetched,
/// some with each product.
template <class T>
struct AttentionPrefetch {
  AttentionRows<T> arrays[7];
  std::int64_t count;  ///< number of arrays
  std::int64_t rows;   ///< rows per array
  std::int64_t width;  ///< elements per row
  std::int64_t at_once;
  std::int64_t row = 0, array = 0;  ///< next row and array; the first rows of all arrays come first
};

/// Queries [begin, end) of one head, all in one tile.
template <class T>
struct AttentionQueryTile {
  std::int64_t begin, end;  ///< positions
  std::int64_t head_width;
  float scale;                  ///< scale of scores
  AttentionPrefetch<T>* ahead;  ///< may be null
  // See AttentionScores; 0: none.
  std::int64_t window = 0;
  float soft_cap = 0.0f;
  float slope = 0.0f;
  std::int64_t value_width = 0;  ///< of values and outputs; 0: head_width
  /// Where the documents of the queries begin, none before that of an earlier query. Null: at 0.
  const std::int32_t* document_begins = nullptr;

  std::int64_t width_of_values() const { return value_width > 0 ? value_width : head_width; }
  /// Whether scores are more than scaled products.
  bool changes() const { return soft_cap > 0.0f || slope > 0.0f; }
  /// The first key that query begin + i sees; later queries see none before it.
  std::int64_t first_key(std::int64_t i) const {
    const std::int64_t first = window > 0 && begin + i >= window ? begin + i - window + 1 : 0;
    return document_begins != nullptr && document_begins[i] > first ? document_begins[i] : first;
  }
  /// The first key of the first tile of keys that some query sees.
  std::int64_t first_tile() const { return first_key(0) / attention_tile * attention_tile; }
};

/// Inputs and outputs of forward: `keys` and `values` begin at position 0. Row i of `out`, out_row
/// elements apart, is that of query begin + i; largest[i] is its largest score, and total[i] the
/// sum of exponentials relative to it, both with the sink.
template <class T>
struct AttentionForwardTile : AttentionQueryTile<T> {
  AttentionRows<T> queries, keys, values;
  T* out;
  std::int64_t out_row;
  float* largest;
  float* total;
  const float* sink = nullptr;  ///< logit of the head's sink; may be null
};

/// The keys [begin, end) of one head, and their values, whose gradients are summed, all in one
/// tile.
template <class T>
struct AttentionKeyTile {
  std::int64_t begin, end;
  std::int64_t head_width;
  float scale;
  AttentionRows<T> keys, values;  ///< from row `begin` on
  std::int64_t value_width = 0;   ///< 0: head_width

  std::int64_t width_of_values() const { return value_width > 0 ? value_width : head_width; }
};

/// Inputs and outputs of backward: adds the contributions of some queries to the gradients of a key
/// tile, dkeys and dvalues, whose rows are attention_row() apart; and adds to the queries' own
/// gradient, which the first key tile that some of them sees overwrites.
template <class T>
struct AttentionBackwardTile : AttentionQueryTile<T> {
  std::int64_t key_begin, key_end;
  AttentionRows<T> queries, dout;
  const float* log_sum_exp;  ///< from query `begin` on, as delta
  const float* delta;        ///< the sum of dout * out of each row
  float* dqueries;
  std::int64_t dqueries_row;
  float* dkeys;
  float* dvalues;
};

/// Returns head_width rounded up to whole vectors.
constexpr std::int64_t attention_row(std::int64_t head_width) {
  return (head_width + 15) / 16 * 16;
}

/// Floats of a tile's workspace, aligned to cache lines.
constexpr std::int64_t attention_tile_room =
    attention_tile * (7 * attention_tile_width + 2 * attention_tile + 4);

/// Returns space in `room` for the gradients of a key tile and then of its values: attention_tile *
/// (attention_row(head_width) + attention_row(value_width)) floats that the kernels do not use.
inline float* attention_sums(std::int64_t head_width, std::int64_t value_width, float* room) {
  return room + attention_tile * (head_width + value_width + 2 * attention_row(head_width) +
                                  attention_row(value_width) + 2 * attention_tile + 1);
}

template <class T>
struct AttentionTileKernel {
  void (*forward)(const AttentionForwardTile<T>&, float* room);
  /// Packs keys and values into `room` for the calls of backward that follow.
  void (*pack_keys)(const AttentionKeyTile<T>&, float* room);
  void (*backward)(const AttentionBackwardTile<T>&, float* room);
};

/// The kernels for one set of instructions.
struct AttentionTileKernels {
  AttentionTileKernel<float> of_float;
  AttentionTileKernel<Bf16Bits> of_bf16;
  AttentionTileKernel<Fp16Bits> of_fp16;
};

AttentionTileKernels attention_tiles_plain();
AttentionTileKernels attention_tiles_avx2();
AttentionTileKernels attention_tiles_avx512();

/// Returns the kernels for this processor.
const AttentionTileKernels& attention_tiles();

/// Size of attention_room() in bytes.
std::int64_t attention_room_bytes();
/// Returns this thread's workspace of attention_tile_room floats, allocated at its first use.
float* attention_room();

}  // namespace ostrakon::math
