// SPDX-License-Identifier: Apache-2.0
#pragma once

// Columns that a team of a device's threads quantizes. It keeps them on the chip until it knows
// their scales, and transposes them on the way. Columns that are too long for one team are divided
// into parts, one for each team of a cluster, which tell each other the maxima of their parts.

#include <ostrakon/math/block_team.hpp>
#include <ostrakon/math/fp8/packed_elements.hpp>
#include <ostrakon/math/fp8/quantize.hpp>
#include <ostrakon/math/shared_copies.hpp>
#include <ostrakon/math/team_cluster.hpp>
#include <ostrakon/math/unrolled.hpp>

namespace ostrakon::math {

#if OSTRAKON_ON_DEVICE

/// Threads of a team, at most, and the rows of a run: codes of a column that are stored at once.
constexpr int most_threads_of_codes = 512, run_rows = static_cast<int>(rows_of_run);
static_assert(std::int64_t{most_threads_of_codes} * run_rows == held_of_column,
              "a team of one vector's columns is full");

/// run_rows rows of one vector of columns: 16 bytes of each, those of double as floats.
template <class T>
struct ColumnRun {
  using Element = std::conditional_t<std::is_same<T, double>::value, float, T>;
  static constexpr int words = vector_elements<T>() * static_cast<int>(sizeof(Element)) / 4;
  using Row = Vector<std::uint32_t, words>;
  using Largest = Maxima<Element, words>;

  Row row[run_rows];
};

/// What a thread holds of columns; in tests on a host one thread holds all of them.
template <class T>
struct HeldColumns {
#if OSTRAKON_IN_DEVICE_CODE
  ColumnRun<T> of_item[1];
#else
  ColumnRun<T> of_item[most_threads_of_codes];
#endif
};

/// The columns of a thread's teams: of one, and in tests on a host of all of a cluster.
template <class T>
struct OwnColumns {
  HeldColumns<T> of_team[OSTRAKON_IN_DEVICE_CODE == 1 ? 1 : most_teams_of_cluster];

  KOKKOS_FUNCTION HeldColumns<T>& at([[maybe_unused]] int team) {
#if OSTRAKON_IN_DEVICE_CODE
    return of_team[0];
#else
    return of_team[team];
#endif
  }
};

/// Some columns of one piece of a matrix, or a part of them, which a team of threads quantizes:
/// each item of work has the runs `lane`, lane + lanes, ... of a vector of columns. It holds the
/// first of them in registers, as many of the next as there is room in shared memory, and reads the
/// rest twice.
template <class T, Fp8Format format>
struct ColumnsOfTeam {
  static constexpr int n = vector_elements<T>(), words = ColumnRun<T>::words;
  using Row = typename ColumnRun<T>::Row;
  using Largest = typename ColumnRun<T>::Largest;

  const BlockTeam& team;
  View<const T**> x;           ///< (rows of the part, columns of the team)
  View<std::uint8_t**> codes;  ///< (columns of the team, rows of the part, padded to runs)
  View<float*> scales;         ///< (columns of the team)
  int groups;                  ///< how many vectors of columns the team has
  int lanes;                   ///< the runs of a vector before this one are in registers
  int end_of_kept;             ///< those from `lanes` to this one are in shared memory
  std::uint32_t* kept;         ///< [row of a run][run][group][word], in shared memory
  std::uint32_t* largest;      ///< [lane][group][word of Maxima], in shared memory
  float* inverse;              ///< of each column's scale, in shared memory

  /// body(lane, group, held run) for the items of the calling thread.
  template <class Body>
  KOKKOS_FUNCTION void for_each(HeldColumns<T>& held, const Body& body) const {
#if OSTRAKON_IN_DEVICE_CODE
    const int item = team.rank();
    if (item < lanes * groups) body(item / groups, item % groups, held.of_item[0]);
#else
    for (int item = 0; item < lanes * groups; ++item)
      body(item / groups, item % groups, held.of_item[item]);
#endif
  }

  KOKKOS_FUNCTION bool has(int row, int column) const {
    return row < static_cast<int>(x.rows()) && column < static_cast<int>(x.columns());
  }
  KOKKOS_FUNCTION const std::uint32_t* words_at(int row, int column) const {
    return reinterpret_cast<const std::uint32_t*>(x.data() + column +
                                                  std::int64_t{row} * static_cast<int>(x.stride()));
  }
  KOKKOS_FUNCTION bool is_kept(int run) const { return run >= lanes && run < end_of_kept; }
  KOKKOS_FUNCTION std::uint32_t* kept_row(int run, int r, int group) const {
    return kept + static_cast<std::ptrdiff_t>(
                      (((end_of_kept - lanes) * r + run - lanes) * groups + group) * 4);
  }
  /// Begins to copy the runs that are kept. A thread reads what it has copied itself.
  KOKKOS_FUNCTION void begin_copies(int lane, int group) const {
    const int column = group * n;
    for (int run = lane + lanes; run < end_of_kept; run += lanes)
      rolled(run_rows, [&](int r) {
        const int row = run * run_rows + r;
        const bool exists = has(row, column);
        begin_lanes_copy<4>(kept_row(run, r, group), exists ? words_at(row, column) : nullptr, 0,
                            exists ? 4 : 0);
      });
  }
  /// Returns row r of a run, with zeros outside of the matrix.
  KOKKOS_FUNCTION Row row_of(int run, int r, int group) const {
    if (is_kept(run)) return held_row(load_vector<4>(kept_row(run, r, group)));
    const int row = run * run_rows + r, column = group * n;
    return has(row, column) ? held_row(load_vector<4>(words_at(row, column))) : Row{};
  }
  KOKKOS_FUNCTION static Row held_row(const Vector<std::uint32_t, 4>& loaded) {
    if constexpr (words == 4) {
      return loaded;
    } else {
      Row floats;
      for (int k = 0; k < n; ++k)
        floats.at[k] = half_bits::of_float(float_element<T>(loaded.at, k));
      return floats;
    }
  }
  KOKKOS_FUNCTION ColumnRun<T> load(int run, int group) const {
    ColumnRun<T> values;
    unrolled<run_rows>([&](int r) { values.row[r] = row_of(run, r, group); });
    return values;
  }
  /// Adds rows that are not held, with few registers.
  KOKKOS_FUNCTION void add_rows(int run, int group, Largest& maxima) const {
    rolled(run_rows, [&](int r) { maxima.add(row_of(run, r, group)); });
  }
  /// Returns the codes of four rows in column k of a group.
  KOKKOS_FUNCTION std::uint32_t word_of(const Row* four, int group, int k) const {
    const float factor = inverse[group * n + k];
    const auto scaled = [&](int r) {
      return float_element<typename ColumnRun<T>::Element>(four[r].at, k) * factor;
    };
    return fp8_word_of(format, scaled(0), scaled(1), scaled(2), scaled(3));
  }
  KOKKOS_FUNCTION std::uint32_t* codes_at(int row, int column) const {
    return reinterpret_cast<std::uint32_t*>(
        codes.data() + row + std::int64_t{column} * static_cast<int>(codes.stride()));
  }
  KOKKOS_FUNCTION void store(int run, int group, const ColumnRun<T>& values) const {
    const int first = run * run_rows;
    const int column = group * n;
    if (column >= static_cast<int>(x.columns())) return;
    // Row by row, so that their registers become free.
    Vector<std::uint32_t, 4> out[n];
    unrolled<run_rows / 4>([&](int w) {
      unrolled<n>([&](int k) {
        out[k].at[w] = word_of(values.row + static_cast<std::ptrdiff_t>(4 * w), group, k);
      });
    });
    unrolled<n>([&](int k) { store_vector<4>(codes_at(first, column + k), out[k]); });
  }
  /// Stores rows that are not held, with few registers.
  KOKKOS_FUNCTION void store_rows(int run, int group) const {
    const int column = group * n;
    if (column >= static_cast<int>(x.columns())) return;
    rolled(run_rows / 4, [&](int w) {
      const int first = run * run_rows + 4 * w;
      Row four[4];
      unrolled<4>([&](int r) { four[r] = row_of(run, 4 * w + r, group); });
      unrolled<n>([&](int k) {
        store_vector<1>(codes_at(first, column + k), {{word_of(four, group, k)}});
      });
    });
  }

  KOKKOS_FUNCTION int runs() const { return static_cast<int>(codes.columns()) / run_rows; }

  /// Loads the columns; their maxima come to be the first of `largest`.
  KOKKOS_FUNCTION void find_maxima(HeldColumns<T>& held) const {
    const int width = groups * words;
    for_each(held, [&](int lane, int group, ColumnRun<T>& own) {
      begin_copies(lane, group);
      own = load(lane, group);
      Largest maxima;
      unrolled<run_rows>([&](int r) { maxima.add(own.row[r]); });
      end_own_copies();
      for (int run = lane + lanes; run < runs(); run += lanes) add_rows(run, group, maxima);
      for (int w = 0; w < words; ++w) largest[lane * width + group * words + w] = maxima.word[w];
    });
    team.barrier();
    for (int left = lanes; left > 1;) {
      const int half = (left + 1) / 2;
      for (int i = team.rank(); i < (left - half) * width; i += team.size())
        largest[i] = Largest::larger_of(largest[i], largest[i + half * width]);
      team.barrier();
      left = half;
    }
  }
  /// Stores codes and scales, for the first of `largest`.
  KOKKOS_FUNCTION void store_codes(HeldColumns<T>& held) const {
    for (int i = team.rank(); i < groups * n; i += team.size()) {
      const Fp8Scale scale(
          format, Largest::of(largest + static_cast<std::ptrdiff_t>(i / n * words), i % n));
      inverse[i] = scale.inverse;
      if (i < static_cast<int>(x.columns())) scales[i] = scale.scale;
    }
    team.barrier();
    for_each(held, [&](int lane, int group, [[maybe_unused]] const ColumnRun<T>& own) {
      if (lane >= runs()) return;  // the last part may have fewer than others
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
      // Devices without an instruction that rounds to 8 bits need many registers to do so, so rows
      // are read again in place of those that are held. It only has to compile: products in 8 bits
      // are refused there.
      store_rows(lane, group);
#else
      store(lane, group, own);
#endif
      for (int run = lane + lanes; run < runs(); run += lanes) store_rows(run, group);
    });
  }
};

/// The first of each team's `largest` become the largest of all teams. Teams that share columns
/// have one group of them. tile_of(t): the columns of team t.
template <class Tile, class TileOf>
KOKKOS_INLINE_FUNCTION void join_maxima(const TeamCluster& cluster, const TileOf& tile_of) {
  using Shared = Vector<std::uint32_t, Tile::words>;
  cluster.for_own_teams(
      [&](int t) { cluster.share(t, load_vector<Tile::words>(tile_of(t).largest)); });
  cluster.wait();
  cluster.for_own_teams([&](int t) {
    const Tile tile = tile_of(t);
    for (int w = tile.team.rank(); w < Tile::words; w += tile.team.size())
      for (int other = 0; other < cluster.teams(); ++other)
        tile.largest[w] =
            Tile::Largest::larger_of(tile.largest[w], cluster.shared_by<Shared>(other).at[w]);
  });
  cluster.wait();
}

#endif

}  // namespace ostrakon::math
