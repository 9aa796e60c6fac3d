// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sums over the columns of a matrix, on a device. On the host a kernel walks the rows and keeps a
// run of columns in registers (work_items.hpp); a device would have only one thread per column that
// way.

#include <ostrakon/math/rows/row_kernel.hpp>

namespace ostrakon::math {

#if OSTRAKON_ON_DEVICE

/// Whether vectors of n elements are aligned at every n-th column of every row.
template <int n, class T>
bool rows_begin_vectors(const View<T**>& x) {
  return begin_vectors<n>(x.data()) && x.stride() % n == 0;
}

/// Sizes of a team's work: its columns, the columns of a thread (a vector), and the number of lanes
/// that share the rows. The sums of the lanes are in shared memory: 32 KiB.
template <class C, int outputs>
struct ColumnTile {
  static constexpr int columns = 16;
  static constexpr int lanes = 2048 / outputs / static_cast<int>(sizeof(C));  // a power of two
  static constexpr std::size_t bytes = sizeof(C) * lanes * columns * outputs;
};

/// sums[o][c] = the sum over r in [0, rows) of the terms that terms.add<n>(r, c, s) adds to s[o * n
/// + i] for column c + i: for `columns` columns. Lane l sums rows l, l + lanes, ... in order, and a
/// tree sums the lanes, so that the result depends on the shape alone. n is 1, or larger if
/// terms.begin_vectors<n>(). Allocates nothing.
template <int n, class C, int outputs, class Terms>
static void sum_over_rows_in_vectors(const Exec& exec, const char* name, std::int64_t rows,
                                     std::int64_t columns, const Terms& terms,
                                     const Kokkos::Array<View<C*>, outputs>& sums) {
  using Tile = ColumnTile<C, outputs>;
  constexpr int groups = Tile::columns / n;
  constexpr int items = Tile::lanes * groups;
  for_each_team(
      exec, name, items_for(columns, Tile::columns), std::min(items, 1024), Tile::bytes,
      KOKKOS_LAMBDA(const TeamMember& team) {
        // partial[(o * lanes + lane) * Tile::columns + column]
        constexpr std::size_t bytes = Tile::bytes;  // named, as the call takes a reference
        C* const partial = static_cast<C*>(team.team_scratch(0).get_shmem(bytes));
        const std::int64_t first = team.league_rank() * Tile::columns;
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, items), [&](int item) {
          const int lane = item / groups, column = item % groups * n;
          C sum[outputs * n] = {};
          if (first + column < columns)
            for (std::int64_t r = lane; r < rows; r += Tile::lanes)
              terms.template add<n>(r, first + column, sum);
          for (int o = 0; o < outputs; ++o)
            for (int i = 0; i < n; ++i)
              partial[(o * Tile::lanes + lane) * Tile::columns + column + i] = sum[o * n + i];
        });
        team.team_barrier();
        for (int lanes_left = Tile::lanes / 2; lanes_left > 0; lanes_left /= 2) {
          const int pairs = lanes_left * Tile::columns;
          Kokkos::parallel_for(Kokkos::TeamVectorRange(team, outputs * pairs), [&](int pair) {
            const int o = outputs == 1 ? 0 : pair / pairs;
            C* const lanes = partial + o * Tile::lanes * Tile::columns;
            lanes[pair - o * pairs] += lanes[pair - o * pairs + pairs];
          });
          team.team_barrier();
        }
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, outputs * Tile::columns), [&](int i) {
          const int o = i / Tile::columns, column = i % Tile::columns;
          if (first + column < columns)
            sums[static_cast<std::size_t>(o)][first + column] =
                partial[o * Tile::lanes * Tile::columns + column];
        });
      });
}

template <class C, int outputs, class Terms>
void sum_over_rows(const Exec& exec, const char* name, std::int64_t rows, std::int64_t columns,
                   const Terms& terms, const Kokkos::Array<View<C*>, outputs>& sums) {
  constexpr int n = Terms::vector;
  if (columns % n == 0 && terms.template begin_vectors<n>())
    sum_over_rows_in_vectors<n, C, outputs>(exec, name, rows, columns, terms, sums);
  else
    sum_over_rows_in_vectors<1, C, outputs>(exec, name, rows, columns, terms, sums);
}

#endif

}  // namespace ostrakon::math
