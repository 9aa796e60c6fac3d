// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/attention.hpp>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/attention_blocks.hpp>
#include <ostrakon/math/attention/attention_on_chip.hpp>
#include <ostrakon/math/attention/attention_tiles.hpp>
#include <ostrakon/math/convert_run.hpp>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/fast_divide.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/half_as_bits.hpp>
#include <ostrakon/math/row_kernel.hpp>
#include <ostrakon/math/scratch.hpp>
#include <type_traits>

namespace ostrakon::math {
namespace {

std::int64_t score_elements(const AttentionShape& shape, KernelForm form = kernel_form) {
  return attention_heads_at_once(shape, form) *
         std::min(attention_query_block_of(form), shape.tokens) * shape.tokens;
}

/// Whether some processors compute this attention in the tiles of attention_tiles.hpp.
template <class T>
bool attention_fits_tiles(const AttentionShape& shape, KernelForm form = kernel_form) {
  return !std::is_same<T, double>::value && !is_of_device(form) &&
         shape.head_width <= attention_tile_width;
}

/// Whether all processors do so. Otherwise the workspace fits both ways, so that its size does not
/// depend on the processor.
template <class T>
bool has_tiles_only(const AttentionShape& shape, KernelForm form) {
  return attention_fits_tiles<T>(shape, form) && !is_16bit<T>;
}

/// Whether this processor does so: one with units for 16-bit matrices multiplies faster than tiles
/// of float.
template <class T>
bool attention_in_tiles(const AttentionShape& shape) {
  if (!attention_fits_tiles<T>(shape)) return false;
  if constexpr (is_16bit<T>) return half_products<T>() == HalfProducts::in_float;
  return true;
}

/// Elements of the gradient of the keys, or of the values, that backward sums in compute_t<T>
/// before it is stored; 0 if it is summed in place.
template <class T>
std::int64_t kv_sum_elements(const AttentionShape& shape, std::int64_t pieces,
                             KernelForm form = kernel_form) {
  const bool rounds = is_16bit<T> && !attention_on_chip<T>(shape, form);
  return rounds || pieces > 1 ? attention_heads_at_once(shape, form) * shape.tokens *
                                    shape.head_width * tree_slots(pieces)
                              : 0;
}

template <class T>
T score_scale(const AttentionShape& shape) {
  return T(1) / std::sqrt(static_cast<T>(shape.head_width));
}

/// probabilities (heads * queries, keys) = the softmax of each row of scores over keys up to its
/// own token, 0 beyond. Scores are clobbered.
template <class T, class C = compute_t<T>>
void softmax_rows(const Exec& exec, const AttentionBlock& block, View<C**> scores,
                  View<T**> probabilities, View<C*> log_sum_exp, std::int64_t log_sum_exp_stride) {
  const std::int64_t queries = block.queries();
  const std::int64_t begin = block.begin;
  const std::int64_t keys = block.end;
  if (queries == 0) return;
  const FastDivide by_queries(queries);
  for_each_row(
      exec, "attend_softmax", block.count * queries, keys,
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t query = by_queries.rest(index);
        const std::int64_t seen = begin + query + 1;
        [[maybe_unused]] const std::int64_t unseen = keys - seen;
        const View<C*> p = scores.row(index);
        const View<T*> stored = stored_at(p, probabilities.row(index));
        const View<C*> visible = p.range(0, seen);
        const C largest = row.maximum_of([](std::int64_t, C score) { return score; }, p[seen - 1],
                                         p.range(0, seen - 1));
        C total;
        if constexpr (on_device) {  // computed twice, not stored and loaded
          total = row.template sum_of<C>(
              [=](std::int64_t, C score) { return fast_exp(score - largest); }, visible);
          const C inverse = C(1) / total;
          row.map([=](std::int64_t key,
                      C score) { return key < seen ? fast_exp(score - largest) * inverse : C(0); },
                  stored, p);
        } else {
          total = row.template sum<C>(seen, [&](std::int64_t key) {
            p[key] = fast_exp(p[key] - largest);
            return p[key];
          });
          const C inverse = C(1) / total;
          row.loop(seen, [&](std::int64_t key) { stored[key] = static_cast<T>(p[key] * inverse); });
          row.loop(unseen, [&](std::int64_t key) { stored[seen + key] = T(0); });
        }
        row.once([&] {
          log_sum_exp[by_queries.quotient(index) * log_sum_exp_stride + query] =
              largest + log(total);
        });
      });
}

/// Inputs of the backward kernel besides the scores, by row.
template <class T>
struct RowOperands {
  View<const compute_t<T>*> log_sum_exp;
  std::int64_t log_sum_exp_stride;
  View<const T**> out, dout;  ///< (queries, heads * head_width)
  std::int64_t head_width;
  std::int64_t first_column, head_stride;  ///< column of the first head; distance of heads
};

/// Computes probabilities P from scores, and dscores = P (dP - sum(dO O)) scale from
/// dprobabilities.
template <class T, class C = compute_t<T>>
void softmax_backward_rows(const Exec& exec, const AttentionBlock& block,
                           const RowOperands<T>& operands, C scale, View<C**> scores,
                           View<C**> dprobabilities, View<T**> probabilities, View<T**> dscores) {
  const std::int64_t queries = block.queries();
  const std::int64_t begin = block.begin;
  const std::int64_t keys = block.end;
  const RowOperands<T> from = operands;
  if (queries == 0) return;
  const FastDivide by_queries(queries);
  for_each_row(
      exec, "attend_backward", block.count * queries, keys,
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t query = by_queries.rest(index);
        const std::int64_t head = by_queries.quotient(index);
        const std::int64_t seen = begin + query + 1;
        [[maybe_unused]] const std::int64_t unseen = keys - seen;
        const C times = scale;
        const std::int64_t first = from.first_column + head * from.head_stride;
        const auto out = from.out.row(query).range(first, first + from.head_width);
        const auto dout = from.dout.row(query).range(first, first + from.head_width);
        const C delta = row.template sum_of<C>(
            [](std::int64_t, C o, C d) {
              return Product<C>{o, d};
            },
            out, dout);
        const C shift = from.log_sum_exp[head * from.log_sum_exp_stride + query];
        const View<C*> s = scores.row(index);
        const View<C*> dp = dprobabilities.row(index);
        const View<T*> p = stored_at(s, probabilities.row(index));
        const View<T*> ds = stored_at(dp, dscores.row(index));
        if constexpr (on_device) {
          row.map_two(
              [=](std::int64_t key, C score, C d) {
                const C probability = key < seen ? fast_exp(score - shift) : C(0);
                return Two<C, C>{key < seen ? probability * (d - delta) * times : C(0),
                                 probability};
              },
              ds, p, s, dp);
        } else {
          row.loop(seen, [&](std::int64_t key) {
            const C probability = fast_exp(s[key] - shift);
            ds[key] = static_cast<T>(probability * (dp[key] - delta) * times);
            p[key] = static_cast<T>(probability);
          });
          row.loop(unseen, [&](std::int64_t key) {
            p[seen + key] = T(0);
            ds[seen + key] = T(0);
          });
        }
      });
}

template <class T>
void clear_rows(const Exec& exec, View<T**> x) {
  for_each_row(
      exec, "attend_clear", x.rows(), x.columns(),
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        row.map([](std::int64_t) { return T(0); }, x.row(index));
      });
}

/// Sums the gradients of keys and values over blocks of queries and heads of a group, in place: in
/// their rows of dkv.
template <class T, bool apart>
class KvSums {
 public:
  KvSums(const AttentionShape&, std::int64_t, Scratch<T>&) {}
  Batch<T> keys(const Batch<T>& in_place, std::int64_t) const { return in_place; }
  Batch<T> values(const Batch<T>& in_place, std::int64_t) const { return in_place; }
  /// Clears the gradients of tokens from `seen` on, which no query of the first block sees.
  void clear(const Exec& exec, View<T**> dkeys, View<T**> dvalues, std::int64_t,
             std::int64_t seen) const {
    if (seen == dkeys.rows()) return;
    clear_rows<T>(exec, dkeys.row_range(seen, dkeys.rows()));
    clear_rows<T>(exec, dvalues.row_range(seen, dvalues.rows()));
  }
  void add(const Exec&, std::int64_t, std::int64_t) const {}
  void store(const Exec&, const View<T**>&, const View<T**>&, std::int64_t) const {}
};

/// Sums them in separate slots, in compute_t<T>: in 16 bits every block would round the sum, and
/// pieces are summed separately.
template <class T>
class KvSums<T, true> {
 public:
  using C = compute_t<T>;

  KvSums(const AttentionShape& shape, std::int64_t pieces, Scratch<T>& scratch)
      : tokens_(shape.tokens),
        width_(shape.head_width),
        slots_(tree_slots(pieces)),
        keys_(scratch.template take<C>(kv_sum_elements<T>(shape, pieces))),
        values_(scratch.template take<C>(kv_sum_elements<T>(shape, pieces))) {}
  template <class K>
  Batch<C> keys(const Batch<K>& in_place, std::int64_t slot) const {
    return like(in_place, in_slot(keys_, slot));
  }
  template <class K>
  Batch<C> values(const Batch<K>& in_place, std::int64_t slot) const {
    return like(in_place, in_slot(values_, slot));
  }

  /// The sums of a slot: (heads at once * tokens, head_width).
  View<C**> key_rows(std::int64_t slot) const { return in_rows(in_slot(keys_, slot)); }
  View<C**> value_rows(std::int64_t slot) const { return in_rows(in_slot(values_, slot)); }

  template <class K>
  void clear(const Exec& exec, const View<K**>& dkeys, const View<K**>&, std::int64_t slot,
             std::int64_t seen) const {
    if (seen == dkeys.rows()) return;
    clear_rows<C>(exec, key_rows(slot));
    clear_rows<C>(exec, value_rows(slot));
  }

  void add(const Exec& exec, std::int64_t from, std::int64_t to) const {
    for (const View<C*>& sums : {keys_, values_})
      add_to<C>(exec, View<const C*>(in_slot(sums, from)), in_slot(sums, to));
  }

  /// Stores the sums of `count` heads from the first slot in their columns of dkeys and dvalues.
  template <class K>
  void store(const Exec& exec, View<K**> dkeys, View<K**> dvalues, std::int64_t count) const {
    const std::int64_t tokens = tokens_;
    const std::int64_t width = width_;
    const View<const C*> keys = keys_;
    const View<const C*> values = values_;
    const FastDivide by_tokens(tokens);
    for_each_row(
        exec, "attend_store", count * tokens, width,
        KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
          const std::int64_t token = by_tokens.rest(index);
          const std::int64_t column = by_tokens.quotient(index) * width;
          const auto dkey = dkeys.row(token).range(column, column + width);
          const auto dvalue = dvalues.row(token).range(column, column + width);
          const auto key = keys.range(index * width, (index + 1) * width);
          const auto value = values.range(index * width, (index + 1) * width);
          row.map_two(
              [](std::int64_t, C a, C b) {
                return Two<C, C>{a, b};
              },
              dkey, dvalue, key, value);
        });
  }

 private:
  View<C*> in_slot(const View<C*>& all, std::int64_t slot) const {
    const std::int64_t elements = all.size() / slots_;
    return all.range(slot * elements, (slot + 1) * elements);
  }
  View<C**> in_rows(View<C*> sums) const { return sums.matrix(sums.size() / width_, width_); }
  template <class K>
  Batch<C> like(const Batch<K>& in_place, View<C*> sums) const {
    return Batch<C>::of_rows(sums.matrix(in_place.count() * tokens_, width_),
                             in_place.first().rows(), tokens_, in_place.count());
  }

  std::int64_t tokens_;
  std::int64_t width_;
  std::int64_t slots_;
  View<C*> keys_;
  View<C*> values_;
};

/// Returns the second of two matrices of (rows, columns) that follow each other.
template <class T>
View<T**> second_half(View<T*> all, std::int64_t rows, std::int64_t columns) {
  return all.matrix(2 * rows, columns).row_range(rows, 2 * rows);
}

template <class T>
void check_shapes(const AttentionShape& shape, const QueryRuns& queries, const View<const T**>& q,
                  const View<const T**>& kv, const View<const T**>& out, std::int64_t log_sum_exp) {
  require(shape.batch >= 0 && shape.tokens >= 1 && shape.heads >= 1 && shape.kv_heads >= 1 &&
              shape.head_width >= 1 && shape.heads % shape.kv_heads == 0,
          "attention: batch ", shape.batch, ", tokens ", shape.tokens, ", heads ", shape.heads,
          ", kv_heads ", shape.kv_heads, ", head width ", shape.head_width,
          ": expected positive sizes, and kv_heads a divisor of heads");
  queries.check(shape);
  const std::int64_t rows = shape.batch * queries.rows();
  const std::int64_t columns = shape.heads * shape.head_width;
  const std::int64_t kv_columns = 2 * shape.kv_heads * shape.head_width;
  require(q.rows() == rows && q.columns() >= columns && out.rows() == rows &&
              out.columns() >= columns && kv.rows() == shape.batch * shape.tokens &&
              kv.columns() == kv_columns,
          "attention: queries (", q.rows(), ", ", q.columns(), "), keys and values (", kv.rows(),
          ", ", kv.columns(), ") and out (", out.rows(), ", ", out.columns(), "), expected (", rows,
          ", ", columns, "), (", shape.batch * shape.tokens, ", ", kv_columns, ") and (", rows,
          ", ", columns, ")");
  require(log_sum_exp == rows * shape.heads, "attention: log_sum_exp has ", log_sum_exp,
          " elements, expected ", rows * shape.heads);
}

/// The number of elements of delta, (batch, heads, rows of queries).
std::int64_t delta_elements(const AttentionShape& shape) {
  return shape.batch * shape.heads * shape.tokens;
}

static_assert(attention_query_block_of(KernelForm::host) == attention_tile,
              "a block of queries is a tile");

/// Floats for the sums of a key tile and its values over the pieces of a sequence.
std::int64_t piece_sums(const AttentionShape& shape, std::int64_t pieces) {
  return pieces == 1 ? 0
                     : tree_slots(pieces) * 2 * attention_tile * attention_row(shape.head_width);
}

/// Floats for the gradients of the queries of a key/value head, if they are not summed in place.
template <class T>
std::int64_t query_sums(const AttentionShape& shape) {
  return is_16bit<T> ? shape.heads / shape.kv_heads * shape.tokens * attention_row(shape.head_width)
                     : 0;
}

/// Number of key/value heads per kernel of backward: in 16 bits, where each has sums of its
/// queries' gradients, at least 8, and at most what 16 MiB hold.
template <class T>
std::int64_t kv_heads_at_once(const AttentionShape& shape, std::int64_t pieces) {
  const std::int64_t all = shape.batch * shape.kv_heads;
  if constexpr (is_16bit<T>) {
    constexpr std::int64_t least = 8, most_floats = std::int64_t{4} << 20;
    const std::int64_t most = std::max(least, most_floats / query_sums<T>(shape));
    return items_for(all, std::max<std::int64_t>(1, items_for(all, most)));  // evenly divided
  }
  return pieces == 1 ? all : shape.kv_heads;
}

/// Bytes of workspace for backward in tiles.
template <class T>
std::int64_t tile_workspace(const AttentionShape& shape, std::int64_t pieces) {
  return scratch_elements<T, float>(delta_elements(shape) +
                                    kv_heads_at_once<T>(shape, pieces) *
                                        (piece_sums(shape, pieces) + query_sums<T>(shape)));
}

#if !OSTRAKON_ON_DEVICE
/// The element type that tile kernels use for T.
template <class T>
using TileElement = std::remove_pointer_t<decltype(bits_of(static_cast<T*>(nullptr)))>;

template <class T>
const AttentionTileKernel<TileElement<T>>& tile_kernel() {
  const AttentionTileKernels& all = attention_tiles();
  if constexpr (std::is_same<T, float>::value)
    return all.of_float;
  else if constexpr (std::is_same<T, bf16>::value)
    return all.of_bf16;
  else
    return all.of_fp16;
}

template <class T>
T* place_in(const View<T**>& x, std::int64_t row, std::int64_t column) {
  return x.data() + row * x.stride() + column;
}
template <class T>
AttentionRows<TileElement<std::remove_const_t<T>>> rows_at(const View<T**>& x, std::int64_t row,
                                                           std::int64_t column) {
  return {bits_of(place_in(x, row, column)), x.stride()};
}

/// Describes the rows to prefetch at these columns of a sequence; empty if they exceed a cache.
/// `products`: number of products of forward or backward during which they are prefetched.
template <class E>
AttentionPrefetch<E> ahead_of(std::initializer_list<AttentionRows<E>> arrays, std::int64_t rows,
                              std::int64_t width, std::int64_t products) {
  constexpr std::int64_t most_elements = std::int64_t{1} << 18;
  AttentionPrefetch<E> ahead{};
  for (const AttentionRows<E>& array : arrays)
    if (array.first != nullptr) ahead.arrays[ahead.count++] = array;
  ahead.width = width;
  if (ahead.count * rows * width <= most_elements) ahead.rows = rows;
  const std::int64_t tiles = items_for(rows, attention_tile);
  ahead.at_once = items_for(2 * ahead.count * attention_tile, products * (tiles + 1));
  return ahead;
}

/// Launches a kernel for each head of each sequence.
template <class T>
void forward_in_tiles(const Exec& exec, const AttentionShape& shape, const QueryRuns& runs,
                      const View<const T**>& q, const View<const T**>& kv, const View<T**>& out,
                      const View<float*>& log_sum_exp) {
  const float scale = score_scale<float>(shape);
  for_each_item(exec, "attend_forward", shape.batch * shape.heads, [=](std::int64_t item) {
    const std::int64_t sequence = item / shape.heads, head = item % shape.heads;
    const std::int64_t kv_head = head / (shape.heads / shape.kv_heads);
    const std::int64_t width = shape.head_width, key_row = sequence * shape.tokens;
    const auto keys = rows_at(kv, key_row, kv_head * width);
    const auto values = rows_at(kv, key_row, (shape.kv_heads + kv_head) * width);
    const auto& kernel = tile_kernel<T>();
    float* const room = attention_room();
    const std::int64_t next = std::min(item + 1, shape.batch * shape.heads - 1);
    const std::int64_t next_head = next % shape.heads, next_sequence = next / shape.heads;
    const std::int64_t next_row = next_sequence * runs.rows();
    const std::int64_t next_kv = next_head / (shape.heads / shape.kv_heads);
    constexpr std::int64_t products = 22;
    AttentionPrefetch<TileElement<T>> ahead =
        ahead_of({rows_at(q, next_row, next_head * width),
                  rows_at(kv, next_sequence * shape.tokens, next_kv * width),
                  rows_at(kv, next_sequence * shape.tokens, (shape.kv_heads + next_kv) * width),
                  rows_at(out, next_row, next_head * width)},
                 runs.rows(), width, products);
    for_each_query_block(
        runs.runs(), [&](std::int64_t index) { return runs.run(index); },
        [&](std::int64_t first, std::int64_t begin, std::int64_t end) {
          const std::int64_t row = sequence * runs.rows() + first, column = head * width;
          float largest[attention_tile], total[attention_tile];
          kernel.forward({{begin, end, width, scale, &ahead},
                          rows_at(q, row, column),
                          keys,
                          values,
                          bits_of(place_in(out, row, column)),
                          out.stride(),
                          largest,
                          total},
                         room);
          float* const to = &log_sum_exp[item * runs.rows() + first];
          for (std::int64_t i = 0; i < end - begin; ++i) to[i] = largest[i] + log(total[i]);
        });
  });
}

/// Rows in which gradients of queries are summed.
struct FloatRows {
  float* first;
  std::int64_t row;
};

/// Inputs and outputs of backward in tiles.
template <class T, class K>
struct TileGradients {
  View<const T**> q, kv, dout;
  View<const float*> log_sum_exp, delta;
  View<T**> dq;
  View<K**> dkv;
};

/// Computes the gradients of keys and values of one key/value head of one sequence, tile by tile,
/// and of the queries of its group. `sums`: piece_sums() floats; dq_sums: query_sums() floats.
template <class T, class K>
void backward_of_kv_head(const AttentionShape& shape, const QueryRuns& runs,
                         const TileGradients<T, K>& arrays, const AttentionHeads& heads,
                         float* sums, float* dq_sums) {
  const float scale = score_scale<float>(shape);
  const std::int64_t width = shape.head_width, padded = attention_row(width);
  const std::int64_t slot_size = 2 * attention_tile * padded;
  const AttentionOperands operands(shape, runs.rows());
  const auto& kernel = tile_kernel<T>();
  float* const room = attention_room();
  if (runs.pieces() == 1) sums = attention_sums(width, room);
  const std::int64_t key_column = heads.kv_head * width;
  const std::int64_t value_column = (shape.kv_heads + heads.kv_head) * width;
  const std::int64_t group = shape.heads / shape.kv_heads;
  const std::int64_t item = heads.sequence * shape.kv_heads + heads.kv_head;
  const std::int64_t next = std::min(item + 1, shape.batch * shape.kv_heads - 1);
  const std::int64_t next_kv = next % shape.kv_heads, next_sequence = next / shape.kv_heads;
  const std::int64_t next_row = next_sequence * runs.rows();
  const std::int64_t next_key = next_sequence * shape.tokens;
  const std::int64_t next_column = next_kv * group * width;
  const std::int64_t next_value = (shape.kv_heads + next_kv) * width;
  constexpr std::int64_t products = 55;
  // Gradients that are summed separately are written at the end, so they are not prefetched.
  using Rows = AttentionRows<TileElement<T>>;
  Rows next_dq{}, next_dkey{}, next_dvalue{};
  if constexpr (!is_16bit<T>) {
    next_dq = rows_at(arrays.dq, next_row, next_column);
    next_dkey = rows_at(arrays.dkv, next_key, next_kv * width);
    next_dvalue = rows_at(arrays.dkv, next_key, next_value);
  }
  AttentionPrefetch<TileElement<T>> ahead = ahead_of<TileElement<T>>(
      {rows_at(arrays.q, next_row, next_column), rows_at(arrays.kv, next_key, next_kv * width),
       rows_at(arrays.kv, next_key, next_value), rows_at(arrays.dout, next_row, next_column),
       next_dq, next_dkey, next_dvalue},
      runs.rows(), width, products);
  const auto dqueries = [&](std::int64_t member, std::int64_t row) -> FloatRows {
    if constexpr (is_16bit<T>) {
      return {dq_sums + (member * shape.tokens + row) * padded, padded};
    } else {
      const std::int64_t column = (heads.kv_head * group + member) * width;
      return {place_in(arrays.dq, heads.sequence * runs.rows() + row, column), arrays.dq.stride()};
    }
  };
  for (std::int64_t key = 0; key < shape.tokens; key += attention_tile) {
    const std::int64_t key_end = std::min(key + attention_tile, shape.tokens);
    const std::int64_t key_row = heads.sequence * shape.tokens + key;
    kernel.pack_keys({key, key_end, width, scale, rows_at(arrays.kv, key_row, key_column),
                      rows_at(arrays.kv, key_row, value_column)},
                     room);
    sum_pieces(
        runs.pieces(),
        [&](std::int64_t slot, std::int64_t piece) {
          const std::int64_t first_run = piece * runs.runs_of_piece();
          float* const dkeys = sums + slot * slot_size;
          std::fill_n(dkeys, slot_size, 0.0f);
          for_each_attention_block(
              shape, heads, runs.runs_of_piece(),
              [&](std::int64_t index) { return runs.run(first_run + index); },
              [&](const AttentionBlock& block) {
                if (block.end <= key) return;
                const std::int64_t head = operands.query_head(block), column = head * width;
                const std::int64_t row = heads.sequence * runs.rows() + block.row;
                const std::int64_t of_row =
                    (heads.sequence * shape.heads + head) * runs.rows() + block.row;
                const FloatRows to = dqueries(block.member, block.row);
                kernel.backward({{block.begin, block.end, width, scale, &ahead},
                                 key,
                                 key_end,
                                 rows_at(arrays.q, row, column),
                                 rows_at(arrays.dout, row, column),
                                 &arrays.log_sum_exp[of_row],
                                 &arrays.delta[of_row],
                                 to.first,
                                 to.row,
                                 dkeys,
                                 dkeys + attention_tile * padded},
                                room);
              });
        },
        [&](std::int64_t from, std::int64_t to) {
          for (std::int64_t i = 0; i < slot_size; ++i)
            sums[to * slot_size + i] += sums[from * slot_size + i];
        });
    for (std::int64_t i = 0; i < key_end - key; ++i) {
      convert_run(sums + i * padded, place_in(arrays.dkv, key_row + i, key_column), width);
      convert_run(sums + (attention_tile + i) * padded,
                  place_in(arrays.dkv, key_row + i, value_column), width);
    }
  }
  if constexpr (is_16bit<T>)
    for (std::int64_t member = 0; member < group; ++member)
      for (std::int64_t i = 0; i < runs.rows(); ++i)
        convert_run(dqueries(member, i).first,
                    place_in(arrays.dq, heads.sequence * runs.rows() + i,
                             (heads.kv_head * group + member) * width),
                    width);
}

/// Launches a kernel for each kv_heads_at_once() key/value heads.
template <class T, class K>
void backward_in_tiles(const Exec& exec, const AttentionShape& shape, const QueryRuns& runs,
                       TileGradients<T, K> arrays, const View<const T**>& out,
                       const View<T*>& workspace) {
  Scratch<T> scratch(workspace, "attention");
  const View<float*> delta = scratch.template take<float>(delta_elements(shape));
  const std::int64_t at_once = kv_heads_at_once<T>(shape, runs.pieces());
  const std::int64_t size = piece_sums(shape, runs.pieces()) + query_sums<T>(shape);
  const View<float*> sums = scratch.template take<float>(at_once * size);
  const View<const T**> dout = arrays.dout;
  const std::int64_t rows = runs.rows(), width = shape.head_width, heads = shape.heads;
  for_each_row(exec, "attend_delta", shape.batch * rows, heads * width,
               [=](const Row& row, std::int64_t index) {
                 for (std::int64_t head = 0; head < heads; ++head)
                   delta[(index / rows * heads + head) * rows + index % rows] =
                       row.template sum_of<float>(
                           [](std::int64_t, float o, float d) {
                             return Product<float>{o, d};
                           },
                           out.row(index).range(head * width, (head + 1) * width),
                           dout.row(index).range(head * width, (head + 1) * width));
               });
  arrays.delta = delta;
  const std::int64_t all = shape.batch * shape.kv_heads;
  for (std::int64_t first = 0; first < all; first += at_once)
    for_each_item(exec, "attend_backward", std::min(at_once, all - first), [=](std::int64_t item) {
      const std::int64_t head = first + item;
      float* const own = size == 0 ? nullptr : &sums[item * size];
      backward_of_kv_head(shape, runs, arrays, {head / shape.kv_heads, head % shape.kv_heads, 1},
                          own, own + piece_sums(shape, runs.pieces()));
    });
}
#endif

template <class T>
void forward_of(const Exec& exec, const AttentionShape& shape, const QueryRuns& runs,
                View<const T**> q, View<const T**> kv, View<T**> out,
                View<compute_t<T>*> log_sum_exp, View<T*> workspace) {
  using C = compute_t<T>;
  check_shapes<T>(shape, runs, q, kv, out, log_sum_exp.size());
#if OSTRAKON_MATRIX_TILES
  if constexpr (is_16bit<T>)
    if (attention_on_chip<T>(shape))
      return attend_on_chip<T>(exec, {shape, runs, q, kv}, out, log_sum_exp);
#endif
#if !OSTRAKON_ON_DEVICE
  if constexpr (!std::is_same<T, double>::value)
    if (attention_in_tiles<T>(shape))
      return forward_in_tiles<T>(exec, shape, runs, q, kv, out, log_sum_exp);
#endif
  const AttentionOperands operands(shape, runs.rows());
  const C scale = score_scale<C>(shape);
  Scratch<T> scratch(workspace, "attention");
  const std::int64_t size = score_elements(shape);
  const View<C*> all_scores = scratch.template take<C>(size);
  const View<T*> all_stored =
      stored_at(all_scores, scratch.template take<T>(is_16bit<T> ? size : 0));
  const auto attend = [&](const AttentionBlock& block) {
    const std::int64_t queries = block.queries();
    const View<C**> scores = all_scores.matrix(block.count * queries, block.end);
    const View<T**> probabilities = all_stored.matrix(block.count * queries, block.end);
    gemm_batched<T>(exec, Transpose::no, Transpose::yes, scale, operands.queries(q, block),
                    operands.keys(kv, block), C(0),
                    Batch<C>::of_rows(scores, queries, queries, block.count));
    softmax_rows<T>(exec, block, scores, probabilities, operands.log_sum_exp(log_sum_exp, block),
                    operands.log_sum_exp_stride());
    gemm_batched<T>(exec, Transpose::no, Transpose::no, C(1),
                    Batch<const T>::of_rows(probabilities, queries, queries, block.count),
                    operands.values(kv, block), C(0), operands.queries(out, block));
  };
  for_each_attention_heads(shape, [&](const AttentionHeads& heads) {
    for_each_attention_block(
        shape, heads, runs.runs(), [&](std::int64_t index) { return runs.run(index); }, attend);
  });
}

#if OSTRAKON_MATRIX_TILES
/// Launches one kernel for queries and one for keys and values; with pieces, one of the latter for
/// each piece and sequence.
template <class T, class K>
void backward_on_chip(const Exec& exec, const AttentionInputs<T>& in,
                      const AttentionGradients<T>& gradients, View<const T**> out, View<T**> dq,
                      View<K**> dkv, View<T*> workspace) {
  const AttentionShape& shape = in.shape;
  const QueryRuns& runs = in.runs;
  Scratch<T> scratch(workspace, "attention");
  const View<float*> delta = scratch.template take<float>(delta_elements(shape));
  attend_backward_queries<T>(exec, in, gradients, out, dq, delta);
  const std::int64_t width = shape.kv_heads * shape.head_width;
  if (runs.pieces() == 1)
    return attend_backward_kv<T, K>(exec, in, gradients, delta, {0, shape.batch, 0, runs.runs()},
                                    {dkv.column_range(0, width), dkv.column_range(width, 2 * width),
                                     shape.tokens, 0, shape.head_width});
  const KvSums<T, true> sums(shape, runs.pieces(), scratch);
  const AttentionOperands operands(shape, runs.rows());
  for_each_attention_heads(shape, [&](const AttentionHeads& heads) {
    sum_pieces(
        runs.pieces(),
        [&](std::int64_t slot, std::int64_t piece) {
          attend_backward_kv<T, float>(
              exec, in, gradients, delta,
              {heads.sequence, 1, piece * runs.runs_of_piece(), runs.runs_of_piece()},
              {sums.key_rows(slot), sums.value_rows(slot), 0, shape.tokens, 0});
        },
        [&](std::int64_t from, std::int64_t to) { sums.add(exec, from, to); });
    sums.store(exec, operands.all_keys(dkv, heads), operands.all_values(dkv, heads), heads.count);
  });
}
#endif

/// K: dtype of the gradients of keys and values. `apart`: whether they are summed in separate
/// slots.
template <class T, class K, bool apart>
void backward_of(const Exec& exec, const AttentionShape& shape, const QueryRuns& runs,
                 View<const T**> q, View<const T**> kv, View<const T**> out,
                 View<const compute_t<T>*> log_sum_exp, View<const T**> dout, View<T**> dq,
                 View<K**> dkv, View<T*> workspace) {
  using C = compute_t<T>;
  check_shapes<T>(shape, runs, q, kv, out, log_sum_exp.size());
  check_shapes<K>(shape, runs, View<const K**>(nullptr, dq.rows(), dq.columns(), dq.stride()), dkv,
                  View<const K**>(nullptr, dout.rows(), dout.columns(), dout.stride()),
                  log_sum_exp.size());
#if OSTRAKON_MATRIX_TILES
  if constexpr (is_16bit<T>)
    if (attention_on_chip<T>(shape))
      return backward_on_chip<T, K>(exec, {shape, runs, q, kv}, {log_sum_exp, dout}, out, dq, dkv,
                                    workspace);
#endif
#if !OSTRAKON_ON_DEVICE
  if constexpr (!std::is_same<T, double>::value)
    if (attention_in_tiles<T>(shape))
      return backward_in_tiles<T, K>(exec, shape, runs, {q, kv, dout, log_sum_exp, {}, dq, dkv},
                                     out, workspace);
#endif
  const AttentionOperands operands(shape, runs.rows());
  const C scale = score_scale<C>(shape);
  Scratch<T> scratch(workspace, "attention");
  const std::int64_t size = score_elements(shape);
  const View<C*> all_scores = scratch.template take<C>(2 * size);
  const KvSums<T, apart> sums(shape, runs.pieces(), scratch);
  const View<T*> all_stored =
      stored_at(all_scores, scratch.template take<T>(is_16bit<T> ? 2 * size : 0));
  const auto add_block = [&](const AttentionBlock& block, std::int64_t slot) {
    const std::int64_t all_rows = block.count * block.queries();
    const View<C**> scores = all_scores.matrix(all_rows, block.end);
    const View<C**> dprobabilities = second_half(all_scores, all_rows, block.end);
    const View<T**> probabilities = all_stored.matrix(all_rows, block.end);
    const View<T**> dscores = second_half(all_stored, all_rows, block.end);
    const auto heads = [&](const auto& all) {
      using Element = typename std::decay_t<decltype(all)>::Element;
      return Batch<Element>::of_rows(all, block.queries(), block.queries(), block.count);
    };
    const Batch<const T> dblock = operands.queries(dout, block);
    const Batch<const T> queries = operands.queries(q, block);
    const Batch<const T> keys = operands.keys(kv, block);
    gemm_batched<T>(exec, Transpose::no, Transpose::yes, scale, queries, keys, C(0), heads(scores));
    gemm_batched<T>(exec, Transpose::no, Transpose::yes, C(1), dblock, operands.values(kv, block),
                    C(0), heads(dprobabilities));
    softmax_backward_rows<T>(
        exec, block,
        {operands.log_sum_exp(log_sum_exp, block), operands.log_sum_exp_stride(),
         operands.query_rows(out, block), operands.query_rows(dout, block), shape.head_width,
         operands.query_head(block) * shape.head_width, operands.query_stride()},
        scale, scores, dprobabilities, probabilities, dscores);
    gemm_batched<T>(exec, Transpose::no, Transpose::no, C(1), heads(dscores), keys, C(0),
                    operands.queries(dq, block));
    if (block.is_first)
      sums.clear(exec, operands.all_keys(dkv, block), operands.all_values(dkv, block), slot,
                 block.end);
    const C beta = block.is_first ? C(0) : C(1);
    gemm_batched<T>(exec, Transpose::yes, Transpose::no, C(1), heads(dscores), queries, beta,
                    sums.keys(operands.keys(dkv, block), slot));
    gemm_batched<T>(exec, Transpose::yes, Transpose::no, C(1), heads(probabilities), dblock, beta,
                    sums.values(operands.values(dkv, block), slot));
  };
  for_each_attention_heads(shape, [&](const AttentionHeads& heads) {
    sum_pieces(
        runs.pieces(),
        [&](std::int64_t slot, std::int64_t piece) {
          const std::int64_t first = piece * runs.runs_of_piece();
          for_each_attention_block(
              shape, heads, runs.runs_of_piece(),
              [&](std::int64_t index) { return runs.run(first + index); },
              [&](const AttentionBlock& block) { add_block(block, slot); });
        },
        [&](std::int64_t from, std::int64_t to) { sums.add(exec, from, to); });
    sums.store(exec, operands.all_keys(dkv, heads), operands.all_values(dkv, heads), heads.count);
  });
}

}  // namespace

template <class T>
std::int64_t attention_forward_workspace(const AttentionShape& shape, KernelForm form) {
  if (attention_on_chip<T>(shape, form) || has_tiles_only<T>(shape, form)) return 0;
  const std::int64_t scores = score_elements(shape, form);
  return scratch_elements<T, compute_t<T>>(scores) + (is_16bit<T> ? scores : 0);
}

template <class T>
std::int64_t attention_backward_workspace(const AttentionShape& shape, std::int64_t pieces,
                                          KernelForm form) {
  std::int64_t in_tiles = 0;
  if constexpr (!std::is_same<T, double>::value)
    if (attention_fits_tiles<T>(shape, form)) in_tiles = tile_workspace<T>(shape, pieces);
  if (has_tiles_only<T>(shape, form)) return in_tiles;
  const std::int64_t sums = 2 * kv_sum_elements<T>(shape, pieces, form);
  if (attention_on_chip<T>(shape, form))
    return scratch_elements<T, compute_t<T>>(delta_elements(shape) + sums);
  const std::int64_t scores = 2 * score_elements(shape, form);
  return std::max(in_tiles,
                  scratch_elements<T, compute_t<T>>(scores + sums) + (is_16bit<T> ? scores : 0));
}

template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape,
                       const AttentionQueries& queries, View<const T**> q, View<const T**> kv,
                       View<T**> out, View<compute_t<T>*> log_sum_exp, View<T*> workspace) {
  forward_of<T>(exec, shape, QueryRuns(queries), q, kv, out, log_sum_exp, workspace);
}

namespace {

/// Returns the columns of keys and values in rows of queries, keys and values.
template <class T>
View<T**> kv_columns(const AttentionShape& shape, const View<T**>& qkv) {
  const std::int64_t first = shape.heads * shape.head_width;
  const std::int64_t columns = first + 2 * shape.kv_heads * shape.head_width;
  require(qkv.columns() == columns, "attention: qkv (", qkv.rows(), ", ", qkv.columns(),
          "), expected ", columns, " columns");
  return qkv.column_range(first, columns);
}

}  // namespace

template <class T>
void attention_backward(const Exec& exec, const AttentionShape& shape,
                        const AttentionQueries& queries, View<const T**> q, View<const T**> kv,
                        View<const T**> out, View<const compute_t<T>*> log_sum_exp,
                        View<const T**> dout, View<T**> dq, View<compute_t<T>**> dkv,
                        View<T*> workspace) {
  const QueryRuns runs(queries);
  if (runs.pieces() > 1)
    backward_of<T, compute_t<T>, true>(exec, shape, runs, q, kv, out, log_sum_exp, dout, dq, dkv,
                                       workspace);
  else
    backward_of<T, compute_t<T>, is_16bit<T>>(exec, shape, runs, q, kv, out, log_sum_exp, dout, dq,
                                              dkv, workspace);
}

template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape, View<const T**> qkv,
                       std::int64_t query_begin, std::int64_t query_end, View<T**> out,
                       View<compute_t<T>*> log_sum_exp, View<T*> workspace) {
  forward_of<T>(exec, shape, QueryRuns(shape.tokens, query_begin, query_end), qkv,
                kv_columns(shape, qkv), out, log_sum_exp, workspace);
}

template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape, std::int64_t begin,
                       View<const T**> q, View<const T**> kv, View<T**> out,
                       View<compute_t<T>*> log_sum_exp, View<T*> workspace) {
  forward_of<T>(exec, shape, QueryRuns::from(shape.tokens, begin, q.rows(), q.rows()), q, kv, out,
                log_sum_exp, workspace);
}

template <class T>
void attention_backward(const Exec& exec, const AttentionShape& shape, View<const T**> qkv,
                        View<const T**> out, View<const compute_t<T>*> log_sum_exp,
                        View<const T**> dout, View<T**> dqkv, View<T*> workspace) {
  backward_of<T, T, is_16bit<T>>(exec, shape, QueryRuns(shape.tokens, 0, shape.tokens), qkv,
                                 kv_columns(shape, qkv), out, log_sum_exp, dout, dqkv,
                                 kv_columns(shape, dqkv), workspace);
}

#define OSTRAKON_INSTANTIATE(T)                                                                    \
  template std::int64_t attention_forward_workspace<T>(const AttentionShape&, KernelForm);         \
  template std::int64_t attention_backward_workspace<T>(const AttentionShape&, std::int64_t,       \
                                                        KernelForm);                               \
  template void attention_forward<T>(const Exec&, const AttentionShape&, const AttentionQueries&,  \
                                     View<const T**>, View<const T**>, View<T**>,                  \
                                     View<compute_t<T>*>, View<T*>);                               \
  template void attention_backward<T>(const Exec&, const AttentionShape&, const AttentionQueries&, \
                                      View<const T**>, View<const T**>, View<const T**>,           \
                                      View<const compute_t<T>*>, View<const T**>, View<T**>,       \
                                      View<compute_t<T>**>, View<T*>);                             \
  template void attention_forward<T>(const Exec&, const AttentionShape&, View<const T**>,          \
                                     std::int64_t, std::int64_t, View<T**>, View<compute_t<T>*>,   \
                                     View<T*>);                                                    \
  template void attention_forward<T>(const Exec&, const AttentionShape&, std::int64_t,             \
                                     View<const T**>, View<const T**>, View<T**>,                  \
                                     View<compute_t<T>*>, View<T*>);                               \
  template void attention_backward<T>(const Exec&, const AttentionShape&, View<const T**>,         \
                                      View<const T**>, View<const compute_t<T>*>, View<const T**>, \
                                      View<T**>, View<T*>);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
