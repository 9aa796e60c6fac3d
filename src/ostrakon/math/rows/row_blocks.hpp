// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sums over the rows of leaves on a device, in two launches for any number of leaves. The first one
// sums blocks of neighbouring rows, in order, each thread some columns of one block, along with
// what else it computes of these rows. The second one adds the blocks of each leaf, and then the
// leaves (add_blocks). The result depends on the rows of a leaf alone, whichever kernel sums the
// blocks.

#include <ostrakon/math/fast_divide.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>
#include <ostrakon/math/rows/row_sums.hpp>

namespace ostrakon::math {

#if OSTRAKON_ON_DEVICE

/// Blocks of at most `size` neighbouring rows, each of one leaf.
class RowBlocks {
 public:
  RowBlocks(std::int64_t rows, std::int64_t leaves, std::int64_t size)
      : rows_of_leaf_(rows / leaves),
        size_(size),
        of_leaf_(items_for(rows / leaves, size)),
        count_(leaves * of_leaf_),
        by_leaf_(std::max<std::int64_t>(of_leaf_, 1)) {}

  std::int64_t count() const { return count_; }
  KOKKOS_INLINE_FUNCTION std::int64_t begin(std::int64_t block) const {
    return by_leaf_.quotient(block) * rows_of_leaf_ + by_leaf_.rest(block) * size_;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t end(std::int64_t block) const {
    const std::int64_t end_of_leaf = (by_leaf_.quotient(block) + 1) * rows_of_leaf_;
    return smaller(begin(block) + size_, end_of_leaf);
  }

 private:
  std::int64_t rows_of_leaf_, size_, of_leaf_, count_;
  FastDivide by_leaf_;
};

/// The first blocks.count() * columns elements of a workspace: a row for the sums of each block.
template <class C>
View<C**> sums_of_blocks(const char* name, const RowSums<C>& sums, const RowBlocks& blocks,
                         std::int64_t columns) {
  require(sums.workspace.size() >= blocks.count() * columns, name, ": workspace of ",
          sums.workspace.size(), " elements, expected at least ", blocks.count() * columns);
  return sums.workspace.matrix(blocks.count(), columns);
}

/// Whether the rows of all matrices begin at whole vectors of n elements; an empty one's do.
template <int n, class... T>
bool are_whole(const View<T**>&... x) {
  return ((!x || (begin_vectors<n>(x.data()) && x.stride() % n == 0)) && ...);
}

/// Runs body(row, column of its first element) for every vector of n elements of a matrix, each in
/// a thread of its own. Body is KOKKOS_LAMBDA(int64_t, int64_t).
template <int n, class Body>
static void for_each_vector_of_rows(const Exec& exec, const char* name, std::int64_t rows,
                                    std::int64_t columns, const Body& body) {
  const std::int64_t vectors = items_for(columns, n);
  if (vectors == 0) return;
  const FastDivide by_vectors(vectors);
  for_each_item(
      exec, name, rows * vectors, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t r = by_vectors.quotient(item);
        body(r, (item - r * vectors) * n);
      });
}

/// Stores n neighbouring sums from column `begin` on, of `count` columns.
template <int n, class C>
KOKKOS_INLINE_FUNCTION void store_sums(C* to, std::int64_t begin, std::int64_t count,
                                       const C* sums) {
  constexpr int part = vector_elements<C>() < n ? vector_elements<C>() : n;
  for (int k = 0; k < n; k += part) {
    Vector<C, part> values;
    for (int i = 0; i < part; ++i) values.at[i] = sums[k + i];
    store_lanes<part>(to, begin + k, count, values);
  }
}

/// For each block of rows and each vector of n columns a thread runs terms.add(row, column, sums)
/// for the block's rows, in order, which adds to sums[o * n + k] a term of column column + k of
/// result o; of `outputs` results. Stores the sums in `partial` (blocks, outputs * columns), unless
/// that is null.
template <int n, int outputs, class C, class Terms>
static void for_each_row_block(const Exec& exec, const char* name, const RowBlocks& blocks,
                               std::int64_t columns, const Terms& terms, const View<C**>& partial) {
  const std::int64_t vectors = items_for(columns, n);
  if (blocks.count() * vectors == 0) return;
  const FastDivide by_vectors(vectors);
  const RowBlocks all = blocks;
  const View<C**> to = partial;
  for_each_item(
      exec, name, blocks.count() * vectors, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t block = by_vectors.quotient(item), column = by_vectors.rest(item) * n;
        C sums[outputs * n] = {};
        const std::int64_t end = all.end(block);
        for (std::int64_t r = all.begin(block); r < end; ++r) terms.add(r, column, sums);
        if (!to) return;
        C* const row = to.data() + block * to.stride();
        for (int o = 0; o < outputs; ++o)
          store_sums<n>(row + o * columns, column, columns, sums + o * n);
      });
}

/// results[o][j] = the sum over leaves of that over the leaf's rows of partial (leaves * blocks of
/// a leaf, columns of all results), in an order that depends on the number of these alone; or that
/// is added to it.
template <class C, int outputs>
static void add_blocks(const Exec& exec, const char* name, const View<C**>& partial,
                       const RowSums<C>& sums, const Kokkos::Array<View<C*>, outputs>& results) {
  const std::int64_t leaves = sums.leaves;
  const bool adds = sums.adds;
  constexpr int columns = 16, lanes = 64, all_lanes = columns * lanes;
  const std::int64_t of_leaf = partial.rows() / leaves, width = partial.columns();
  const std::int64_t of_result = width / outputs;
  const std::size_t bytes =
      sizeof(C) * static_cast<std::size_t>(all_lanes + columns * tree_slots(leaves));
  const View<const C**> from = partial;
  for_each_team(
      exec, name, items_for(width, columns), all_lanes, bytes,
      KOKKOS_LAMBDA(const TeamMember& team) {
        C* const sum = static_cast<C*>(team.team_scratch(0).get_shmem(bytes));
        C* const pending = sum + all_lanes;
        const std::int64_t first = std::int64_t{team.league_rank()} * columns;
        int used = 0;
        for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
          Kokkos::parallel_for(Kokkos::TeamVectorRange(team, all_lanes), [&](int item) {
            const std::int64_t column = first + item % columns;
            C own = 0;
            if (column < width)
              for (std::int64_t block = item / columns; block < of_leaf; block += lanes)
                own +=
                    load_vector<1>(from.data() + (leaf * of_leaf + block) * from.stride() + column)
                        .at[0];
            sum[item] = own;
          });
          team.team_barrier();
          for (int left = all_lanes / 2; left >= columns; left /= 2) {
            Kokkos::parallel_for(Kokkos::TeamVectorRange(team, left),
                                 [&](int item) { sum[item] += sum[item + left]; });
            team.team_barrier();
          }
          // Each trailing 1 of the leaf's number is a node of the tree that it completes.
          int merged = 0;
          while (leaf >> merged & 1) ++merged;
          const int slot = used - merged;
          Kokkos::parallel_for(Kokkos::TeamVectorRange(team, columns), [&](int column) {
            C own = sum[column];
            for (int other = used - 1; other >= slot; --other)
              own = pending[other * columns + column] + own;
            pending[slot * columns + column] = own;
          });
          used = slot + 1;
          team.team_barrier();
        }
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, columns), [&](int column) {
          if (first + column >= width) return;
          C own = pending[(used - 1) * columns + column];
          for (int other = used - 2; other >= 0; --other)
            own = pending[other * columns + column] + own;
          const std::int64_t at = first + column, o = outputs == 1 ? 0 : at / of_result;
          C& result = results[static_cast<std::size_t>(o)][at - o * of_result];
          result = adds ? result + own : own;
        });
      });
}

#endif

}  // namespace ostrakon::math
