// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// How sums over rows are made: those of each of `leaves` equal runs of rows by themselves, and
/// the leaves by the tree of piece_tree.hpp.
template <class C>
struct RowSums {
  std::int64_t leaves = 1;
  View<C*> workspace = {};  ///< row_sums_workspace() elements, of all results
  bool adds = false;        ///< to results; else they are overwritten
};

/// Rows that a device sums at once: each block of so many neighbouring rows of a leaf, in order.
/// More of them for sums of one array, whose blocks' sums are to be few beside it.
constexpr std::int64_t rows_of_norm_block = 16, rows_of_column_block = 64;

/// Elements of the workspace of sums over `rows` rows, in `leaves` leaves, of so many columns; of
/// several results the columns of all. `adds`: RowSums::adds.
constexpr std::int64_t row_sums_workspace(std::int64_t rows, std::int64_t columns,
                                          std::int64_t leaves, std::int64_t rows_of_block,
                                          KernelForm form, bool adds = false) {
  if (!is_of_device(form)) return (tree_slots(leaves) - (adds ? 0 : 1)) * columns;
  return leaves * items_for(rows / leaves, rows_of_block) * columns;
}

/// result (columns) = the sums of the columns of x over the leaves of rows.
template <class T>
void sum_columns(const Exec& exec, View<const T**> x, View<compute_t<T>*> result,
                 const RowSums<compute_t<T>>& sums);
constexpr std::int64_t column_sums_workspace(std::int64_t rows, std::int64_t columns,
                                             std::int64_t leaves, KernelForm form = kernel_form,
                                             bool adds = false) {
  return row_sums_workspace(rows, columns, leaves, rows_of_column_block, form, adds);
}

/// Each of `results`, where it exists, = the sum over leaves of what write(begin, end, sums) writes
/// of rows [begin, end), or that is added to them. On the host, where leaves are summed one after
/// the other.
template <class C, std::size_t count, class Write>
void sum_leaves(const Exec& exec, const RowSums<C>& sums, std::int64_t rows,
                const std::array<View<C*>, count>& results, const Write& write) {
  const std::int64_t of_leaf = rows / sums.leaves;
  // Results are slot 0; where sums are added, what was there before is slot -1.
  const std::int64_t in_results = sums.adds ? -1 : 0;
  const auto slot = [&](std::int64_t index) {
    std::array<View<C*>, count> all = results;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t size = all[i].size(), at = (index - in_results - 1) * count + i;
      if (all[i] && index > in_results) all[i] = sums.workspace.range(at * size, (at + 1) * size);
    }
    return all;
  };
  const auto add = [&](std::int64_t from, std::int64_t to) {
    for (std::size_t i = 0; i < count; ++i)
      if (results[i]) add_to<C>(exec, View<const C*>(slot(from)[i]), slot(to)[i]);
  };
  sum_pieces(
      sums.leaves,
      [&](std::int64_t to, std::int64_t leaf) {
        write(leaf * of_leaf, (leaf + 1) * of_leaf, slot(to));
      },
      add);
  if (sums.adds) add(0, in_results);
}

}  // namespace ostrakon::math
