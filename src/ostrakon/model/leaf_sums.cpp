// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/leaf_sums.hpp>

#include <array>
#include <ostrakon/math/attention/head_norm.hpp>
#include <ostrakon/math/delta_net/convolution.hpp>
#include <ostrakon/math/delta_net/delta_rule.hpp>
#include <ostrakon/math/delta_net/gated_norm.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/rows/row_sums.hpp>

namespace ostrakon::model {
namespace {

/// Each of `results`, where it exists, = the sum over leaves of what write(begin, end, sums) writes
/// of rows [begin, end).
template <class T, std::size_t count, class Write>
void sum_leaves(const Exec& exec, const LeafSums<T>& sums, std::int64_t rows,
                const std::array<View<compute_t<T>*>, count>& results, const Write& write) {
  using C = compute_t<T>;
  const std::int64_t of_leaf = rows / sums.leaves;
  const auto begin_of = [&](std::int64_t leaf) {
    return sums.runs ? sums.runs[leaf] : leaf * of_leaf;
  };
  const auto slot = [&](std::int64_t index) {
    std::array<View<C*>, count> all = results;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t size = all[i].size(), at = (index - 1) * count + i;
      if (all[i] && index > 0) all[i] = sums.workspace.range(at * size, (at + 1) * size);
    }
    return all;
  };
  math::sum_pieces(
      sums.leaves,
      [&](std::int64_t to, std::int64_t leaf) {
        write(begin_of(leaf), begin_of(leaf + 1), slot(to));
      },
      [&](std::int64_t from, std::int64_t to) {
        for (std::size_t i = 0; i < count; ++i)
          if (results[i]) math::add_to<C>(exec, View<const C*>(slot(from)[i]), slot(to)[i]);
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
    math::gemm_by_piece<T>(exec, dy, x, dweight, sums.leaves, sums.workspace,
                           compute_t<T>(sums.adds ? 1 : 0));
}

std::int64_t weight_sums_workspace(std::int64_t outputs, std::int64_t inputs, std::int64_t leaves) {
  return math::gemm_by_piece_workspace(outputs, inputs, leaves);
}

template <class T>
void sum_bias_gradient(const Exec& exec, View<const T**> dy, View<compute_t<T>*> dbias,
                       const LeafSums<T>& sums) {
  if (!dbias) return;
  if (!sums.runs)
    return math::sum_columns<T>(exec, dy, dbias, {sums.leaves, sums.workspace, sums.adds});
  sum_leaves<T>(exec, sums, dy.rows(), std::array{dbias},
                [&](std::int64_t begin, std::int64_t end, const auto& sum) {
                  math::column_sums<T>(exec, dy.row_range(begin, end), sum[0]);
                });
}

std::int64_t bias_sums_workspace(std::int64_t outputs, std::int64_t leaves) {
  return (math::tree_slots(leaves) - 1) * outputs;
}

std::int64_t delta_sums_workspace(std::int64_t heads, std::int64_t leaves) {
  return (math::tree_slots(leaves) - 1) * 2 * heads;
}

namespace {

/// Sums leaves as sum_leaves does, into a result with several rows: each has the sum over an equal
/// run of leaves.
template <class T, class Write>
void sum_runs_of_leaves(const Exec& exec, const LeafSums<T>& sums, std::int64_t all_rows,
                        View<compute_t<T>**> result, const Write& write) {
  if (!result) return;
  const std::int64_t rows = all_rows / result.rows();
  LeafSums<T> of_row = sums;
  of_row.leaves /= result.rows();
  for (std::int64_t row = 0; row < result.rows(); ++row)
    sum_leaves<T>(exec, of_row, rows, std::array{result.row(row)},
                  [&](std::int64_t first, std::int64_t last, const auto& sum) {
                    write(row * rows + first, row * rows + last, sum[0]);
                  });
}

}  // namespace

template <class T>
void sum_head_norm_gradient(const Exec& exec, std::int64_t head_width, View<const T**> x,
                            View<const compute_t<T>**> rstd, View<const compute_t<T>**> mean,
                            View<const T**> dy, View<compute_t<T>**> dweight,
                            const LeafSums<T>& sums) {
  if (!dweight) return;
  const std::int64_t rows = x.rows() / dweight.rows();
  for (std::int64_t i = 0; i < dweight.rows(); ++i) {
    const std::int64_t begin = i * rows, end = begin + rows;
    math::head_norm_backward_parameters<T>(exec, head_width, x.row_range(begin, end),
                                           rstd.row_range(begin, end), mean.row_range(begin, end),
                                           dy.row_range(begin, end), dweight.row(i),
                                           {sums.leaves / dweight.rows(), sums.workspace});
  }
}

template <class T>
void sum_gated_norm_gradient(const Exec& exec, View<const T**> x, View<const T**> gate,
                             View<const compute_t<T>*> rstd, View<const T**> dy,
                             View<compute_t<T>**> dweight, const LeafSums<T>& sums) {
  const std::int64_t heads = rstd.size() / x.rows();
  sum_runs_of_leaves<T>(
      exec, sums, x.rows(), dweight, [&](std::int64_t begin, std::int64_t end, const auto& sum) {
        math::gated_norm_backward_parameters<T>(
            exec, x.row_range(begin, end), gate.row_range(begin, end),
            rstd.range(begin * heads, end * heads), dy.row_range(begin, end), sum);
      });
}

template <class T>
void sum_convolution_gradient(const Exec& exec, std::int64_t tokens, View<const T**> x,
                              View<const T**> dp, View<compute_t<T>*> dweight,
                              const LeafSums<T>& sums) {
  if (!dweight) return;
  const std::int64_t channels = x.columns(), taps = dweight.size() / channels;
  sum_leaves<T>(exec, sums, x.rows(), std::array{dweight},
                [&](std::int64_t begin, std::int64_t end, const auto& sum) {
                  math::convolution_backward_weight<T>(exec, tokens, x.row_range(begin, end),
                                                       dp.row_range(begin, end),
                                                       sum[0].matrix(channels, taps));
                });
}

template <class T>
void sum_delta_rule_gradients(const Exec& exec, View<const compute_t<T>**> terms,
                              View<compute_t<T>*> ddecay, View<compute_t<T>*> dbias,
                              const LeafSums<T>& sums) {
  const std::int64_t heads = terms.columns() / 2;
  sum_leaves<T>(exec, sums, terms.rows(), std::array{ddecay, dbias},
                [&](std::int64_t begin, std::int64_t end, const auto& sum) {
                  const auto rows = terms.row_range(begin, end);
                  for (std::size_t i = 0; i < 2; ++i) {
                    const auto first = static_cast<std::int64_t>(i) * heads;
                    if (sum[i])
                      math::column_sums<compute_t<T>>(exec, rows.column_range(first, first + heads),
                                                      sum[i]);
                  }
                });
}

template <class T>
void sum_sink_gradient(const Exec& exec, const math::AttentionShape& shape, View<const T*> sinks,
                       View<const T**> out, View<const compute_t<T>*> log_sum_exp,
                       View<const T**> dout, View<compute_t<T>*> dsinks, const LeafSums<T>& sums) {
  if (!dsinks) return;
  sum_leaves<T>(exec, sums, out.rows(), std::array{dsinks},
                [&](std::int64_t begin, std::int64_t end, const auto& sum) {
                  math::attention_backward_sinks<T>(exec, shape, sinks, out.row_range(begin, end),
                                                    log_sum_exp, dout.row_range(begin, end), begin,
                                                    sum[0]);
                });
}

#define OSTRAKON_INSTANTIATE_SUMS(T)                                                              \
  template void sum_weight_gradient<T>(const Exec&, View<const T**>, View<const T**>,             \
                                       View<compute_t<T>**>, const LeafSums<T>&);                 \
  template void sum_bias_gradient<T>(const Exec&, View<const T**>, View<compute_t<T>*>,           \
                                     const LeafSums<T>&);                                         \
  template void sum_head_norm_gradient<T>(                                                        \
      const Exec&, std::int64_t, View<const T**>, View<const compute_t<T>**>,                     \
      View<const compute_t<T>**>, View<const T**>, View<compute_t<T>**>, const LeafSums<T>&);     \
  template void sum_convolution_gradient<T>(const Exec&, std::int64_t, View<const T**>,           \
                                            View<const T**>, View<compute_t<T>*>,                 \
                                            const LeafSums<T>&);                                  \
  template void sum_delta_rule_gradients<T>(const Exec&, View<const compute_t<T>**>,              \
                                            View<compute_t<T>*>, View<compute_t<T>*>,             \
                                            const LeafSums<T>&);                                  \
  template void sum_gated_norm_gradient<T>(const Exec&, View<const T**>, View<const T**>,         \
                                           View<const compute_t<T>*>, View<const T**>,            \
                                           View<compute_t<T>**>, const LeafSums<T>&);             \
  template void sum_sink_gradient<T>(const Exec&, const math::AttentionShape&, View<const T*>,    \
                                     View<const T**>, View<const compute_t<T>*>, View<const T**>, \
                                     View<compute_t<T>*>, const LeafSums<T>&);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE_SUMS)
#undef OSTRAKON_INSTANTIATE_SUMS

}  // namespace ostrakon::model
