// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention in tiles for one set of vector instructions. Like tile_kernel.hpp, it is included only
// by sources for one set of instructions: attention_tiles_*.cpp.
//
// Forward stores scores with a row for each key, so that neighbouring queries are the elements of a
// vector: softmax needs no sum within a vector, and keys are read in place. It passes over the keys
// once, and rescales sums when a larger score appears (Dao et al. 2022). Backward has a row for
// each query: queries and their gradients are read in place, and only the keys of a tile are
// transposed, once for all queries.

#include <ostrakon/math/attention/attention_tile_sums.hpp>
#include <ostrakon/math/attention/attention_tiles.hpp>
#include <ostrakon/math/products/tile_kernel.hpp>

namespace ostrakon::math {
namespace {

/// The direction of A (rows, terms) that has the stride: rows are `stride` elements apart, or terms
/// are.
enum class Reads { along_rows, along_terms };

/// I: the instructions. T: the element type of arrays.
template <class I, class T>
struct AttentionTiles : AttentionTileSums<I> {
  using Base = AttentionTileSums<I>;
  using Store = typename Base::Store;
  using Add = typename Base::Add;
  using Rescale = typename Base::Rescale;
  using StoreLargest = typename Base::StoreLargest;
  using Probabilities = typename Base::Probabilities;
  using ScoreGradients = typename Base::ScoreGradients;
  using CappedScoreGradients = typename Base::CappedScoreGradients;
  using Base::exp2;
  using Base::log2_e;
  using Base::make_scores;
  static constexpr bool in_float = sizeof(T) == sizeof(float);
  using Ahead = AttentionPrefetch<T>;
  using Vector = typename I::Vector;
  static constexpr std::int64_t width = I::width;
  static constexpr std::int64_t block = attention_tile;
  /// Granularity of queries at the triangle of visible keys: at least a vector, equal for all
  /// instructions.
  static constexpr std::int64_t step = 16;
  static_assert(step % width == 0 && block % step == 0, "whole vectors");

  static std::int64_t up_to_step(std::int64_t x) { return (x + step - 1) / step * step; }
  static std::int64_t largest_of(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
  static std::int64_t down_to_step(std::int64_t x) { return x < 0 ? 0 : x / step * step; }

  template <int rows, int vectors, Reads reads, class Sums>
  static void tile(std::int64_t terms, const float* a, std::int64_t stride, const float* b,
                   std::int64_t b_row, const Sums& to) {
    Vector sums[rows][vectors];
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[i][v] = to.begin(i, v);
    // Three rows are addressed from one base, as instructions can add a register or twice that.
    constexpr int groups = reads == Reads::along_rows ? (rows + 2) / 3 : 1;
    const float* group[groups];
#pragma GCC unroll 16
    for (int g = 0; g < groups; ++g) group[g] = a + std::int64_t{3} * g * stride;
#pragma GCC unroll 4
    for (std::int64_t term = 0; term < terms; ++term) {
      Vector factors[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) factors[v] = I::load(b + v * width);
#pragma GCC unroll 16
      for (int i = 0; i < rows; ++i) {
        const Vector factor =
            I::broadcast(reads == Reads::along_rows ? group[i / 3][i % 3 * stride] : group[0][i]);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v)
          sums[i][v] = I::multiply_add(factor, factors[v], sums[i][v]);
      }
      b += b_row;
#pragma GCC unroll 16
      for (int g = 0; g < groups; ++g) group[g] += reads == Reads::along_rows ? 1 : stride;
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) to.end(i, v, sums[i][v]);
  }

  static void fetch(Ahead* ahead) {
    if (ahead == nullptr) return;
    for (std::int64_t i = 0; i < ahead->at_once && ahead->row < ahead->rows; ++i) {
      const AttentionRows<T>& array = ahead->arrays[ahead->array];
      const T* const from = array.first + ahead->row * array.row;
      constexpr std::int64_t line = in_float ? 16 : 32;
      for (std::int64_t j = 0; j < ahead->width; j += line) __builtin_prefetch(from + j, 0, 2);
      if (++ahead->array == ahead->count) ahead->array = 0, ++ahead->row;
    }
  }

  template <int vectors, Reads reads, class Sums>
  static void tile_rows(Ahead* ahead, std::int64_t rows, std::int64_t terms, const float* a,
                        std::int64_t stride, const float* b, std::int64_t b_row, const Sums& to) {
    constexpr int most = I::rows_of(vectors);
    const std::int64_t a_row = reads == Reads::along_rows ? stride : 1;
    std::int64_t i = 0;
    for (; i + most <= rows; i += most) {
      fetch(ahead);
      tile<most, vectors, reads>(terms, a + i * a_row, stride, b, b_row, to.moved(i, 0));
    }
    for (; i + 4 <= rows; i += 4)
      tile<4, vectors, reads>(terms, a + i * a_row, stride, b, b_row, to.moved(i, 0));
    for (; i < rows; ++i)
      tile<1, vectors, reads>(terms, a + i * a_row, stride, b, b_row, to.moved(i, 0));
  }

  /// Multiplies `rows` rows of A by `columns` columns, whole vectors, of B (terms, columns), whose
  /// rows are b_row apart.
  template <Reads reads, class Sums>
  static void multiply(Ahead* ahead, std::int64_t rows, std::int64_t columns, std::int64_t terms,
                       const float* a, std::int64_t stride, const float* b, std::int64_t b_row,
                       const Sums& to) {
    const Parts parts(columns / width, I::most_vectors);
    for (std::int64_t part = 0; part < parts.count; ++part) {
      const std::int64_t v = parts.begin(part);
      const float* const from = b + v * width;
      const Sums sums = to.moved(0, v);
      switch (parts.length(part)) {
        case 1:
          tile_rows<1, reads>(ahead, rows, terms, a, stride, from, b_row, sums);
          break;
        case 2:
          tile_rows<2, reads>(ahead, rows, terms, a, stride, from, b_row, sums);
          break;
        default:
          if constexpr (I::most_vectors > 2) {
            if (parts.length(part) == 3)
              tile_rows<3, reads>(ahead, rows, terms, a, stride, from, b_row, sums);
            else
              tile_rows<4, reads>(ahead, rows, terms, a, stride, from, b_row, sums);
          }
      }
    }
  }

  /// Copies `rows` rows of `columns` elements contiguously, padded with zeros to attention_row().
  static void copy_rows(const AttentionRows<T>& from, std::int64_t rows, std::int64_t columns,
                        float* to) {
    const std::int64_t row = attention_row(columns), whole = columns - columns % width;
    for (std::int64_t i = 0; i < rows; ++i) {
      const T* const in = from.first + i * from.row;
      float* const out = to + i * row;
      std::int64_t j = 0;
      for (; j < whole; j += width) I::store(out + j, I::load(in + j));
      for (; j < columns; ++j) out[j] = TileKernel<I>::float_of(in[j]);
      for (; j < row; ++j) out[j] = 0.0f;
    }
  }

  /// Transposes `rows` rows into columns of `block`: element (i, j) goes to to[j * block + i].
  /// Elements beyond the last row, up to the end of a step, are undefined.
  static void transpose_rows(const AttentionRows<T>& from, std::int64_t rows, std::int64_t columns,
                             float* to) {
    for (std::int64_t i = 0; i < up_to_step(rows); i += width)
      TileKernel<I>::pack_lines(from.first + least(i, rows - 1) * from.row, from.row,
                                i < rows ? least(width, rows - i) : 1, columns, to + i, block);
  }

  /// Returns rows of float: in place if they are float, else copied.
  static AttentionRows<float> rows_of_float(const AttentionRows<T>& from, bool in_place,
                                            std::int64_t rows, std::int64_t columns, float* copy) {
    if constexpr (in_float)
      if (in_place) return from;
    copy_rows(from, rows, columns, copy);
    return {copy, attention_row(columns)};
  }

  static void forward(const AttentionForwardTile<T>& t, float* room) {
    const std::int64_t queries = t.end - t.begin, lanes = up_to_step(queries);
    const std::int64_t value_width = t.width_of_values(), row = attention_row(value_width);
    float* const turned = room;                           // queries, (head_width, block)
    float* const scores = turned + block * t.head_width;  // then probabilities, (keys, block)
    float* const sums = scores + block * block;           // sums of values, (queries, row)
    float* const copy = sums + block * row;               // values, (keys, row)
    float* const largest = copy + block * row;            // per query
    float* const before = largest + block;
    float* const total = before + block;
    float* const factor = total + block;
    float* const key_copy = factor + block;  // keys, (keys, attention_row(head_width))
    const bool changes = t.changes();
    const float times = changes ? 1.0f : t.scale;  // `scores` times that are scores
    const float scale = times * log2_e;
    transpose_rows(t.queries, queries, t.head_width, turned);
    // A query may see no key of its first tile: differences to a finite number are not NaN.
    const bool may_see_none = t.window > 0 || t.document_begins != nullptr;
    const float least_score = may_see_none ? -3e38f : -__builtin_inff();
    for (std::int64_t i = 0; i < block; ++i) largest[i] = least_score, total[i] = 0.0f;
    for (std::int64_t i = 0; i < queries * row; i += width) I::store(sums + i, I::zero());
    const bool in_place = queries <= step && value_width % step == 0;
    for (std::int64_t first = t.first_tile(); first < t.end; first += block) {
      const std::int64_t keys = least(block, t.end - first);
      const std::int64_t past = t.begin - first;           // query i sees keys up to past + i
      const bool cuts = t.first_key(queries - 1) > first;  // from keys, those that are no more seen
      const AttentionRows<float> key = rows_of_float(
          {t.keys.first + first * t.keys.row, t.keys.row}, true, keys, t.head_width, key_copy);
      for (std::int64_t i = 0; i < lanes; i += width) I::store(before + i, I::load(largest + i));
      if (keys <= past + 1 && !cuts && !changes) {
        multiply<Reads::along_rows>(t.ahead, keys, lanes, t.head_width, key.first, key.row, turned,
                                    block, StoreLargest{{scores, block}, largest});
      } else {
        std::int64_t seeing = 0;  // queries from it on see later keys alone
        for (std::int64_t j = 0; j < keys; j += step) {
          const std::int64_t some = least(step, keys - j), lane = down_to_step(j - past);
          multiply<Reads::along_rows>(t.ahead, some, lanes - lane, t.head_width,
                                      key.first + j * key.row, key.row, turned + lane, block,
                                      Store{scores + j * block + lane, block});
          for (std::int64_t k = j; k < j + some; ++k) {
            if (changes) make_scores(t, scores + k * block, nullptr, lane, lanes, past - k, 1);
            for (std::int64_t i = lane; i < least(k - past, lanes); ++i)
              scores[k * block + i] = -__builtin_inff();
            if (cuts) {
              while (seeing < queries && t.first_key(seeing) <= first + k) ++seeing;
              for (std::int64_t i = largest_of(lane, seeing); i < lanes; ++i)
                scores[k * block + i] = -__builtin_inff();
            }
            for (std::int64_t i = lane; i < lanes; i += width)
              I::store(largest + i,
                       I::larger(I::load(scores + k * block + i), I::load(largest + i)));
          }
        }
      }
      const AttentionRows<float> value = rows_of_float(
          {t.values.first + first * t.values.row, t.values.row}, in_place, keys, value_width, copy);
      for (std::int64_t i = 0; i < lanes; i += step) {
        const std::int64_t seen = least(keys, past + i + step), some = least(step, queries - i);
        for (std::int64_t l = i; l < i + step; l += width)
          exponentials(seen, scores + l, scale, largest + l, before + l, total + l, factor + l);
        if (keys > past + 1)
          multiply<Reads::along_terms>(t.ahead, some, row, seen, scores + i, block, value.first,
                                       value.row, Rescale{{sums + i * row, row}, factor + i});
      }
      if (keys <= past + 1)
        multiply<Reads::along_terms>(t.ahead, queries, row, keys, scores, block, value.first,
                                     value.row, Rescale{{sums, row}, factor});
    }
    if (t.sink != nullptr) add_sink(*t.sink, times, lanes, largest, total, factor);
    for (std::int64_t i = 0; i < queries; ++i) {
      t.largest[i] = t.sink != nullptr ? largest[i] : largest[i] * times;
      t.total[i] = total[i];
      const float inverse = (t.sink != nullptr ? factor[i] : 1.0f) / total[i];
      const float* const in = sums + i * row;
      T* const out = t.out + i * t.out_row;
      std::int64_t j = 0;
      for (; j + width <= value_width; j += width)
        I::store(out + j, I::multiply(I::load(in + j), I::broadcast(inverse)));
      if (j == value_width) continue;
      T rest[width];
      I::store(rest, I::multiply(I::load(in + j), I::broadcast(inverse)));
      for (std::int64_t l = 0; j + l < value_width; ++l) out[j + l] = rest[l];
    }
  }

  /// Replaces `keys` scores of a vector of queries by exponentials, relative to the largest score.
  /// Computes the factor for earlier exponentials, and adds to the total.
  static void exponentials(std::int64_t keys, float* scores, float scale_of_scores,
                           const float* largest, const float* before, float* total, float* factor) {
    const Vector scale = I::broadcast(scale_of_scores);
    const Vector most = I::load(largest);
    Vector even = I::zero(), odd = I::zero();
    std::int64_t j = 0;
    for (; j + 2 <= keys; j += 2) {
      float* const at = scores + j * block;
      const Vector a = exp2(I::multiply(I::subtract(I::load(at), most), scale));
      const Vector b = exp2(I::multiply(I::subtract(I::load(at + block), most), scale));
      I::store(at, a);
      I::store(at + block, b);
      even = I::add(even, a);
      odd = I::add(odd, b);
    }
    if (j < keys) {
      float* const at = scores + j * block;
      const Vector a = exp2(I::multiply(I::subtract(I::load(at), most), scale));
      I::store(at, a);
      even = I::add(even, a);
    }
    const Vector change = exp2(I::multiply(I::subtract(I::load(before), most), scale));
    I::store(factor, change);
    I::store(total, I::multiply_add(I::load(total), change, I::add(even, odd)));
  }

  /// Adds the exponential of the sink to the totals. Makes the largest scores, which were to be
  /// multiplied by `times`, those with the sink; `factor` is that for the sums of values.
  static void add_sink(float sink_score, float times, std::int64_t lanes, float* largest,
                       float* total, float* factor) {
    const Vector sink = I::broadcast(sink_score), to_log2 = I::broadcast(log2_e);
    for (std::int64_t i = 0; i < lanes; i += width) {
      const Vector before = I::multiply(I::load(largest + i), I::broadcast(times));
      const Vector most = I::larger(before, sink);
      const Vector change = exp2(I::multiply(I::subtract(before, most), to_log2));
      const Vector of_sink = exp2(I::multiply(I::subtract(sink, most), to_log2));
      I::store(largest + i, most);
      I::store(factor + i, change);
      I::store(total + i, I::multiply_add(I::load(total + i), change, of_sink));
    }
  }

  /// The workspace of backward.
  struct Backward {
    Backward(std::int64_t head_width, std::int64_t value_width, float* room)
        : row(attention_row(head_width)),
          value_row(attention_row(value_width)),
          turned_keys(room),
          turned_values(turned_keys + block * head_width),
          keys(turned_values + block * value_width),
          queries(keys + block * row),
          dout(queries + block * row),
          p(dout + block * value_row),
          dscores(p + block * block),
          delta(dscores + block * block) {}

    std::int64_t row, value_row;
    float* turned_keys;     ///< (head_width, block)
    float* turned_values;   ///< (value_width, block), scaled as scores
    float *keys, *queries;  ///< (block, row)
    float* dout;            ///< (block, value_row)
    float *p, *dscores;     ///< (queries, block)
    float* delta;           ///< (queries), multiplied by the scale of scores
  };

  static void pack_keys(const AttentionKeyTile<T>& t, float* room) {
    const std::int64_t value_width = t.width_of_values();
    const Backward to(t.head_width, value_width, room);
    const std::int64_t count = t.end - t.begin;
    copy_rows(t.keys, count, t.head_width, to.keys);
    transpose_rows(t.keys, count, t.head_width, to.turned_keys);
    transpose_rows(t.values, count, value_width, to.turned_values);
    const Vector scale = I::broadcast(t.scale);
    for (std::int64_t j = 0; j < value_width; ++j)
      for (std::int64_t i = 0; i < up_to_step(count); i += width) {
        float* const at = to.turned_values + j * block + i;
        I::store(at, I::multiply(scale, I::load(at)));
      }
  }

  static void backward(const AttentionBackwardTile<T>& t, float* room) {
    const std::int64_t head_width = t.head_width, value_width = t.width_of_values();
    const Backward work(head_width, value_width, room);
    const std::int64_t row = work.row, value_row = work.value_row;
    const std::int64_t queries = t.end - t.begin;
    const std::int64_t keys = least(t.key_end, t.end) - t.key_begin;
    const std::int64_t past = t.begin - t.key_begin;  // query i sees keys up to past + i
    copy_rows(t.queries, queries, head_width, work.queries);
    copy_rows(t.dout, queries, value_width, work.dout);
    for (std::int64_t i = 0; i < queries; ++i) work.delta[i] = t.delta[i] * t.scale;
    const bool cuts = t.first_key(queries - 1) > t.key_begin;
    const bool whole = keys <= past + 1 && !cuts;
    const std::int64_t rows_at_once = whole ? block : step;
    for (std::int64_t i = 0; i < queries; i += rows_at_once) {
      const std::int64_t some = least(rows_at_once, queries - i);
      const std::int64_t seen = least(keys, past + i + some), columns = up_to_step(seen);
      float* const p = work.p + i * block;
      float* const dscores = work.dscores + i * block;
      if (t.changes()) {
        multiply<Reads::along_rows>(t.ahead, some, columns, head_width, work.queries + i * row, row,
                                    work.turned_keys, block, Store{p, block});
        for (std::int64_t k = 0; k < some; ++k) {
          make_scores(t, p + k * block, dscores + k * block, 0, columns, past + i + k, -1);
          exponentials_of_row(columns, t.log_sum_exp[i + k], p + k * block);
        }
      } else {
        multiply<Reads::along_rows>(t.ahead, some, columns, head_width, work.queries + i * row, row,
                                    work.turned_keys, block,
                                    Probabilities{{p, block}, t.scale, t.log_sum_exp + i});
      }
      if (!whole)
        for (std::int64_t k = 0; k < some; ++k) {
          for (std::int64_t j = past + i + k + 1; j < columns; ++j) p[k * block + j] = 0.0f;
          if (!cuts) continue;
          for (std::int64_t j = 0; j < least(t.first_key(i + k) - t.key_begin, columns); ++j)
            p[k * block + j] = 0.0f;
        }
      const ScoreGradients gradients{{dscores, block}, p, work.delta + i};
      if (t.soft_cap > 0)
        multiply<Reads::along_rows>(t.ahead, some, columns, value_width, work.dout + i * value_row,
                                    value_row, work.turned_values, block,
                                    CappedScoreGradients{gradients});
      else
        multiply<Reads::along_rows>(t.ahead, some, columns, value_width, work.dout + i * value_row,
                                    value_row, work.turned_values, block, gradients);
      add_to_queries(t, work, i, some, seen);
    }
    const std::int64_t keys_at_once = whole ? block : step;
    for (std::int64_t j = 0; j < keys; j += keys_at_once) {
      const std::int64_t some = least(keys_at_once, keys - j);
      const std::int64_t first = whole || j < past ? 0 : j - past;
      multiply<Reads::along_terms>(t.ahead, some, value_row, queries - first,
                                   work.p + first * block + j, block, work.dout + first * value_row,
                                   value_row, Add{{t.dvalues + j * value_row, value_row}});
      multiply<Reads::along_terms>(t.ahead, some, row, queries - first,
                                   work.dscores + first * block + j, block,
                                   work.queries + first * row, row, Add{{t.dkeys + j * row, row}});
    }
  }

  /// Replaces the scores of a row of backward by e^(score - shift).
  static void exponentials_of_row(std::int64_t columns, float shift, float* p) {
    for (std::int64_t j = 0; j < columns; j += width)
      I::store(p + j, exp2(I::multiply(I::subtract(I::load(p + j), I::broadcast(shift)),
                                       I::broadcast(log2_e))));
  }

  /// Adds to the gradients of `count` queries from query i of the tile on, which see `seen` keys.
  static void add_to_queries(const AttentionBackwardTile<T>& t, const Backward& work,
                             std::int64_t i, std::int64_t count, std::int64_t seen) {
    const float* const dscores = work.dscores + i * block;
    float* const dqueries = t.dqueries + i * t.dqueries_row;
    const std::int64_t whole = t.head_width / width * width;
    if (whole > 0) {
      const Store to{dqueries, t.dqueries_row};
      if (t.key_begin == t.first_tile())
        multiply<Reads::along_rows>(t.ahead, count, whole, seen, dscores, block, work.keys,
                                    work.row, to);
      else
        multiply<Reads::along_rows>(t.ahead, count, whole, seen, dscores, block, work.keys,
                                    work.row, Add{to});
    }
    const std::int64_t rest = t.head_width - whole;
    if (rest == 0) return;
    // A vector is wider than the head, so a padded copy is used.
    float copy[block * width];
    for (std::int64_t k = 0; k < count; ++k)
      for (std::int64_t l = 0; l < width; ++l)
        copy[k * width + l] = t.key_begin == t.first_tile() || l >= rest
                                  ? 0.0f
                                  : dqueries[k * t.dqueries_row + whole + l];
    multiply<Reads::along_rows>(t.ahead, count, width, seen, dscores, block, work.keys + whole,
                                work.row, Add{{copy, width}});
    for (std::int64_t k = 0; k < count; ++k)
      for (std::int64_t l = 0; l < rest; ++l)
        dqueries[k * t.dqueries_row + whole + l] = copy[k * width + l];
  }

  static AttentionTileKernel<T> kernel() { return {forward, pack_keys, backward}; }
};

template <class I>
AttentionTileKernels attention_tiles_of() {
  return {AttentionTiles<I, float>::kernel(), AttentionTiles<I, Bf16Bits>::kernel(),
          AttentionTiles<I, Fp16Bits>::kernel()};
}

}  // namespace
}  // namespace ostrakon::math
