// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <initializer_list>
#include <ostrakon/math/attention/attention_in_tiles.hpp>
#include <ostrakon/math/attention/attention_tiles.hpp>
#include <ostrakon/math/convert_run.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/products/half_as_bits.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>
#include <ostrakon/math/scratch.hpp>
#include <type_traits>

namespace ostrakon::math {
namespace {

static_assert(attention_query_block_of(KernelForm::host) == attention_tile,
              "a block of queries is a tile");

/// Floats for the gradients of a key tile and its values.
std::int64_t kv_tile_floats(const AttentionShape& shape) {
  return attention_tile *
         (attention_row(shape.head_width) + attention_row(shape.width_of_values()));
}

/// Floats for the sums of a key tile and its values over the pieces of a sequence.
std::int64_t piece_sums(const AttentionShape& shape, std::int64_t pieces) {
  return pieces == 1 ? 0 : tree_slots(pieces) * kv_tile_floats(shape);
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

}  // namespace

template <class T>
std::int64_t tile_workspace(const AttentionShape& shape, std::int64_t pieces) {
  return scratch_elements<T, float>(delta_elements(shape) +
                                    kv_heads_at_once<T>(shape, pieces) *
                                        (piece_sums(shape, pieces) + query_sums<T>(shape)));
}

#if !OSTRAKON_ON_DEVICE
namespace {

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

/// Rows in which gradients of queries are summed.
struct FloatRows {
  float* first;
  std::int64_t row;
};

/// Computes the gradients of keys and values of one key/value head of one sequence, tile by tile,
/// and of the queries of its group. `sums`: piece_sums() floats; dq_sums: query_sums() floats.
template <class T, class K>
void backward_of_kv_head(const AttentionShape& shape, const QueryRuns& runs,
                         const TileGradients<T, K>& arrays, const AttentionHeads& heads,
                         float* sums, float* dq_sums) {
  const float scale = score_scale<float>(shape);
  const auto cap = static_cast<float>(shape.scores.soft_cap);
  const std::int64_t window = shape.scores.window;
  const std::int64_t width = shape.head_width, padded = attention_row(width);
  const std::int64_t value_width = shape.width_of_values();
  const std::int64_t padded_value = attention_row(value_width);
  const std::int64_t slot_size = kv_tile_floats(shape);
  const AttentionOperands operands(shape, runs.rows());
  const auto& kernel = tile_kernel<T>();
  float* const room = attention_room();
  if (runs.pieces() == 1) sums = attention_sums(width, value_width, room);
  const std::int64_t key_column = heads.kv_head * width;
  const std::int64_t value_column = operands.value_column(heads.kv_head);
  const std::int64_t group = shape.heads / shape.kv_heads;
  const std::int64_t item = heads.sequence * shape.kv_heads + heads.kv_head;
  const std::int64_t next = std::min(item + 1, shape.batch * shape.kv_heads - 1);
  const std::int64_t next_kv = next % shape.kv_heads, next_sequence = next / shape.kv_heads;
  const std::int64_t next_row = next_sequence * runs.rows();
  const std::int64_t next_key = next_sequence * shape.tokens;
  const std::int64_t next_column = next_kv * group * width;
  const std::int64_t next_value = operands.value_column(next_kv);
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
       rows_at(arrays.kv, next_key, next_value),
       rows_at(arrays.dout, next_row, next_kv * group * value_width), next_dq, next_dkey,
       next_dvalue},
      runs.rows(), std::min(width, value_width), products);
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
                      rows_at(arrays.kv, key_row, value_column), value_width},
                     room);
    sum_pieces(
        runs.pieces(),
        [&](std::int64_t slot, std::int64_t piece) {
          const std::int64_t first_run = piece * runs.runs_of_piece();
          float* const dkeys = sums + slot * slot_size;
          std::fill_n(dkeys, slot_size, 0.0f);
          for_each_attention_block(
              shape, heads, runs, first_run, runs.runs_of_piece(),
              [&](const AttentionBlock& block) {
                const std::int64_t first_key =
                    first_key_of_row(shape, runs, heads.sequence, block.row, block.begin);
                if (block.end <= key || key < first_key / attention_tile * attention_tile) return;
                const std::int64_t head = operands.query_head(block), column = head * width;
                const std::int64_t row = heads.sequence * runs.rows() + block.row;
                const std::int64_t of_row =
                    (heads.sequence * shape.heads + head) * runs.rows() + block.row;
                const FloatRows to = dqueries(block.member, block.row);
                const auto slope = static_cast<float>(slope_of_head(shape.scores, head));
                const std::int32_t* const document_begins =
                    runs.document_begins(heads.sequence, block.row).data();
                kernel.backward({{block.begin, block.end, width, scale, &ahead, window, cap, slope,
                                  value_width, document_begins},
                                 key,
                                 key_end,
                                 rows_at(arrays.q, row, column),
                                 rows_at(arrays.dout, row, head * value_width),
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
      convert_run(sums + attention_tile * padded + i * padded_value,
                  place_in(arrays.dkv, key_row + i, value_column), value_width);
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

}  // namespace

template <class T>
void forward_in_tiles(const Exec& exec, const AttentionShape& shape, const QueryRuns& runs,
                      const View<const T**>& q, const View<const T**>& kv,
                      const View<const T*>& sinks, const View<T**>& out,
                      const View<float*>& log_sum_exp) {
  const float scale = score_scale<float>(shape);
  const auto cap = static_cast<float>(shape.scores.soft_cap);
  for_each_item(exec, "attend_forward", shape.batch * shape.heads, [=](std::int64_t item) {
    const std::int64_t sequence = item / shape.heads, head = item % shape.heads;
    const std::int64_t kv_head = head / (shape.heads / shape.kv_heads);
    const std::int64_t width = shape.head_width, key_row = sequence * shape.tokens;
    const std::int64_t value_width = shape.width_of_values();
    const AttentionOperands operands(shape, runs.rows());
    const auto keys = rows_at(kv, key_row, kv_head * width);
    const auto values = rows_at(kv, key_row, operands.value_column(kv_head));
    const auto& kernel = tile_kernel<T>();
    float* const room = attention_room();
    const std::int64_t next = std::min(item + 1, shape.batch * shape.heads - 1);
    const std::int64_t next_head = next % shape.heads, next_sequence = next / shape.heads;
    const std::int64_t next_row = next_sequence * runs.rows();
    const std::int64_t next_kv = next_head / (shape.heads / shape.kv_heads);
    const auto slope = static_cast<float>(slope_of_head(shape.scores, head));
    const float sink = sinks ? static_cast<float>(sinks[head]) : 0.0f;
    constexpr std::int64_t products = 22;
    AttentionPrefetch<TileElement<T>> ahead =
        ahead_of({rows_at(q, next_row, next_head * width),
                  rows_at(kv, next_sequence * shape.tokens, next_kv * width),
                  rows_at(kv, next_sequence * shape.tokens, operands.value_column(next_kv)),
                  rows_at(out, next_row, next_head * value_width)},
                 runs.rows(), std::min(width, value_width), products);
    for_each_query_block(
        runs.runs(), [&](std::int64_t index) { return runs.run(index); },
        [&](std::int64_t first, std::int64_t begin, std::int64_t end) {
          const std::int64_t row = sequence * runs.rows() + first;
          float largest[attention_tile], total[attention_tile];
          kernel.forward({{begin, end, width, scale, &ahead, shape.scores.window, cap, slope,
                           value_width, runs.document_begins(sequence, first).data()},
                          rows_at(q, row, head * width),
                          keys,
                          values,
                          bits_of(place_in(out, row, head * value_width)),
                          out.stride(),
                          largest,
                          total,
                          sinks ? &sink : nullptr},
                         room);
          float* const to = &log_sum_exp[item * runs.rows() + first];
          for (std::int64_t i = 0; i < end - begin; ++i) to[i] = largest[i] + log(total[i]);
        });
  });
}

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
  const std::int64_t rows = runs.rows(), width = shape.width_of_values(), heads = shape.heads;
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

#define OSTRAKON_INSTANTIATE_BACKWARD(T, K)                                                   \
  template void backward_in_tiles<T, K>(const Exec&, const AttentionShape&, const QueryRuns&, \
                                        TileGradients<T, K>, const View<const T**>&,          \
                                        const View<T*>&);
#define OSTRAKON_INSTANTIATE(T)                                                                    \
  template void forward_in_tiles<T>(const Exec&, const AttentionShape&, const QueryRuns&,          \
                                    const View<const T**>&, const View<const T**>&,                \
                                    const View<const T*>&, const View<T**>&, const View<float*>&); \
  OSTRAKON_INSTANTIATE_BACKWARD(T, float)
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
OSTRAKON_INSTANTIATE_BACKWARD(bf16, bf16)
OSTRAKON_INSTANTIATE_BACKWARD(fp16, fp16)
#undef OSTRAKON_INSTANTIATE
#undef OSTRAKON_INSTANTIATE_BACKWARD
#endif

template std::int64_t tile_workspace<float>(const AttentionShape&, std::int64_t);
template std::int64_t tile_workspace<bf16>(const AttentionShape&, std::int64_t);
template std::int64_t tile_workspace<fp16>(const AttentionShape&, std::int64_t);

}  // namespace ostrakon::math
