// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/attention_on_chip.hpp>

#if OSTRAKON_MATRIX_TILES

namespace ostrakon::math {
namespace {

// Kokkos gives a team 48 KiB of shared memory, of which it uses 1,040 bytes itself. The tiles below
// need 32 KiB for heads of 128.

/// Queries of a team, or keys of a team in the backward of keys and values: a band of 16 for each
/// of four warps. On the host one warp processes the bands one after the other.
constexpr int team_rows = 64;
constexpr int bands = team_rows / tile_size;
static_assert(bands % tile_team_warps == 0, "teams wait for all of their warps");

constexpr float log2_e = 1.44269504f;

/// Returns the next `bytes` bytes of the shared memory that run() requests.
template <class T>
KOKKOS_FUNCTION T* shared_memory(const TeamMember& team, std::size_t bytes) {
  return static_cast<T*>(team.team_scratch(0).get_shmem_aligned(bytes, shared_alignment));
}

/// Runs body(lane, band) for each band of a warp; `band` is its first row.
template <class Body>
KOKKOS_FUNCTION void for_each_band(const TeamMember& team, const Body& body) {
  const int warp = team.team_rank() / TileLayout::lanes;
  unrolled<bands / tile_team_warps>([&](int i) {
    body(team.team_rank() % TileLayout::lanes, (i * tile_team_warps + warp) * tile_size);
  });
}

/// Queries [first, first + count) of a sequence's rows, at positions [position, position + count).
struct QueryTile {
  std::int64_t row;       ///< row of the first query in q and out
  std::int64_t head_row;  ///< row of the first query in arrays (batch, heads, rows)
  int head, kv_head;
  std::int64_t kv_row;  ///< row of the sequence's first key
  int position, count;
};

/// Divides each run of queries into tiles, for every head and sequence.
struct QueryTiles {
  QueryRuns runs;
  int batch, heads, group, tokens, rows;
  int of_run, of_sequence;

  QueryTiles(const AttentionShape& shape, const QueryRuns& runs_)
      : runs(runs_),
        batch(static_cast<int>(shape.batch)),
        heads(static_cast<int>(shape.heads)),
        group(static_cast<int>(shape.heads / shape.kv_heads)),
        tokens(static_cast<int>(shape.tokens)),
        rows(static_cast<int>(runs.rows())),
        of_run(static_cast<int>(items_for(runs.run(0).count, team_rows))),
        of_sequence(of_run * static_cast<int>(runs.runs())) {}

  std::int64_t count() const { return std::int64_t{of_sequence} * batch * heads; }

  /// Returns a tile. The last tiles, which see the most keys, have the lowest indices.
  KOKKOS_FUNCTION QueryTile at(int index) const {
    const int head = index % heads, sequence = index / heads % batch;
    const int tile = of_sequence - 1 - index / heads / batch;
    const int first = tile % of_run * team_rows;
    const TokenRun run = runs.run(tile / of_run);
    const int left = static_cast<int>(run.count) - first;
    const std::int64_t row = run.row + first;
    return {std::int64_t{sequence} * rows + row,
            (std::int64_t{sequence} * heads + head) * rows + row,
            head,
            head / group,
            std::int64_t{sequence} * tokens,
            static_cast<int>(run.position) + first,
            left < team_rows ? left : team_rows};
  }
};

/// Returns the address of row `row` and head `head` of a matrix that has heads side by side.
template <class T>
KOKKOS_FUNCTION T* head_at(const View<T**>& x, std::int64_t row, int head, int width) {
  return x.data() + row * x.stride() + head * width;
}

/// out = softmax(q K^T scale) V of a tile of queries. The largest score and the sum of exponentials
/// are those of the keys so far; sums are rescaled when the largest score changes.
template <class T, int width>
struct AttendForward {
  static constexpr int key_rows = 64;
  static constexpr int steps = width / tile_size;
  static constexpr int key_tiles = key_rows / tile_size;
  static constexpr std::size_t bytes = sizeof(T) * 2 * key_rows * width;

  QueryTiles tiles;
  View<const T**> q, kv;
  View<T**> out;
  View<float*> log_sum_exp;
  int kv_heads;
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
    const float to_log2 = scale * log2_e;

    begin_copy_rows<team_rows>(team, values, head_at(q, tile.row, tile.head, width), q.stride(),
                               tile.count);
    begin_copy_rows<key_rows>(team, keys, key_head, kv.stride(), seen);
    end_copies(team);
    LeftTile<T> queries[steps];
    unrolled<steps>([&](int k) { queries[k] = load_left(lane, values, band, k * tile_size); });

    SumTile sums[steps];
    TileRows largest(minus_infinity), total(0);
    for (int key = 0; key < seen; key += key_rows) {
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
      if (key + key_rows > first + 1) {
        unrolled<key_tiles>([&](int j) {
          scores[j].map(lane, [&](int r, int column, float score) {
            return key + j * tile_size + column <= first + TileLayout::row(lane, r)
                       ? score
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
      inverse.at[r] = 1.0f / total.at[r];
      const int row = band + TileLayout::row(lane, r);
      if (TileLayout::is_first_of_row(lane) && row < tile.count)
        log_sum_exp[tile.head_row + row] = largest.at[r] * scale + log(total.at[r]);
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

/// dq = dS K scale of a tile of queries, dS = P (dP - delta).
template <class T, int width>
struct AttendBackwardQueries {
  static constexpr int key_rows = 32;  // two halves: one is used while the other is loaded
  static constexpr int steps = width / tile_size;
  static constexpr int key_tiles = key_rows / tile_size;
  static constexpr std::size_t bytes = sizeof(T) * 2 * team_rows * width;
  static_assert(2 * key_rows == team_rows, "queries are loaded by way of both halves");

  QueryTiles tiles;
  View<const T**> q, kv, out, dout;
  View<const float*> log_sum_exp;
  View<T**> dq;
  View<float*> delta;
  int kv_heads;
  float scale;

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    T* const memory = shared_memory<T>(team, bytes);
    const QueryTile tile = tiles.at(team.league_rank());
    for_each_band(team, [&](int lane, int band) { differentiate(team, lane, tile, band, memory); });
  }

  KOKKOS_FUNCTION void differentiate(const TeamMember& team, int lane, const QueryTile& tile,
                                     int band, T* memory) const {
    const SharedRows<T, width> keys(memory), values(memory + team_rows * width);
    const T* const key_head = head_at(kv, tile.kv_row, tile.kv_head, width);
    const T* const value_head = head_at(kv, tile.kv_row, kv_heads + tile.kv_head, width);
    const int seen = tile.position + tile.count;
    const float to_log2 = scale * log2_e;

    LeftTile<T> queries[steps], douts[steps];
    TileRows deltas(0), shift(0);
    load_queries(team, lane, tile, band, keys, values, queries, douts, deltas, shift);

    const auto begin_keys = [&](int key) {
      const int half = key % team_rows;
      begin_copy_rows<key_rows>(team, keys.from(half), key_head + key * kv.stride(), kv.stride(),
                                seen - key);
      begin_copy_rows<key_rows>(team, values.from(half), value_head + key * kv.stride(),
                                kv.stride(), seen - key);
    };
    begin_keys(0);
    SumTile sums[steps];
    for (int key = 0; key < seen; key += key_rows) {
      end_copies(team);
      if (key + key_rows < seen) begin_keys(key + key_rows);
      const int half = key % team_rows, first = tile.position + band;
      rolled(key_tiles, [&](int j) {
        const int row = half + j * tile_size, first_key = key + j * tile_size;
        SumTile scores, dprobabilities;
        unrolled<steps>([&](int k) {
          scores.add_product(queries[k], load_right_transposed(lane, keys, row, k * tile_size));
          dprobabilities.add_product(douts[k],
                                     load_right_transposed(lane, values, row, k * tile_size));
        });
        scores.map(
            lane,
            [&](int r, int column, float score, float dprobability) {
              const float probability = tile_exp2(fma(score, to_log2, shift.at[r]));
              return first_key + column <= first + TileLayout::row(lane, r)
                         ? probability * (dprobability - deltas.at[r])
                         : 0.0f;
            },
            dprobabilities);
        const LeftTile<T> left = scores.template as_left<T>();
        unrolled<steps>(
            [&](int k) { sums[k].add_product(left, load_right(lane, keys, row, k * tile_size)); });
      });
    }
    team.team_barrier();
    unrolled<steps>([&](int k) {
      sums[k].map(lane, [&](int, int, float sum) { return sum * scale; });
      sums[k].store(lane, keys, band, k * tile_size);
    });
    team.team_barrier();
    store_rows(lane, keys, band, head_at(dq, tile.row, tile.head, width), dq.stride(), tile.count);
  }

  /// Loads queries, dout and the statistics of the rows through both buffers.
  KOKKOS_FUNCTION void load_queries(const TeamMember& team, int lane, const QueryTile& tile,
                                    int band, const SharedRows<T, width>& first,
                                    const SharedRows<T, width>& second,
                                    LeftTile<T> (&queries)[steps], LeftTile<T> (&douts)[steps],
                                    TileRows& deltas, TileRows& shift) const {
    begin_copy_rows<team_rows>(team, first, head_at(dout, tile.row, tile.head, width),
                               dout.stride(), tile.count);
    begin_copy_rows<team_rows>(team, second, head_at(out, tile.row, tile.head, width), out.stride(),
                               tile.count);
    end_copies(team);
    unrolled<steps>([&](int k) {
      douts[k] = load_left(lane, first, band, k * tile_size);
      add_row_products(douts[k], load_left(lane, second, band, k * tile_size), deltas);
    });
    deltas.combine_lanes([](float a, float b) { return a + b; });
    team.team_barrier();
    begin_copy_rows<team_rows>(team, first, head_at(q, tile.row, tile.head, width), q.stride(),
                               tile.count);
    end_copies(team);
    unrolled<steps>([&](int k) { queries[k] = load_left(lane, first, band, k * tile_size); });
    unrolled<TileLayout::rows>([&](int r) {
      const int row = band + TileLayout::row(lane, r);
      if (row >= tile.count) return;
      shift.at[r] = -log_sum_exp[tile.head_row + row] * log2_e;
      if (TileLayout::is_first_of_row(lane)) delta[tile.head_row + row] = deltas.at[r];
    });
    team.team_barrier();
  }
};

/// A step of queries of one head: rows [row, row + query_rows) of a sequence.
struct QueryStep {
  int member;  ///< among the query heads that share the key and value head
  int run;
  int row;  ///< in the run
};

/// dk = dS^T Q scale and dv = P^T dO of a tile of keys. Sums are over the query heads of its group
/// in order, over the runs of each, and over 16 queries at a time from the begin of the run. K:
/// dtype of the gradients.
template <class T, class K, int width>
struct AttendBackwardKv {
  static constexpr int query_rows = tile_size;
  static constexpr int steps = width / tile_size;
  static constexpr int query_elements = query_rows * width;
  /// Shared memory: the tile of values, and two buffers of queries, dout, log_sum_exp and delta.
  static constexpr std::size_t bytes =
      sizeof(T) * (team_rows * width + 4 * query_elements) + sizeof(float) * 4 * query_rows;
  static_assert(4 * query_rows == team_rows, "keys are loaded by way of the queries");

  Kokkos::Array<TokenRun, 2> run;
  int runs, first_sequence, sequences;
  int heads, kv_heads, tokens, rows;
  View<const T**> q, kv, dout;
  View<const float*> log_sum_exp, delta;
  KvGradients<K> to;
  float scale;

  KOKKOS_FUNCTION void operator()(const TeamMember& team) const {
    T* const memory = shared_memory<T>(team, bytes);
    // The first keys, which the most queries see, come first.
    const int index = team.league_rank();
    const int kv_head = index % kv_heads, sequence = index / kv_heads % sequences;
    const int first_key = index / kv_heads / sequences * team_rows;
    for_each_band(team, [&](int lane, int band) {
      differentiate(team, lane, sequence, kv_head, first_key, band, memory);
    });
  }

  /// Returns the first row of a run whose step has queries that see keys from `key` on.
  KOKKOS_FUNCTION int first_row(int of_run, int key) const {
    const int before = key - static_cast<int>(run[static_cast<std::size_t>(of_run)].position);
    return before > 0 ? before / query_rows * query_rows : 0;
  }
  /// Advances to the next step; returns false after the last. Must be called before the first step.
  KOKKOS_FUNCTION bool advance(QueryStep& step, int key) const {
    step.row += query_rows;
    while (step.row >= static_cast<int>(run[static_cast<std::size_t>(step.run)].count)) {
      if (++step.run == runs) {
        step.run = 0;
        if (++step.member == heads / kv_heads) return false;
      }
      step.row = first_row(step.run, key);
    }
    return true;
  }

  KOKKOS_FUNCTION void differentiate(const TeamMember& team, int lane, int sequence, int kv_head,
                                     int first_key, int band, T* memory) const {
    const SharedRows<T, width> values(memory), others(memory + team_rows * width);
    float* const row_values =
        reinterpret_cast<float*>(memory + team_rows * width + 4 * query_elements);
    const std::int64_t kv_row = std::int64_t{first_sequence + sequence} * tokens + first_key;
    const int key_count = tokens - first_key < team_rows ? tokens - first_key : team_rows;
    const float to_log2 = scale * log2_e;

    begin_copy_rows<team_rows>(team, values, head_at(kv, kv_row, kv_heads + kv_head, width),
                               kv.stride(), key_count);
    begin_copy_rows<team_rows>(team, others, head_at(kv, kv_row, kv_head, width), kv.stride(),
                               key_count);
    end_copies(team);
    LeftTile<T> keys[steps];
    unrolled<steps>([&](int k) { keys[k] = load_left(lane, others, band, k * tile_size); });
    team.team_barrier();

    // One half of `others` and `row_values` is used while the other half is loaded.
    const auto begin_queries = [&](const QueryStep& step, int half) {
      const TokenRun& of = run[static_cast<std::size_t>(step.run)];
      const int head = kv_head * (heads / kv_heads) + step.member;
      const int count = static_cast<int>(of.count) - step.row;
      const std::int64_t row = of.row + step.row;
      const std::int64_t q_row = std::int64_t{first_sequence + sequence} * rows + row;
      begin_copy_rows<query_rows>(team, others.from(2 * half * query_rows),
                                  head_at(q, q_row, head, width), q.stride(), count);
      begin_copy_rows<query_rows>(team, others.from((2 * half + 1) * query_rows),
                                  head_at(dout, q_row, head, width), dout.stride(), count);
      const std::int64_t head_row =
          (std::int64_t{first_sequence + sequence} * heads + head) * rows + row;
      for (int i = team.team_rank(); i < 2 * query_rows; i += tile_team_threads) {
        const int at = i % query_rows;
        const float* const from = i < query_rows ? log_sum_exp.data() : delta.data();
        const int place = 2 * half * query_rows + i;
        begin_copy<4>(row_values + place, 0, from + head_row + (at < count ? at : 0), at < count);
      }
    };

    SumTile dkeys[steps], dvalues[steps];
    QueryStep step{0, 0, first_row(0, first_key) - query_rows};
    bool exists = advance(step, first_key);
    if (exists) begin_queries(step, 0);
    for (int half = 0; exists; half = 1 - half) {
      end_copies(team);
      // Position of this step's queries relative to the first key of this band.
      const int ahead = static_cast<int>(run[static_cast<std::size_t>(step.run)].position) +
                        step.row - first_key - band;
      exists = advance(step, first_key);
      if (exists) begin_queries(step, 1 - half);
      const int q_tile = 2 * half * query_rows, dout_tile = q_tile + query_rows;
      const float* const sums_of = row_values + q_tile;
      const float* const deltas = sums_of + query_rows;

      SumTile scores, dprobabilities;  // (keys, queries)
      unrolled<steps>([&](int k) {
        scores.add_product(keys[k], load_right_transposed(lane, others, q_tile, k * tile_size));
        dprobabilities.add_product(load_left(lane, values, band, k * tile_size),
                                   load_right_transposed(lane, others, dout_tile, k * tile_size));
      });
      scores.map(lane, [&](int r, int column, float score) {
        const float probability = tile_exp2(fma(score, to_log2, -sums_of[column] * log2_e));
        return TileLayout::row(lane, r) <= ahead + column ? probability : 0.0f;
      });
      const LeftTile<T> probabilities = scores.template as_left<T>();
      unrolled<steps>([&](int k) {
        dvalues[k].add_product(probabilities, load_right(lane, others, dout_tile, k * tile_size));
      });
      scores.map(
          lane,
          [&](int, int column, float probability, float dprobability) {
            return probability * (dprobability - deltas[column]);
          },
          dprobabilities);
      const LeftTile<T> dscores = scores.template as_left<T>();
      unrolled<steps>([&](int k) {
        dkeys[k].add_product(dscores, load_right(lane, others, q_tile, k * tile_size));
      });
    }
    const std::int64_t row = sequence * to.sequence_rows + kv_head * to.head_rows + first_key;
    const int head_columns = static_cast<int>(to.head_columns);
    store(team, lane, band, key_count, 1.0f, values, dvalues,
          head_at(to.values, row, kv_head, head_columns), to.values.stride());
    store(team, lane, band, key_count, scale, values, dkeys,
          head_at(to.keys, row, kv_head, head_columns), to.keys.stride());
  }

  /// Stores the scaled sums of this band in `count` valid rows.
  KOKKOS_FUNCTION void store(const TeamMember& team, int lane, int band, int count, float times,
                             const SharedRows<T, width>& room, SumTile (&sums)[steps], K* rows_of,
                             std::int64_t stride) const {
    unrolled<steps>(
        [&](int k) { sums[k].map(lane, [=](int, int, float sum) { return sum * times; }); });
    if constexpr (std::is_same<T, K>::value) {
      team.team_barrier();  // all threads have read the shared memory
      unrolled<steps>([&](int k) { sums[k].store(lane, room, band, k * tile_size); });
      team.team_barrier();
      store_rows(lane, room, band, rows_of, stride, count);
    } else {
      unrolled<steps>(
          [&](int k) { sums[k].store_wide(lane, rows_of + k * tile_size, stride, band, count); });
    }
  }
};

/// A constant head width for kernel(Width<w>()).
template <int w>
using Width = std::integral_constant<int, w>;
template <class Kernel>
void with_width(const AttentionShape& shape, const Kernel& kernel) {
  if (shape.head_width == 64)
    kernel(Width<64>());
  else
    kernel(Width<128>());
}

float scale_of(const AttentionShape& shape) {
  return 1.0f / std::sqrt(static_cast<float>(shape.head_width));
}

template <class Kernel>
void run(const Exec& exec, const char* name, std::int64_t teams, const Kernel& kernel) {
  constexpr std::size_t bytes = Kernel::bytes + shared_alignment;
  static_assert(bytes <= 47104, "Kokkos gives no more than 48 KiB");
  for_each_team(exec, name, teams, tile_team_threads, bytes, kernel);
}

}  // namespace

template <class T>
void attend_on_chip(const Exec& exec, const AttentionInputs<T>& in, View<T**> out,
                    View<float*> log_sum_exp) {
  with_width(in.shape, [&](auto width) {
    const QueryTiles tiles(in.shape, in.runs);
    run(exec, "attend_forward", tiles.count(),
        AttendForward<T, width()>{tiles, in.q, in.kv, out, log_sum_exp,
                                  static_cast<int>(in.shape.kv_heads), scale_of(in.shape)});
  });
}

template <class T>
void attend_backward_queries(const Exec& exec, const AttentionInputs<T>& in,
                             const AttentionGradients<T>& gradients, View<const T**> out,
                             View<T**> dq, View<float*> delta) {
  with_width(in.shape, [&](auto width) {
    const QueryTiles tiles(in.shape, in.runs);
    run(exec, "attend_dq", tiles.count(),
        AttendBackwardQueries<T, width()>{tiles, in.q, in.kv, out, gradients.dout,
                                          gradients.log_sum_exp, dq, delta,
                                          static_cast<int>(in.shape.kv_heads), scale_of(in.shape)});
  });
}

template <class T, class K>
void attend_backward_kv(const Exec& exec, const AttentionInputs<T>& in,
                        const AttentionGradients<T>& gradients, View<const float*> delta,
                        const AttentionRange& range, const KvGradients<K>& to) {
  const AttentionShape& shape = in.shape;
  const Kokkos::Array<TokenRun, 2> runs{in.runs.run(range.first_run),
                                        in.runs.run(range.first_run + range.runs - 1)};
  with_width(shape, [&](auto width) {
    run(exec, "attend_dkv", items_for(shape.tokens, team_rows) * shape.kv_heads * range.sequences,
        AttendBackwardKv<T, K, width()>{
            runs, static_cast<int>(range.runs), static_cast<int>(range.first_sequence),
            static_cast<int>(range.sequences), static_cast<int>(shape.heads),
            static_cast<int>(shape.kv_heads), static_cast<int>(shape.tokens),
            static_cast<int>(in.runs.rows()), in.q, in.kv, gradients.dout, gradients.log_sum_exp,
            delta, to, scale_of(shape)});
  });
}

#define OSTRAKON_INSTANTIATE_KV(T, K)                                                      \
  template void attend_backward_kv<T, K>(const Exec&, const AttentionInputs<T>&,           \
                                         const AttentionGradients<T>&, View<const float*>, \
                                         const AttentionRange&, const KvGradients<K>&);
#define OSTRAKON_INSTANTIATE(T)                                                           \
  template void attend_on_chip<T>(const Exec&, const AttentionInputs<T>&, View<T**>,      \
                                  View<float*>);                                          \
  template void attend_backward_queries<T>(const Exec&, const AttentionInputs<T>&,        \
                                           const AttentionGradients<T>&, View<const T**>, \
                                           View<T**>, View<float*>);                      \
  OSTRAKON_INSTANTIATE_KV(T, T)                                                           \
  OSTRAKON_INSTANTIATE_KV(T, float)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE
#undef OSTRAKON_INSTANTIATE_KV

}  // namespace ostrakon::math

#endif
