// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/attention_on_chip.hpp>

#include <ostrakon/math/attention/attention_chip_tiles.hpp>

#if OSTRAKON_MATRIX_TILES

namespace ostrakon::math {
namespace {

/// out = softmax(q K^T scale) V of a tile of queries. The largest score and the sum of exponentials
/// are those of the keys so far; sums are rescaled when the largest score changes.
template <class T, int width, bool in_documents>
struct AttendForward {
  static constexpr int key_rows = 64;
  static constexpr int steps = width / tile_size;
  static constexpr int key_tiles = key_rows / tile_size;
  static constexpr std::size_t bytes = sizeof(T) * 2 * key_rows * width;

  QueryTiles tiles;
  View<const T**> q, kv;
  View<T**> out;
  View<float*> log_sum_exp;
  View<const T*> sinks;
  int kv_heads;
  int window;
  float scale;

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    T* const memory = shared_memory<T>(team, bytes);
    const QueryTile tile = tiles.at(team.league_rank());
    for_each_band(team, [&](int lane, int band) { attend(team, lane, tile, band, memory); });
  }

  KOKKOS_FUNCTION void attend(const TeamMember& team, int lane, const QueryTile& tile, int band,
                              T* memory) const {
    const SharedRows<T, width> keys(memory), values(memory + key_rows * width);
    const T* const key_head = head_at(kv, tile.kv_row, tile.kv_head, width);
    const T* const value_head = head_at(kv, tile.kv_row, kv_heads + tile.kv_head, width);
    const int seen = tile.position + tile.count;
    const int first_key = first_key_tile<in_documents>(tiles, tile, window, key_rows);
    const RowDocuments<in_documents> documents(tiles, tile, lane, band);
    const float to_log2 = scale * log2_e;

    begin_copy_rows<team_rows>(team, values, head_at(q, tile.row, tile.head, width), q.stride(),
                               tile.count);
    begin_copy_rows<key_rows>(team, keys, key_head + first_key * kv.stride(), kv.stride(),
                              seen - first_key);
    end_copies(team);
    LeftTile<T> queries[steps];
    unrolled<steps>([&](int k) { queries[k] = load_left(lane, values, band, k * tile_size); });

    SumTile sums[steps];
    // With a window or documents a row may see no key of the first tile: differences to a finite
    // number are not NaN.
    TileRows largest(in_documents || window < seen ? -1e30f : minus_infinity), total(0);
    for (int key = first_key; key < seen; key += key_rows) {
      end_copies(team);  // keys have been copied
      begin_copy_rows<key_rows>(team, values, value_head + key * kv.stride(), kv.stride(),
                                seen - key);
      SumTile scores[key_tiles];
      unrolled<steps>([&](int k) {
        unrolled<key_tiles>([&](int j) {
          scores[j].add_product(queries[k],
                                load_right_transposed(lane, keys, j * tile_size, k * tile_size));
        });
      });
      const int first = tile.position + band;
      if (in_documents || key + key_rows > first + 1 || key + window < first + tile_size) {
        unrolled<key_tiles>([&](int j) {
          scores[j].map(lane, [&](int r, int column, float score) {
            const int own = key + j * tile_size + column;
            const int distance = first + TileLayout::row(lane, r) - own;
            return distance >= 0 && distance < window && documents.reach(r, own) ? score
                                                                                 : minus_infinity;
          });
        });
      }
      rescale(lane, scores, to_log2, largest, total, sums);
      end_copies(team);  // values have been copied
      if (key + key_rows < seen)
        begin_copy_rows<key_rows>(team, keys, key_head + (key + key_rows) * kv.stride(),
                                  kv.stride(), seen - key - key_rows);
      unrolled<key_tiles>([&](int j) {
        const LeftTile<T> probabilities = scores[j].template as_left<T>();
        unrolled<steps>([&](int k) {
          sums[k].add_product(probabilities,
                              load_right(lane, values, j * tile_size, k * tile_size));
        });
      });
    }
    store(team, lane, tile, band, keys, largest, total, sums);
  }

  /// Replaces scores by e^(score - largest), with the largest score so far, and rescales the sums.
  KOKKOS_FUNCTION static void rescale(int lane, SumTile (&scores)[key_tiles], float to_log2,
                                      TileRows& largest, TileRows& total, SumTile (&sums)[steps]) {
    TileRows now = largest;
    unrolled<key_tiles>([&](int j) {
      scores[j].map(lane, [&](int r, int, float score) {
        now.at[r] = fmaxf(now.at[r], score);
        return score;
      });
    });
    now.combine_lanes([](float a, float b) { return fmaxf(a, b); });
    TileRows shrink(0), shift(0);
    unrolled<TileLayout::rows>([&](int r) {
      shrink.at[r] = tile_exp2((largest.at[r] - now.at[r]) * to_log2);
      shift.at[r] = -now.at[r] * to_log2;
      total.at[r] *= shrink.at[r];
    });
    largest = now;
    unrolled<key_tiles>([&](int j) {
      scores[j].map(lane, [&](int r, int, float score) {
        const float power = tile_exp2(fma(score, to_log2, shift.at[r]));
        total.at[r] += power;
        return power;
      });
    });
    unrolled<steps>([&](int k) {
      sums[k].map(lane, [&](int r, int, float sum) { return sum * shrink.at[r]; });
    });
  }

  /// Stores the rows through the shared memory `room`, so that they are written in vectors.
  KOKKOS_FUNCTION void store(const TeamMember& team, int lane, const QueryTile& tile, int band,
                             const SharedRows<T, width>& room, const TileRows& largest,
                             TileRows total, SumTile (&sums)[steps]) const {
    total.combine_lanes([](float a, float b) { return a + b; });
    TileRows inverse(0);
    unrolled<TileLayout::rows>([&](int r) {
      float log_of_sum = largest.at[r] * scale + log(total.at[r]), times = 1.0f / total.at[r];
      if (sinks) {
        const float sink = static_cast<float>(sinks[tile.head]), without = largest.at[r] * scale;
        const float most = fmaxf(without, sink);
        const float shrink = tile_exp2((without - most) * log2_e);
        const float sum = fma(total.at[r], shrink, tile_exp2((sink - most) * log2_e));
        log_of_sum = most + log(sum);
        times = shrink / sum;
      }
      inverse.at[r] = times;
      const int row = band + TileLayout::row(lane, r);
      if (TileLayout::is_first_of_row(lane) && row < tile.count)
        log_sum_exp[tile.head_row + row] = log_of_sum;
    });
    unrolled<steps>([&](int k) {
      sums[k].map(lane, [&](int r, int, float sum) { return sum * inverse.at[r]; });
      sums[k].store(lane, room, band, k * tile_size);
    });
    team.team_barrier();
    store_rows(lane, room, band, head_at(out, tile.row, tile.head, width), out.stride(),
               tile.count);
  }
};

}  // namespace

template <class T>
void attend_on_chip(const Exec& exec, const AttentionInputs<T>& in, View<const T*> sinks,
                    View<T**> out, View<float*> log_sum_exp) {
  with_constants(in.shape, in.runs, [&](auto width, auto in_documents) {
    const QueryTiles tiles(in.shape, in.runs);
    run(exec, "attend_forward", tiles.count(),
        AttendForward<T, width(), in_documents()>{
            tiles, in.q, in.kv, out, log_sum_exp, sinks, static_cast<int>(in.shape.kv_heads),
            window_of(in.shape), score_scale<float>(in.shape)});
  });
}

template void attend_on_chip<bf16>(const Exec&, const AttentionInputs<bf16>&, View<const bf16*>,
                                   View<bf16**>, View<float*>);
template void attend_on_chip<fp16>(const Exec&, const AttentionInputs<fp16>&, View<const fp16*>,
                                   View<fp16**>, View<float*>);

}  // namespace ostrakon::math

#endif
