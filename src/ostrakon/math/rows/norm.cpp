// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/rows/norm.hpp>

#include <algorithm>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/rows/norm_rows.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>
#include <ostrakon/math/work_items.hpp>
#include <type_traits>

namespace ostrakon::math {
namespace {

/// Checks `mean` and `rstd` of rows; RMS norm needs no mean.
template <class C>
void check_statistics(const char* name, NormKind kind, std::int64_t rows, View<const C*> mean,
                      View<const C*> rstd) {
  if (kind == NormKind::layernorm)
    require_size(name, "mean", mean, rows);
  else
    require_size_if_any(name, "mean", mean, rows);
  require_size(name, "rstd", rstd, rows);
}

/// Checks that there is a weight, or none.
template <class T>
void check_weight(const char* name, NormWeight gain, View<const T*> weight, std::int64_t width) {
  require_size(name, "weight", weight, gain == NormWeight::none ? 0 : width);
}

/// norm_forward and norm_apply: both round equally.
template <NormWeight gain, class T>
void normalize(const Exec& exec, const char* name, NormKind kind, bool compute_statistics,
               double epsilon, View<const T**> x, View<const T*> weight, View<const T*> bias,
               View<T**> y, View<compute_t<T>*> mean, View<compute_t<T>*> rstd,
               View<const compute_t<T>*> saved_mean, View<const compute_t<T>*> saved_rstd) {
  using C = compute_t<T>;
  const std::int64_t width = x.columns();
  require_shape(name, "y", y, x.rows(), width);
  check_weight<T>(name, gain, weight, width);
  require_size_if_any(name, "bias", bias, width);
  if (compute_statistics)
    check_statistics<C>(name, kind, x.rows(), mean, rstd);
  else
    check_statistics<C>(name, kind, x.rows(), saved_mean, saved_rstd);
  const C over_width = C(1) / static_cast<C>(width);
  const C small = static_cast<C>(epsilon);
  const bool centered = kind == NormKind::layernorm;
#if OSTRAKON_ON_DEVICE
  const auto hold = [&](auto vectors) {
    normalize_held<gain, vectors.value, T>(exec, name, centered, compute_statistics, small, x,
                                           weight, bias, y, mean, rstd, saved_mean, saved_rstd);
  };
  if (can_hold<vector_elements<T>(), held_forward>(width))
    return hold(std::integral_constant<int, held_forward>());
  if (can_hold<vector_elements<T>(), long_forward>(width))
    return hold(std::integral_constant<int, long_forward>());
#endif
  for_each_row(
      exec, name, x.rows(), width, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const auto in = x.row(r);
        const auto out = y.row(r);
        const View<const T*> factors = gain == NormWeight::none ? in : weight;
        C center = 0;
        C scale;
        if (compute_statistics) {
          if (centered)
            center = row.template sum_of<C>([](std::int64_t, C value) { return value; }, in) *
                     over_width;
          const C squares = row.template sum_of<C>(
              [=](std::int64_t, C value) {
                return Product<C>{value - center, value - center};
              },
              in);
          scale = C(1) / sqrt(multiply_add(squares, over_width, small));
          row.once([=]() {
            if (mean) mean[r] = center;
            rstd[r] = scale;
          });
        } else {
          if (centered) center = saved_mean[r];
          scale = saved_rstd[r];
        }
        if (bias)
          row.map(
              [=](std::int64_t, C value, C factor, C term) {
                return multiply_add((value - center) * scale, gain_of<gain>(factor), term);
              },
              out, in, factors, bias);
        else
          row.map([=](std::int64_t, C value,
                      C factor) { return (value - center) * scale * gain_of<gain>(factor); },
                  out, in, factors);
      });
}

template <NormWeight gain, class T>
void differentiate(const Exec& exec, const char* name, NormKind kind, View<const T**> x,
                   View<const T*> weight, View<const compute_t<T>*> mean,
                   View<const compute_t<T>*> rstd, View<const T**> dy, View<T**> dx, bool adds) {
  using C = compute_t<T>;
  const std::int64_t width = x.columns();
  const C over_width = C(1) / static_cast<C>(width);
  const bool centered = kind == NormKind::layernorm;
#if OSTRAKON_ON_DEVICE
  const NormHolder holder = holder_of_backward<T>(exec, kind, false, width);
  const RowBlocks blocks(x.rows(), 1, rows_of_norm_block);
  const NormBackward<gain, false, T> kernel{centered, adds, x,  weight, {}, mean, rstd,
                                            dy,       dx,   {}, blocks, {}, {}};
  if (holder != NormHolder::nothing) return differentiate_held(exec, name, holder, kernel);
#endif
  for_each_row(
      exec, name, x.rows(), width, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const auto in = x.row(r);
        const auto dout = dy.row(r);
        const auto din = dx.row(r);
        const View<const T*> factors = gain == NormWeight::none ? in : weight;
        const C center = centered ? mean[r] : C(0);
        const C scale = rstd[r];
        // With n = (x - mean) rstd and g = dy gain, both of this row: dL/dx = rstd (g - average(g)
        // - n average(g n)), without average(g) for RMS norm.
        C average = 0;
        if (centered)
          average = row.template sum_of<C>(
                        [](std::int64_t, C d, C factor) {
                          return Product<C>{d, gain_of<gain>(factor)};
                        },
                        dout, factors) *
                    over_width;
        const C projection = row.template sum_of<C>(
                                 [=](std::int64_t, C d, C factor, C value) {
                                   return Product<C>{d * gain_of<gain>(factor), value - center};
                                 },
                                 dout, factors, in) *
                             scale * over_width;
        const auto rest = [=](C d, C factor, C value) {
          return multiply_add(-((value - center) * scale), projection,
                              multiply_add(d, gain_of<gain>(factor), -average));
        };
        if (adds)
          row.map([=](std::int64_t, C before, C d, C factor,
                      C value) { return multiply_add(scale, rest(d, factor, value), before); },
                  din, din, dout, factors, in);
        else
          row.map(
              [=](std::int64_t, C d, C factor, C value) { return scale * rest(d, factor, value); },
              din, dout, factors, in);
      });
}

}  // namespace

template <class T>
void norm_forward(const Exec& exec, NormKind kind, NormWeight gain, double epsilon,
                  View<const T**> x, View<const T*> weight, View<const T*> bias, View<T**> y,
                  View<compute_t<T>*> mean, View<compute_t<T>*> rstd) {
  with_gain(gain, [&](auto constant) {
    normalize<constant(), T>(exec, "norm_forward", kind, true, epsilon, x, weight, bias, y, mean,
                             rstd, {}, {});
  });
}

template <class T>
void norm_apply(const Exec& exec, NormKind kind, NormWeight gain, View<const T**> x,
                View<const T*> weight, View<const T*> bias, View<const compute_t<T>*> mean,
                View<const compute_t<T>*> rstd, View<T**> y) {
  with_gain(gain, [&](auto constant) {
    normalize<constant(), T>(exec, "norm_apply", kind, false, 0.0, x, weight, bias, y, {}, {}, mean,
                             rstd);
  });
}

template <class T>
void norm_backward_input(const Exec& exec, NormKind kind, NormWeight gain, View<const T**> x,
                         View<const T*> weight, View<const compute_t<T>*> mean,
                         View<const compute_t<T>*> rstd, View<const T**> dy, View<T**> dx,
                         GradientUpdate update) {
  const std::int64_t width = x.columns();
  const char* const name = "norm_backward";
  require_shape(name, "dy", dy, x.rows(), width);
  require_shape(name, "dx", dx, x.rows(), width);
  check_weight<T>(name, gain, weight, width);
  check_statistics<compute_t<T>>(name, kind, x.rows(), mean, rstd);
  with_gain(gain, [&](auto constant) {
    differentiate<constant(), T>(exec, name, kind, x, weight, mean, rstd, dy, dx,
                                 update == GradientUpdate::add);
  });
}

#if !OSTRAKON_ON_DEVICE
namespace {

/// Adds the terms of `count` rows from `row` on, row by row, to sums of `columns` columns from
/// `first` on. Each sum is loaded and stored once for all of these rows.
template <int count, class T, class C>
void add_terms(const View<const T**>& x, const View<const C*>& mean, const View<const C*>& rstd,
               const View<const T**>& dy, bool centered, std::int64_t row, std::int64_t first,
               std::int64_t columns, C* __restrict__ weight_sums, C* __restrict__ bias_sums) {
  const T* in[count];
  const T* dout[count];
  C center[count], scale[count];
  for (int i = 0; i < count; ++i) {
    in[i] = x.row(row + i).range(first, first + columns).data();
    dout[i] = dy.row(row + i).range(first, first + columns).data();
    center[i] = centered ? mean[row + i] : C(0);
    scale[i] = rstd[row + i];
  }
  for (std::int64_t j = 0; j < columns; ++j) {
    C weight = weight_sums[j], bias = bias_sums[j];
    for (int i = 0; i < count; ++i) {
      weight = multiply_add<C>(dout[i][j], (in[i][j] - center[i]) * scale[i], weight);
      bias += dout[i][j];
    }
    weight_sums[j] = weight;
    bias_sums[j] = bias;
  }
}

/// The gradients of one leaf, dweight and dbias (width), overwritten. An empty one is not computed.
template <class T>
void sum_leaf(const Exec& exec, const char* name, bool centered, View<const T**> x,
              View<const compute_t<T>*> mean, View<const compute_t<T>*> rstd, View<const T**> dy,
              View<compute_t<T>*> dweight, View<compute_t<T>*> dbias) {
  using C = compute_t<T>;
  const std::int64_t rows = x.rows(), width = x.columns();
  if (!dweight && !dbias) return;
  // Rows are summed in blocks: the rounding error grows with the sum of block size and number of
  // blocks, not with their product.
  constexpr std::int64_t rows_per_block = 64;
  // Long pieces of rows help the prefetcher, but each thread needs a piece.
  constexpr std::int64_t most_columns = 1024, least_columns = 64;
  std::int64_t columns_per_item = most_columns;
  while (columns_per_item > least_columns &&
         items_for(width, columns_per_item) < exec.concurrency())
    columns_per_item /= 2;
  for_each_item(
      exec, name, items_for(width, columns_per_item), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item * columns_per_item;
        const std::int64_t columns = smaller(columns_per_item, width - first);
        C weight_sum[most_columns], bias_sum[most_columns];
        C weight_block[most_columns], bias_block[most_columns];
        std::fill_n(weight_sum, columns, C(0));
        std::fill_n(bias_sum, columns, C(0));
        for (std::int64_t begin = 0; begin < rows; begin += rows_per_block) {
          const std::int64_t end = smaller(begin + rows_per_block, rows);
          std::fill_n(weight_block, columns, C(0));
          std::fill_n(bias_block, columns, C(0));
          const auto add_rows = [&](std::int64_t r, auto count) {
            add_terms<count()>(x, mean, rstd, dy, centered, r, first, columns, weight_block,
                               bias_block);
          };
          std::int64_t r = begin;
          for (; r + 4 <= end; r += 4) add_rows(r, std::integral_constant<int, 4>());
          for (; r < end; ++r) add_rows(r, std::integral_constant<int, 1>());
          for (std::int64_t j = 0; j < columns; ++j) {
            weight_sum[j] += weight_block[j];
            bias_sum[j] += bias_block[j];
          }
        }
        if (dweight)
          for (std::int64_t j = 0; j < columns; ++j) dweight[first + j] = weight_sum[j];
        if (dbias)
          for (std::int64_t j = 0; j < columns; ++j) dbias[first + j] = bias_sum[j];
      });
}

}  // namespace
#endif

namespace {

template <class T>
void check_gradients(const char* name, NormKind kind, View<const T**> x,
                     View<const compute_t<T>*> mean, View<const compute_t<T>*> rstd,
                     View<const T**> dy, View<compute_t<T>*> dweight, View<compute_t<T>*> dbias) {
  require_shape(name, "dy", dy, x.rows(), x.columns());
  check_statistics<compute_t<T>>(name, kind, x.rows(), mean, rstd);
  require_size_if_any(name, "dweight", dweight, x.columns());
  require_size_if_any(name, "dbias", dbias, x.columns());
}

}  // namespace

template <class T>
void sum_norm_gradients(const Exec& exec, NormKind kind, View<const T**> x,
                        View<const compute_t<T>*> mean, View<const compute_t<T>*> rstd,
                        View<const T**> dy, View<compute_t<T>*> dweight, View<compute_t<T>*> dbias,
                        const RowSums<compute_t<T>>& sums) {
  using C = compute_t<T>;
  const char* const name = "norm_parameters";
  check_gradients<T>(name, kind, x, mean, rstd, dy, dweight, dbias);
  const bool centered = kind == NormKind::layernorm;
#if OSTRAKON_ON_DEVICE
  with_terms(bool(dweight), bool(dbias), [&](auto has_weight, auto has_bias) {
    using Terms = NormTerms<T, has_weight.value, has_bias.value>;
    const RowBlocks blocks(x.rows(), sums.leaves, rows_of_norm_block);
    const View<C**> partial = sums_of_blocks(name, sums, blocks, Terms::outputs * x.columns());
    for_each_row_block<Terms::n, Terms::outputs>(
        exec, name, blocks, x.columns(), Terms{x, dy, centered ? mean : View<const C*>(), rstd},
        partial);
    add_norm_blocks<C>(exec, partial, sums, dweight, dbias);
  });
#else
  sum_leaves(exec, sums, x.rows(), std::array<View<C*>, 2>{dweight, dbias},
             [&](std::int64_t begin, std::int64_t end, const auto& sum) {
               sum_leaf<T>(exec, name, centered, x.row_range(begin, end), mean.range(begin, end),
                           rstd.range(begin, end), dy.row_range(begin, end), sum[0], sum[1]);
             });
#endif
}

template <class T>
void norm_backward(const Exec& exec, NormKind kind, NormWeight gain, View<const T**> x,
                   View<const T*> weight, View<const T*> bias, View<const compute_t<T>*> mean,
                   View<const compute_t<T>*> rstd, View<const T**> dy, View<T**> dx,
                   GradientUpdate update, View<T**> again, View<compute_t<T>*> dweight,
                   View<compute_t<T>*> dbias, const RowSums<compute_t<T>>& sums) {
#if OSTRAKON_ON_DEVICE
  using C = compute_t<T>;
  const std::int64_t width = x.columns();
  const bool has_bias = bool(dbias) || (again && bias);
  const NormHolder holder = holder_of_backward<T>(exec, kind, has_bias, width);
  if (holder != NormHolder::nothing) {
    const char* const name = "norm_backward";
    check_gradients<T>(name, kind, x, mean, rstd, dy, dweight, dbias);
    check_weight<T>(name, gain, weight, width);
    require_shape(name, "dx", dx, x.rows(), width);
    if (again) require_shape(name, "again", again, x.rows(), width);
    require_size_if_any(name, "bias", bias, width);
    const std::int64_t results = (dweight ? 1 : 0) + (dbias ? 1 : 0);
    const RowBlocks blocks(x.rows(), sums.leaves, rows_of_norm_block);
    View<C**> partial;
    if (results > 0) partial = sums_of_blocks(name, sums, blocks, results * width);
    const auto weight_sums = dweight ? partial.column_range(0, width) : View<C**>();
    const auto bias_sums =
        dbias ? partial.column_range((results - 1) * width, results * width) : View<C**>();
    const auto run = [&](auto constant, auto with_bias) {
      differentiate_held(exec, name, holder,
                         NormBackward<constant.value, with_bias.value, T>{
                             kind == NormKind::layernorm, update == GradientUpdate::add, x, weight,
                             bias, mean, rstd, dy, dx, again, blocks, weight_sums, bias_sums});
    };
    with_gain(gain, [&](auto constant) {
      if (has_bias)
        run(constant, std::true_type());
      else
        run(constant, std::false_type());
    });
    if (results > 0) add_norm_blocks<C>(exec, partial, sums, dweight, dbias);
    return;
  }
#endif
  if (dweight || dbias) sum_norm_gradients<T>(exec, kind, x, mean, rstd, dy, dweight, dbias, sums);
  norm_backward_input<T>(exec, kind, gain, x, weight, mean, rstd, dy, dx, update);
  if (again) norm_apply<T>(exec, kind, gain, x, weight, bias, mean, rstd, again);
}

#define OSTRAKON_INSTANTIATE(T)                                                                   \
  template void norm_forward<T>(const Exec&, NormKind, NormWeight, double, View<const T**>,       \
                                View<const T*>, View<const T*>, View<T**>, View<compute_t<T>*>,   \
                                View<compute_t<T>*>);                                             \
  template void norm_apply<T>(const Exec&, NormKind, NormWeight, View<const T**>, View<const T*>, \
                              View<const T*>, View<const compute_t<T>*>,                          \
                              View<const compute_t<T>*>, View<T**>);                              \
  template void norm_backward_input<T>(const Exec&, NormKind, NormWeight, View<const T**>,        \
                                       View<const T*>, View<const compute_t<T>*>,                 \
                                       View<const compute_t<T>*>, View<const T**>, View<T**>,     \
                                       GradientUpdate);                                           \
  template void sum_norm_gradients<T>(const Exec&, NormKind, View<const T**>,                     \
                                      View<const compute_t<T>*>, View<const compute_t<T>*>,       \
                                      View<const T**>, View<compute_t<T>*>, View<compute_t<T>*>,  \
                                      const RowSums<compute_t<T>>&);                              \
  template void norm_backward<T>(const Exec&, NormKind, NormWeight, View<const T**>,              \
                                 View<const T*>, View<const T*>, View<const compute_t<T>*>,       \
                                 View<const compute_t<T>*>, View<const T**>, View<T**>,           \
                                 GradientUpdate, View<T**>, View<compute_t<T>*>,                  \
                                 View<compute_t<T>*>, const RowSums<compute_t<T>>&);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
