// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/attention_chip_tiles.hpp>

#if OSTRAKON_MATRIX_TILES

namespace ostrakon::math {
namespace {

/// dq = dS K scale of a tile of queries, dS = P (dP - delta).
template <class T, int width, bool in_documents>
struct AttendBackwardQueries {
  static constexpr bool masks_apart = !in_documents;  // tiles without a mask have their own code
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
  int window;
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
    const int first_key = first_key_tile<in_documents>(tiles, tile, window, key_rows);
    const RowDocuments<in_documents> documents(tiles, tile, lane, band);
    begin_keys(first_key);
    SumTile sums[steps];
    for (int key = first_key; key < seen; key += key_rows) {
      end_copies(team);
      if (key + key_rows < seen) begin_keys(key + key_rows);
      const int half = key % team_rows, first = tile.position + band;
      rolled(key_tiles, [&](int j) {
        const int row = half + j * tile_size, tile_key = key + j * tile_size;
        SumTile scores, dprobabilities;
        unrolled<steps>([&](int k) {
          scores.add_product(queries[k], load_right_transposed(lane, keys, row, k * tile_size));
          dprobabilities.add_product(douts[k],
                                     load_right_transposed(lane, values, row, k * tile_size));
        });
        const auto differentiate_scores = [&](auto all_see) {
          scores.map(
              lane,
              [&](int r, int column, float score, float dprobability) {
                const float probability = tile_exp2(fma(score, to_log2, shift.at[r]));
                const float dscore = probability * (dprobability - deltas.at[r]);
                if constexpr (decltype(all_see)::value) return dscore;
                const int distance = first + TileLayout::row(lane, r) - (tile_key + column);
                return is_within(distance, window) && documents.reach(r, tile_key + column) ? dscore
                                                                                            : 0.0f;
              },
              dprobabilities);
        };
        if (masks_apart && tile_sees_tile(first - tile_key, window))
          differentiate_scores(std::true_type());
        else
          differentiate_scores(std::false_type());
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
/// in order, over the runs of each, and over 16 queries at a time from the begin of the run. A step
/// has as many queries as fit into the shared memory, as what it takes besides products does not
/// depend on their number. K: dtype of the gradients.
template <class T, class K, int width, bool in_documents>
struct AttendBackwardKv {
  static constexpr int query_tiles = width == 64 ? 2 : 1;
  static constexpr bool masks_apart = !in_documents && width == 64;  // registers are scarce
  static constexpr int query_rows = query_tiles * tile_size;
  static constexpr int steps = width / tile_size;
  static constexpr int query_elements = query_rows * width;
  /// Runs of a sequence's queries, at most.
  static constexpr int most_runs = 2;
  /// Shared memory: the tile of values, and two buffers of queries, dout, log_sum_exp, delta and,
  /// if there are documents, where these begin and the ends of runs.
  static constexpr std::size_t bytes =
      sizeof(T) * (team_rows * width + 4 * query_elements) +
      sizeof(float) * (in_documents ? 6 * query_rows + most_runs : 4 * query_rows);
  static_assert(4 * query_rows >= team_rows, "keys are loaded by way of the queries");

  Kokkos::Array<TokenRun, most_runs> run;
  int runs, first_sequence, sequences;
  int heads, kv_heads, group, tokens, rows;
  View<const T**> q, kv, dout;
  View<const float*> log_sum_exp, delta;
  View<const std::int32_t*> document_begins;
  KvGradients<K> to;
  int window;
  float scale, to_log2;

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
  /// Returns the row of a run behind the last that sees a key of the team that begins with `key`.
  KOKKOS_FUNCTION int end_row(int of_run, int key, const std::int32_t* ends) const {
    const TokenRun& in = run[static_cast<std::size_t>(of_run)];
    const int last = key + team_rows - 1 + window - static_cast<int>(in.position);
    const int end = in_documents ? ends[of_run] : static_cast<int>(in.count);
    return last < end ? last : end;
  }
  /// Sets of each run the first row whose document begins behind the team's keys.
  KOKKOS_FUNCTION void find_ends(int sequence, int key, std::int32_t* ends) const {
    for (int r = 0; r < runs; ++r) {
      const TokenRun& in = run[static_cast<std::size_t>(r)];
      const std::int64_t first = std::int64_t{first_sequence + sequence} * rows + in.row;
      int begin = 0, end = static_cast<int>(in.count);
      while (begin < end) {
        const int middle = (begin + end) / 2;
        if (document_begins[first + middle] < key + team_rows)
          begin = middle + 1;
        else
          end = middle;
      }
      ends[r] = begin;
    }
  }
  /// Advances to the next step; returns false after the last. Must be called before the first step.
  KOKKOS_FUNCTION bool advance(QueryStep& step, int key, const std::int32_t* ends) const {
    step.row += query_rows;
    while (step.row >= end_row(step.run, key, ends)) {
      if (++step.run == runs) {
        step.run = 0;
        if (++step.member == group) return false;
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
    auto* const document_values =
        reinterpret_cast<std::int32_t*>(row_values + std::ptrdiff_t{4} * query_rows);
    std::int32_t* const ends =
        document_values + std::ptrdiff_t{2} * query_rows;  // registers are scarce
    const std::int64_t kv_row = std::int64_t{first_sequence + sequence} * tokens + first_key;
    const int key_count = tokens - first_key < team_rows ? tokens - first_key : team_rows;

    begin_copy_rows<team_rows>(team, values, head_at(kv, kv_row, kv_heads + kv_head, width),
                               kv.stride(), key_count);
    begin_copy_rows<team_rows>(team, others, head_at(kv, kv_row, kv_head, width), kv.stride(),
                               key_count);
    if (in_documents && team.team_rank() == 0) find_ends(sequence, first_key, ends);
    end_copies(team);
    LeftTile<T> keys[steps];
    unrolled<steps>([&](int k) { keys[k] = load_left(lane, others, band, k * tile_size); });
    team.team_barrier();

    // One half of `others` and `row_values` is used while the other half is loaded.
    const auto begin_queries = [&](const QueryStep& step, int half) {
      const TokenRun& of = run[static_cast<std::size_t>(step.run)];
      const int head = kv_head * group + step.member;
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
      if constexpr (in_documents)
        for (int i = team.team_rank(); i < query_rows; i += tile_team_threads)
          begin_copy<4>(document_values + (half * query_rows + i), 0,
                        document_begins.data() + q_row + (i < count ? i : 0), i < count);
    };

    SumTile dkeys[steps], dvalues[steps];
    QueryStep step{0, 0, first_row(0, first_key) - query_rows};
    bool exists = advance(step, first_key, ends);
    if (exists) begin_queries(step, 0);
    for (int half = 0; exists; half = 1 - half) {
      end_copies(team);
      // Position of this step's queries relative to the first key of this band.
      const int step_ahead = static_cast<int>(run[static_cast<std::size_t>(step.run)].position) +
                             step.row - first_key - band;
      exists = advance(step, first_key, ends);
      if (exists) begin_queries(step, 1 - half);
      rolled(query_tiles, [&](int t) {
        const int row = t * tile_size, ahead = step_ahead + row;
        const int q_tile = 2 * half * query_rows + row, dout_tile = q_tile + query_rows;
        const float* const sums_of = row_values + q_tile;
        const float* const deltas = sums_of + query_rows;

        SumTile scores, dprobabilities;  // (keys, queries)
        unrolled<steps>([&](int k) {
          scores.add_product(keys[k], load_right_transposed(lane, others, q_tile, k * tile_size));
        });
        unrolled<steps>([&](int k) {
          dprobabilities.add_product(load_left(lane, values, band, k * tile_size),
                                     load_right_transposed(lane, others, dout_tile, k * tile_size));
        });
        const auto make_probabilities = [&](auto all_see) {
          scores.map(lane, [&](int r, int column, float score) {
            const float probability = tile_exp2(fma(score, to_log2, -sums_of[column] * log2_e));
            if constexpr (decltype(all_see)::value) return probability;
            const int key = TileLayout::row(lane, r);
            bool sees = is_within(ahead + column - key, window);
            if constexpr (in_documents)
              sees = sees &&
                     first_key + band + key >= document_values[half * query_rows + row + column];
            return sees ? probability : 0.0f;
          });
        };
        if (masks_apart && tile_sees_tile(ahead, window))
          make_probabilities(std::true_type());
        else
          make_probabilities(std::false_type());
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

}  // namespace

template <class T>
void attend_backward_queries(const Exec& exec, const AttentionInputs<T>& in,
                             const AttentionGradients<T>& gradients, View<const T**> out,
                             View<T**> dq, View<float*> delta) {
  with_constants(in.shape, in.runs, [&](auto width, auto in_documents) {
    const QueryTiles tiles(in.shape, in.runs);
    run(exec, "attend_dq", tiles.count(),
        AttendBackwardQueries<T, width(), in_documents()>{
            tiles, in.q, in.kv, out, gradients.dout, gradients.log_sum_exp, dq, delta,
            static_cast<int>(in.shape.kv_heads), window_of(in.shape),
            score_scale<float>(in.shape)});
  });
}

template <class T, class K>
void attend_backward_kv(const Exec& exec, const AttentionInputs<T>& in,
                        const AttentionGradients<T>& gradients, View<const float*> delta,
                        const AttentionRange& range, const KvGradients<K>& to) {
  const AttentionShape& shape = in.shape;
  const Kokkos::Array<TokenRun, 2> runs{in.runs.run(range.first_run),
                                        in.runs.run(range.first_run + range.runs - 1)};
  const float scale = score_scale<float>(shape);
  with_constants(shape, in.runs, [&](auto width, auto in_documents) {
    run(exec, "attend_dkv", items_for(shape.tokens, team_rows) * shape.kv_heads * range.sequences,
        AttendBackwardKv<T, K, width(), in_documents()>{
            runs, static_cast<int>(range.runs), static_cast<int>(range.first_sequence),
            static_cast<int>(range.sequences), static_cast<int>(shape.heads),
            static_cast<int>(shape.kv_heads), static_cast<int>(shape.heads / shape.kv_heads),
            static_cast<int>(shape.tokens), static_cast<int>(in.runs.rows()), in.q, in.kv,
            gradients.dout, gradients.log_sum_exp, delta, in.runs.document_begins(), to,
            window_of(shape), scale, scale * log2_e});
  });
}

#define OSTRAKON_INSTANTIATE_KV(T, K)                                                      \
  template void attend_backward_kv<T, K>(const Exec&, const AttentionInputs<T>&,           \
                                         const AttentionGradients<T>&, View<const float*>, \
                                         const AttentionRange&, const KvGradients<K>&);
#define OSTRAKON_INSTANTIATE(T)                                                           \
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
