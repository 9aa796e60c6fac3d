// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/head_norm.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/held_heads.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/fast_divide.hpp>
#include <ostrakon/math/rows/column_kernel.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {

namespace {

std::int64_t heads_of(const char* name, std::int64_t columns, std::int64_t head_width) {
  require(head_width >= 1 && columns % head_width == 0, name, ": ", columns,
          " columns, expected whole heads of width ", head_width);
  return columns / head_width;
}

/// The weight of head `head`, of one that all heads have or of each.
template <class T>
KOKKOS_FUNCTION View<const T*> weight_of(const View<const T*>& weight, std::int64_t head,
                                         std::int64_t width) {
  return weight.size() == width ? weight : weight.range(head * width, (head + 1) * width);
}

/// The statistics of a head.
template <class C>
struct HeadStatistics {
  C mean, rstd;
};

template <class T>
KOKKOS_FUNCTION HeadStatistics<compute_t<T>> statistics_of(const Row& row, View<const T*> head,
                                                           bool centered, compute_t<T> over_width,
                                                           compute_t<T> epsilon) {
  using C = compute_t<T>;
  C mean = 0;
  if (centered)
    mean = row.template sum_of<C>([](std::int64_t, C value) { return value; }, head) * over_width;
  const C squares = row.template sum_of<C>(
      [=](std::int64_t, C value) {
        return Product<C>{value - mean, value - mean};
      },
      head);
  return {mean, C(1) / sqrt(multiply_add(squares, over_width, epsilon))};
}

#if OSTRAKON_ON_DEVICE
/// What row `index` of as many columns as the weight has adds to its gradient.
template <class T>
struct HeadNormTerms {
  using C = compute_t<T>;
  static constexpr int vector = vector_elements<T>();
  View<const T**> x, dy;
  View<const C**> rstd, mean;
  FastDivide by_parts, by_width;
  std::int64_t width, columns;  ///< of a head and of the weight

  template <int n>
  bool begin_vectors() const {
    return width % n == 0 && rows_begin_vectors<n>(x) && rows_begin_vectors<n>(dy);
  }
  template <int n>
  KOKKOS_INLINE_FUNCTION void add(std::int64_t index, std::int64_t j, C* sums) const {
    const std::int64_t r = by_parts.quotient(index), column = by_parts.rest(index) * columns + j;
    const std::int64_t head = by_width.quotient(column);
    const Vector<T, n> in = load_vector<n>(&x(r, column)), dout = load_vector<n>(&dy(r, column));
    const C scale = rstd(r, head), center = mean ? mean(r, head) : C(0);
    for (int k = 0; k < n; ++k) sums[k] += C(dout.at[k]) * ((C(in.at[k]) - center) * scale);
  }
};
#endif

template <NormWeight gain, class T>
void normalize_heads(const Exec& exec, const char* name, const HeadNorm& norm,
                     View<const T*> weight, View<T**> x, View<T**> kept,
                     View<const compute_t<T>**> rstd) {
  using C = compute_t<T>;
  const std::int64_t width = norm.head_width, heads = x.columns() / width;
  const C over_width = C(1) / static_cast<C>(width);
  const C small = static_cast<C>(norm.epsilon);
  const bool centered = norm.kind == NormKind::layernorm;
  const FastDivide by_heads(heads);
  for_each_row(
      exec, name, x.rows() * heads, width, KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t r = by_heads.quotient(index), head = by_heads.rest(index);
        const std::int64_t first = head * width;
        const auto values = x.row(r).range(first, first + width);
        const auto before = kept.row(r).range(first, first + width);
        const View<const T*> factors =
            gain == NormWeight::none ? View<const T*>(values) : weight_of(weight, head, width);
        HeadStatistics<C> own = {0, 0};
        if (rstd)
          own.rstd = rstd(r, head);
        else
          own = statistics_of<T>(row, View<const T*>(values), centered, over_width, small);
        const C center = own.mean, scale = own.rstd;
        row.map_two(
            [=](std::int64_t, T value, C factor) {
              return Two<T, C>{value, (C(value) - center) * scale * gain_of<gain>(factor)};
            },
            before, values, values, factors);
      });
}

template <NormWeight gain, class T>
void differentiate_heads(const Exec& exec, const char* name, const HeadNorm& norm,
                         View<const T*> weight, View<const T**> x, View<const compute_t<T>**> rstd,
                         View<const compute_t<T>**> mean, View<T**> gradient,
                         View<const compute_t<T>**> projections) {
  using C = compute_t<T>;
  const std::int64_t width = norm.head_width, heads = x.columns() / width, rows = x.rows();
  const C over_width = C(1) / static_cast<C>(width);
  const bool centered = norm.kind == NormKind::layernorm;
  const FastDivide by_heads(heads);
  for_each_row(
      exec, name, rows * heads, width, KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t r = by_heads.quotient(index), head = by_heads.rest(index);
        const std::int64_t first = head * width;
        const auto in = x.row(r).range(first, first + width);
        const auto both = gradient.row(r).range(first, first + width);
        const View<const T*> factors =
            gain == NormWeight::none ? in : weight_of(weight, head, width);
        const C scale = rstd(r, head), center = centered ? mean(r, head) : C(0);
        // With n = (x - mean) rstd and g = dy gain, this is norm_backward_input: rstd (g -
        // average(g)
        // - n average(g n)), without average(g) for RMS norm.
        C average = 0, projection = 0;
        if (centered)
          average = row.template sum_of<C>(
                        [](std::int64_t, C d, C factor) {
                          return Product<C>{d, gain_of<gain>(factor)};
                        },
                        both, factors) *
                    over_width;
        if (projections) {
          for (std::int64_t i = r; i < projections.rows(); i += rows)
            projection += projections(i, 0);
          projection *= scale;
        } else {
          projection = row.template sum_of<C>(
                           [=](std::int64_t, C d, C factor, C value) {
                             return Product<C>{d * gain_of<gain>(factor), value - center};
                           },
                           both, factors, in) *
                       scale * over_width;
        }
        row.map(
            [=](std::int64_t, C d, C factor, C value) {
              return scale * multiply_add(-((value - center) * scale), projection,
                                          multiply_add(d, gain_of<gain>(factor), -average));
            },
            both, both, factors, in);
      });
}

template <NormWeight gain, class T>
void project(const Exec& exec, const char* name, compute_t<T> over_columns, View<const T*> weight,
             View<const T**> x, View<const T**> dy, View<compute_t<T>**> projections) {
  using C = compute_t<T>;
  for_each_row(
      exec, name, x.rows(), x.columns(), KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const auto in = x.row(r);
        const View<const T*> factors = gain == NormWeight::none ? in : weight;
        const C sum = row.template sum_of<C>(
            [](std::int64_t, C d, C factor, C value) {
              return Product<C>{d * gain_of<gain>(factor), value};
            },
            dy.row(r), factors, in);
        row.once([=]() { projections(r, 0) = sum * over_columns; });
      });
}

/// Checks a weight of all heads, or of each.
template <class T>
void check_weight(const char* name, NormWeight gain, View<const T*> weight, std::int64_t width,
                  std::int64_t columns) {
  if (gain == NormWeight::none)
    require_size(name, "weight", weight, 0);
  else
    require(weight.size() == width || weight.size() == columns, name, ": weight has ",
            weight.size(), " elements, expected ", width, " or ", columns);
}

/// Checks what statistics there are of heads; layer norm alone has means.
template <class C>
void check_statistics(const char* name, NormKind kind, std::int64_t rows, std::int64_t heads,
                      View<const C**> rstd, View<const C**> mean) {
  require_shape(name, "rstd", rstd, rows, heads);
  if (kind == NormKind::layernorm) require_shape(name, "mean", mean, rows, heads);
}

}  // namespace

template <class T>
void head_norm_forward(const Exec& exec, const HeadNorm& norm, View<const T*> weight, View<T**> x,
                       View<T**> kept, View<const compute_t<T>**> rstd) {
  const char* const name = "head_norm";
  const std::int64_t heads = heads_of(name, x.columns(), norm.head_width);
  check_weight<T>(name, norm.gain, weight, norm.head_width, x.columns());
  require_shape(name, "kept", kept, x.rows(), x.columns());
  if (rstd) check_statistics<compute_t<T>>(name, NormKind::rmsnorm, x.rows(), heads, rstd, {});
#if OSTRAKON_ON_DEVICE
  if constexpr (!std::is_same_v<T, double>)
    if (!rstd && hold_heads<T>(norm.head_width, x, kept)) {
      HeldArrays<T> arrays;
      arrays[0].weight = weight;
      arrays[0].in = arrays[0].out = x;
      arrays[0].kept = kept;
      return held_heads_forward<T>(exec, name, norm, arrays, 1);
    }
#endif
  with_gain(norm.gain, [&](auto constant) {
    normalize_heads<constant(), T>(exec, name, norm, weight, x, kept, rstd);
  });
}

template <class T>
void head_norm_statistics(const Exec& exec, const HeadNorm& norm, View<const T**> x,
                          View<compute_t<T>**> rstd, View<compute_t<T>**> mean) {
  using C = compute_t<T>;
  const char* const name = "head_norm_rstd";
  const std::int64_t width = norm.head_width, heads = heads_of(name, x.columns(), width);
  check_statistics<C>(name, norm.kind, x.rows(), heads, rstd, mean);
#if OSTRAKON_ON_DEVICE
  if constexpr (!std::is_same_v<T, double>)
    if (hold_heads<T>(width, x)) return held_heads_statistics<T>(exec, name, norm, x, rstd, mean);
#endif
  const C over_width = C(1) / static_cast<C>(width);
  const C small = static_cast<C>(norm.epsilon);
  const bool centered = norm.kind == NormKind::layernorm;
  const FastDivide by_heads(heads);
  for_each_row(
      exec, name, x.rows() * heads, width, KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t r = by_heads.quotient(index), head = by_heads.rest(index);
        const auto in = x.row(r).range(head * width, (head + 1) * width);
        const HeadStatistics<C> own = statistics_of<T>(row, in, centered, over_width, small);
        // Captured by themselves: a capture whose type is of this file alone can't be in unity
        // files.
        const C scale = own.rstd, center = own.mean;
        row.once([=]() {
          rstd(r, head) = scale;
          if (centered) mean(r, head) = center;
        });
      });
}

template <class T>
void head_norm_backward_input(const Exec& exec, const HeadNorm& norm, View<const T*> weight,
                              View<const T**> x, View<const compute_t<T>**> rstd,
                              View<const compute_t<T>**> mean, View<T**> gradient,
                              View<const compute_t<T>**> projections) {
  const char* const name = "head_norm_dx";
  const std::int64_t heads = heads_of(name, x.columns(), norm.head_width);
  check_weight<T>(name, norm.gain, weight, norm.head_width, x.columns());
  check_statistics<compute_t<T>>(name, norm.kind, x.rows(), heads, rstd, mean);
  require_shape(name, "gradient", gradient, x.rows(), x.columns());
  require(!projections || (heads == 1 && norm.kind == NormKind::rmsnorm), name,
          ": projections of several pieces; expected one head and RMS norm");
#if OSTRAKON_ON_DEVICE
  if constexpr (!std::is_same_v<T, double>)
    if (!projections && hold_heads<T>(norm.head_width, x, gradient)) {
      HeldArrays<T> arrays;
      arrays[0].weight = weight;
      arrays[0].in = x;
      arrays[0].dout = arrays[0].out = gradient;
      arrays[0].rstd = rstd;
      arrays[0].mean = mean;
      return held_heads_backward<T>(exec, name, norm, arrays, 1);
    }
#endif
  with_gain(norm.gain, [&](auto constant) {
    differentiate_heads<constant(), T>(exec, name, norm, weight, x, rstd, mean, gradient,
                                       projections);
  });
}

namespace {

/// The gradient of a weight by the rows of one leaf.
template <class T>
void sum_leaf(const Exec& exec, const char* name, std::int64_t head_width, View<const T**> x,
              View<const compute_t<T>**> rstd, View<const compute_t<T>**> mean, View<const T**> dy,
              View<compute_t<T>*> dweight) {
  using C = compute_t<T>;
  const std::int64_t rows = x.rows(), width = head_width;
  const std::int64_t heads = x.columns() / width, of_weight = dweight.size() / width;
#if OSTRAKON_ON_DEVICE
  const std::int64_t columns = dweight.size(), parts = heads / of_weight;
  sum_over_rows<C, 1>(
      exec, name, rows * parts, columns,
      HeadNormTerms<T>{x, dy, rstd, mean, FastDivide(parts), FastDivide(width), width, columns},
      {{dweight}});
#else
  // Rows are summed in blocks, as in sum_norm_gradients().
  constexpr std::int64_t rows_per_block = 64;
  constexpr std::int64_t columns_per_item = 64;
  const std::int64_t items = items_for(width, columns_per_item);
  for_each_item(
      exec, name, of_weight * items, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t head_of_weight = item / items;
        const std::int64_t first = item % items * columns_per_item;
        const std::int64_t columns = smaller(columns_per_item, width - first);
        C sum[columns_per_item] = {};
        for (std::int64_t begin = 0; begin < rows; begin += rows_per_block) {
          const std::int64_t end = smaller(begin + rows_per_block, rows);
          C block[columns_per_item] = {};
          for (std::int64_t r = begin; r < end; ++r)
            for (std::int64_t head = head_of_weight; head < heads; head += of_weight) {
              const std::int64_t column = head * width + first;
              const T* const in = x.row(r).range(column, column + columns).data();
              const T* const dout = dy.row(r).range(column, column + columns).data();
              const C scale = rstd(r, head), center = mean ? mean(r, head) : C(0);
              for (std::int64_t j = 0; j < columns; ++j)
                block[j] = multiply_add<C>(dout[j], (in[j] - center) * scale, block[j]);
            }
          for (std::int64_t j = 0; j < columns; ++j) sum[j] += block[j];
        }
        for (std::int64_t j = 0; j < columns; ++j)
          dweight[head_of_weight * width + first + j] = sum[j];
      });
#endif
}

}  // namespace

template <class T>
void head_norm_backward_parameters(const Exec& exec, std::int64_t head_width, View<const T**> x,
                                   View<const compute_t<T>**> rstd, View<const compute_t<T>**> mean,
                                   View<const T**> dy, View<compute_t<T>*> dweight,
                                   const RowSums<compute_t<T>>& sums) {
  using C = compute_t<T>;
  const char* const name = "head_norm_dw";
  const std::int64_t rows = x.rows(), heads = heads_of(name, x.columns(), head_width);
  heads_of(name, dweight.size(), head_width);
  check_statistics<C>(name, NormKind::rmsnorm, rows, heads, rstd, {});
  require_shape(name, "dy", dy, rows, x.columns());
#if OSTRAKON_ON_DEVICE
  if constexpr (!std::is_same_v<T, double>)
    if (sums_held_heads<T>(head_width, dweight.size()) && hold_heads<T>(head_width, x, dy)) {
      HeldArrays<T> arrays;
      arrays[0].in = x;
      arrays[0].dout = dy;
      arrays[0].rstd = rstd;
      arrays[0].mean = mean;
      arrays[0].dweight = dweight;
      arrays[0].workspace = sums.workspace;
      return held_heads_backward<T>(exec, name,
                                    {head_width, NormKind::rmsnorm, NormWeight::none, 0.0}, arrays,
                                    1, sums.leaves);
    }
#endif
  sum_leaves(exec, sums, rows, std::array{dweight},
             [&](std::int64_t begin, std::int64_t end, const auto& sum) {
               sum_leaf<T>(exec, name, head_width, x.row_range(begin, end),
                           rstd.row_range(begin, end), mean.row_range(begin, end),
                           dy.row_range(begin, end), sum[0]);
             });
}

template <class T>
std::int64_t head_norm_sums_workspace(std::int64_t rows, std::int64_t head_width,
                                      std::int64_t of_weight, std::int64_t leaves,
                                      KernelForm form) {
  const bool is_held = sums_held_heads<T>(head_width, of_weight);
  return row_sums_workspace(rows, of_weight, leaves, rows_of_norm_block,
                            is_held ? form : KernelForm::host);
}

// ---- rows in pieces -----------------------------------------------------------------------------

template <class T>
void head_norm_squares(const Exec& exec, std::int64_t columns, View<const T**> x,
                       View<compute_t<T>**> squares) {
  using C = compute_t<T>;
  const char* const name = "head_norm_sq";
  require_shape(name, "squares", squares, x.rows(), 1);
  const C over_columns = C(1) / static_cast<C>(columns);
  for_each_row(
      exec, name, x.rows(), x.columns(), KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        const C sum = row.template sum_of<C>(
            [](std::int64_t, C value) {
              return Product<C>{value, value};
            },
            x.row(r));
        row.once([=]() { squares(r, 0) = sum * over_columns; });
      });
}

template <class C>
void head_norm_rstd(const Exec& exec, double epsilon, View<const C**> squares, View<C**> rstd) {
  const std::int64_t rows = rstd.rows();
  require(rows > 0 && squares.rows() % rows == 0 && squares.columns() == rstd.columns(),
          "head_norm_rstd: squares of ", squares.rows(),
          " rows, expected those of whole pieces of ", rows);
  const C small = static_cast<C>(epsilon);
  const std::int64_t columns = rstd.columns();
  for_each_item(
      exec, "head_norm_1/s", rows * columns, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t r = item / columns, column = item % columns;
        C sum = 0;
        for (std::int64_t i = r; i < squares.rows(); i += rows) sum += squares(i, column);
        rstd(r, column) = C(1) / sqrt(sum + small);
      });
}

template <class T>
void head_norm_projections(const Exec& exec, NormWeight gain, std::int64_t columns,
                           View<const T*> weight, View<const T**> x, View<const T**> dy,
                           View<compute_t<T>**> projections) {
  using C = compute_t<T>;
  const char* const name = "head_norm_dot";
  check_weight<T>(name, gain, weight, x.columns(), x.columns());
  require_shape(name, "dy", dy, x.rows(), x.columns());
  require_shape(name, "projections", projections, x.rows(), 1);
  const C over_columns = C(1) / static_cast<C>(columns);
  with_gain(gain, [&](auto constant) {
    project<constant(), T>(exec, name, over_columns, weight, x, dy, projections);
  });
}

#define OSTRAKON_INSTANTIATE(T)                                                                  \
  template void head_norm_forward<T>(const Exec&, const HeadNorm&, View<const T*>, View<T**>,    \
                                     View<T**>, View<const compute_t<T>**>);                     \
  template void head_norm_statistics<T>(const Exec&, const HeadNorm&, View<const T**>,           \
                                        View<compute_t<T>**>, View<compute_t<T>**>);             \
  template void head_norm_backward_input<T>(                                                     \
      const Exec&, const HeadNorm&, View<const T*>, View<const T**>, View<const compute_t<T>**>, \
      View<const compute_t<T>**>, View<T**>, View<const compute_t<T>**>);                        \
  template void head_norm_backward_parameters<T>(                                                \
      const Exec&, std::int64_t, View<const T**>, View<const compute_t<T>**>,                    \
      View<const compute_t<T>**>, View<const T**>, View<compute_t<T>*>,                          \
      const RowSums<compute_t<T>>&);                                                             \
  template std::int64_t head_norm_sums_workspace<T>(std::int64_t, std::int64_t, std::int64_t,    \
                                                    std::int64_t, KernelForm);                   \
  template void head_norm_squares<T>(const Exec&, std::int64_t, View<const T**>,                 \
                                     View<compute_t<T>**>);                                      \
  template void head_norm_projections<T>(const Exec&, NormWeight, std::int64_t, View<const T*>,  \
                                         View<const T**>, View<const T**>, View<compute_t<T>**>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE
template void head_norm_rstd<float>(const Exec&, double, View<const float**>, View<float**>);
template void head_norm_rstd<double>(const Exec&, double, View<const double**>, View<double**>);

}  // namespace ostrakon::math
