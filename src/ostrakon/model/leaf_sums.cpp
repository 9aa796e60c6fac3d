// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/leaf_sums.hpp>

#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/head_norm.hpp>
#include <ostrakon/math/piece_tree.hpp>

namespace ostrakon::model {
namespace {

/// result = the sum over leaves of what write(begin, end, sum) writes of rows [begin, end).
template <class T, class Write>
void sum_leaves(const Exec& exec, const LeafSums<T>& sums, std::int64_t rows,
                View<compute_t<T>*> result, const Write& write) {
  using C = compute_t<T>;
  const std::int64_t of_leaf = rows / sums.leaves, size = result.size();
  const auto begin_of = [&](std::int64_t leaf) {
    return sums.runs ? sums.runs[leaf] : leaf * of_leaf;
  };
  const auto slot = [&](std::int64_t index) {
    return index == 0 ? result : sums.workspace.range((index - 1) * size, index * size);
  };
  math::sum_pieces(
      sums.leaves,
      [&](std::int64_t to, std::int64_t leaf) {
        write(begin_of(leaf), begin_of(leaf + 1), slot(to));
      },
      [&](std::int64_t from, std::int64_t to) {
        math::add_to<C>(exec, View<const C*>(slot(from)), slot(to));
      });
}

}  // namespace

template <class T>
void sum_weight_gradient(const Exec& exec, View<const T**> x, View<const T**> dy,
                         View<compute_t<T>**> dweight, const LeafSums<T>& sums) {
  if (!dweight) return;
  if (sums.runs)
    math::gemm_by_run<T>(exec, dy, x, dweight, sums.runs, sums.workspace);
  else
    math::gemm_by_piece<T>(exec, dy, x, dweight, sums.leaves, sums.workspace);
}

std::int64_t weight_sums_workspace(std::int64_t outputs, std::int64_t inputs, std::int64_t leaves) {
  return math::gemm_by_piece_workspace(outputs, inputs, leaves);
}

template <class T>
void sum_bias_gradient(const Exec& exec, View<const T**> dy, View<compute_t<T>*> dbias,
                       const LeafSums<T>& sums) {
  if (!dbias) return;
  sum_leaves<T>(exec, sums, dy.rows(), dbias,
                [&](std::int64_t begin, std::int64_t end, View<compute_t<T>*> sum) {
                  math::column_sums<T>(exec, dy.row_range(begin, end), sum);
                });
}

std::int64_t bias_sums_workspace(std::int64_t outputs, std::int64_t leaves) {
  return (math::tree_slots(leaves) - 1) * outputs;
}

template <class T>
void sum_norm_gradients(const Exec& exec, math::NormKind kind, View<const T**> x,
                        View<const compute_t<T>*> mean, View<const compute_t<T>*> rstd,
                        View<const T**> dy, View<compute_t<T>*> dweight, View<compute_t<T>*> dbias,
                        const LeafSums<T>& sums) {
  using C = compute_t<T>;
  const std::int64_t rows = x.rows() / sums.leaves, width = x.columns();
  const auto in_slot = [&](const View<C*>& sum, std::int64_t slot) {
    if (!sum || slot == 0) return sum;
    const std::int64_t place = 2 * (slot - 1) + (sum.data() == dweight.data() ? 0 : 1);
    return sums.workspace.range(place * width, (place + 1) * width);
  };
  math::sum_pieces(
      sums.leaves,
      [&](std::int64_t slot, std::int64_t leaf) {
        const std::int64_t begin = leaf * rows, end = begin + rows;
        math::norm_backward_parameters<T>(
            exec, kind, x.row_range(begin, end), mean.range(begin, end), rstd.range(begin, end),
            dy.row_range(begin, end), in_slot(dweight, slot), in_slot(dbias, slot));
      },
      [&](std::int64_t from, std::int64_t to) {
        for (const View<C*>& sum : {dweight, dbias})
          if (sum) math::add_to<C>(exec, View<const C*>(in_slot(sum, from)), in_slot(sum, to));
      });
}

std::int64_t norm_sums_workspace(std::int64_t width, std::int64_t leaves) {
  return (math::tree_slots(leaves) - 1) * 2 * width;
}

template <class T>
void sum_head_norm_gradient(const Exec& exec, View<const T**> x, View<const compute_t<T>*> rstd,
                            View<const T**> dy, View<compute_t<T>**> dweight,
                            const LeafSums<T>& sums) {
  if (!dweight) return;
  const std::int64_t heads = x.columns() / dweight.columns(), rows = x.rows() / dweight.rows();
  LeafSums<T> of_row = sums;
  of_row.leaves /= dweight.rows();
  for (std::int64_t row = 0; row < dweight.rows(); ++row)
    sum_leaves<T>(exec, of_row, rows, dweight.row(row),
                  [&](std::int64_t first, std::int64_t last, View<compute_t<T>*> sum) {
                    const std::int64_t begin = row * rows + first, end = row * rows + last;
                    math::head_norm_backward_parameters<T>(exec, x.row_range(begin, end),
                                                           rstd.range(begin * heads, end * heads),
                                                           dy.row_range(begin, end), sum);
                  });
}

#define OSTRAKON_INSTANTIATE_SUMS(T)                                                               \
  template void sum_weight_gradient<T>(const Exec&, View<const T**>, View<const T**>,              \
                                       View<compute_t<T>**>, const LeafSums<T>&);                  \
  template void sum_bias_gradient<T>(const Exec&, View<const T**>, View<compute_t<T>*>,            \
                                     const LeafSums<T>&);                                          \
  template void sum_norm_gradients<T>(const Exec&, math::NormKind, View<const T**>,                \
                                      View<const compute_t<T>*>, View<const compute_t<T>*>,        \
                                      View<const T**>, View<compute_t<T>*>, View<compute_t<T>*>,   \
                                      const LeafSums<T>&);                                         \
  template void sum_head_norm_gradient<T>(const Exec&, View<const T**>, View<const compute_t<T>*>, \
                                          View<const T**>, View<compute_t<T>**>,                   \
                                          const LeafSums<T>&);

OSTRAKON_INSTANTIATE_SUMS(float)
OSTRAKON_INSTANTIATE_SUMS(double)
OSTRAKON_INSTANTIATE_SUMS(bf16)
OSTRAKON_INSTANTIATE_SUMS(fp16)

}  // namespace ostrakon::model
