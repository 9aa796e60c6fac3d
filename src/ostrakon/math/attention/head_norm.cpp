// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/head_norm.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/column_kernel.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/fast_divide.hpp>
#include <ostrakon/math/row_kernel.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {

namespace {

std::int64_t heads_of(const char* name, std::int64_t columns, std::int64_t head_width) {
  require(head_width >= 1 && columns % head_width == 0, name, ": ", columns,
          " columns, expected whole heads of width ", head_width);
  return columns / head_width;
}

/// 1 / sqrt(mean of the head's squares + epsilon).
template <class T>
KOKKOS_FUNCTION compute_t<T> rstd_of(const Row& row, View<const T*> head, compute_t<T> over_width,
                                     compute_t<T> epsilon) {
  using C = compute_t<T>;
  const C squares = row.template sum_of<C>(
      [](std::int64_t, C value) {
        return Product<C>{value, value};
      },
      head);
  return C(1) / sqrt(multiply_add(squares, over_width, epsilon));
}

#if OSTRAKON_ON_DEVICE
/// The contribution of the heads of a row to the weight's gradient; a row here is one head.
template <class T>
struct HeadNormTerms {
  using C = compute_t<T>;
  static constexpr int vector = vector_elements<T>();
  View<const T**> x, dy;
  View<const C*> rstd;
  FastDivide by_heads;
  std::int64_t width;

  template <int n>
  bool begin_vectors() const {
    return width % n == 0 && rows_begin_vectors<n>(x) && rows_begin_vectors<n>(dy);
  }
  template <int n>
  KOKKOS_INLINE_FUNCTION void add(std::int64_t index, std::int64_t j, C* sums) const {
    const std::int64_t r = by_heads.quotient(index), column = by_heads.rest(index) * width + j;
    const Vector<T, n> in = load_vector<n>(&x(r, column)), dout = load_vector<n>(&dy(r, column));
    const C scale = rstd[index];
    for (int k = 0; k < n; ++k) sums[k] += C(dout.at[k]) * (C(in.at[k]) * scale);
  }
};
#endif

template <NormWeight gain, class T>
void normalize_heads(const Exec& exec, const char* name, double epsilon, std::int64_t heads,
                     std::int64_t width, View<const T*> weight, View<T**> x, View<T**> kept) {
  using C = compute_t<T>;
  const C over_width = C(1) / static_cast<C>(width);
  const C small = static_cast<C>(epsilon);
  const FastDivide by_heads(heads);
  for_each_row(
      exec, name, x.rows() * heads, width, KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t r = by_heads.quotient(index), first = by_heads.rest(index) * width;
        const auto values = x.row(r).range(first, first + width);
        const auto before = kept.row(r).range(first, first + width);
        const View<const T*> factors = gain == NormWeight::none ? View<const T*>(values) : weight;
        const C scale = rstd_of<T>(row, View<const T*>(values), over_width, small);
        row.map_two(
            [=](std::int64_t, T value, C factor) {
              return Two<T, C>{value, value * scale * gain_of<gain>(factor)};
            },
            before, values, values, factors);
      });
}

template <NormWeight gain, class T>
void differentiate_heads(const Exec& exec, const char* name, std::int64_t heads, std::int64_t width,
                         View<const T*> weight, View<const T**> x, View<const compute_t<T>*> rstd,
                         View<T**> gradient) {
  using C = compute_t<T>;
  const C over_width = C(1) / static_cast<C>(width);
  const FastDivide by_heads(heads);
  for_each_row(
      exec, name, x.rows() * heads, width, KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t r = by_heads.quotient(index), first = by_heads.rest(index) * width;
        const auto in = x.row(r).range(first, first + width);
        const auto both = gradient.row(r).range(first, first + width);
        const View<const T*> factors = gain == NormWeight::none ? in : weight;
        const C scale = rstd[index];
        // This is norm_backward_input: rstd (g - n average(g n)) with g = dy gain and n = x rstd.
        const C projection = row.template sum_of<C>(
                                 [](std::int64_t, C d, C factor, C value) {
                                   return Product<C>{d * gain_of<gain>(factor), value};
                                 },
                                 both, factors, in) *
                             scale * over_width;
        row.map(
            [=](std::int64_t, C d, C factor, C value) {
              return scale * multiply_add(d, gain_of<gain>(factor), -(value * scale * projection));
            },
            both, both, factors, in);
      });
}

}  // namespace

template <class T>
void head_norm_forward(const Exec& exec, NormWeight gain, double epsilon, std::int64_t head_width,
                       View<const T*> weight, View<T**> x, View<T**> kept) {
  const char* const name = "head_norm";
  const std::int64_t heads = heads_of(name, x.columns(), head_width);
  require_size(name, "weight", weight, gain == NormWeight::none ? 0 : head_width);
  require_shape(name, "kept", kept, x.rows(), x.columns());
  with_gain(gain, [&](auto constant) {
    normalize_heads<constant(), T>(exec, name, epsilon, heads, head_width, weight, x, kept);
  });
}

template <class T>
void head_norm_statistics(const Exec& exec, double epsilon, std::int64_t head_width,
                          View<const T**> x, View<compute_t<T>*> rstd) {
  using C = compute_t<T>;
  const char* const name = "head_norm_rstd";
  const std::int64_t heads = heads_of(name, x.columns(), head_width);
  require_size(name, "rstd", rstd, x.rows() * heads);
  const C over_width = C(1) / static_cast<C>(head_width);
  const C small = static_cast<C>(epsilon);
  const FastDivide by_heads(heads);
  for_each_row(
      exec, name, x.rows() * heads, head_width, KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t first = by_heads.rest(index) * head_width;
        const auto in = x.row(by_heads.quotient(index)).range(first, first + head_width);
        const C scale = rstd_of<T>(row, in, over_width, small);
        row.once([=]() { rstd[index] = scale; });
      });
}

template <class T>
void head_norm_backward_input(const Exec& exec, NormWeight gain, std::int64_t head_width,
                              View<const T*> weight, View<const T**> x,
                              View<const compute_t<T>*> rstd, View<T**> gradient) {
  const char* const name = "head_norm_dx";
  const std::int64_t heads = heads_of(name, x.columns(), head_width);
  require_size(name, "weight", weight, gain == NormWeight::none ? 0 : head_width);
  require_size(name, "rstd", rstd, x.rows() * heads);
  require_shape(name, "gradient", gradient, x.rows(), x.columns());
  with_gain(gain, [&](auto constant) {
    differentiate_heads<constant(), T>(exec, name, heads, head_width, weight, x, rstd, gradient);
  });
}

template <class T>
void head_norm_backward_parameters(const Exec& exec, View<const T**> x,
                                   View<const compute_t<T>*> rstd, View<const T**> dy,
                                   View<compute_t<T>*> dweight) {
  using C = compute_t<T>;
  const char* const name = "head_norm_dw";
  const std::int64_t rows = x.rows(), width = dweight.size();
  const std::int64_t heads = heads_of(name, x.columns(), width);
  require_size(name, "rstd", rstd, rows * heads);
  require_shape(name, "dy", dy, rows, x.columns());
#if OSTRAKON_ON_DEVICE
  sum_over_rows<C, 1>(exec, name, rows * heads, width,
                      HeadNormTerms<T>{x, dy, rstd, FastDivide(heads), width}, {{dweight}});
#else
  // Rows are summed in blocks, as in norm_backward_parameters.
  constexpr std::int64_t rows_per_block = 64;
  constexpr std::int64_t columns_per_item = 64;
  for_each_item(
      exec, name, items_for(width, columns_per_item), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item * columns_per_item;
        const std::int64_t columns = smaller(columns_per_item, width - first);
        C sum[columns_per_item] = {};
        for (std::int64_t begin = 0; begin < rows; begin += rows_per_block) {
          const std::int64_t end = smaller(begin + rows_per_block, rows);
          C block[columns_per_item] = {};
          for (std::int64_t r = begin; r < end; ++r)
            for (std::int64_t head = 0; head < heads; ++head) {
              const std::int64_t column = head * width + first;
              const T* const in = x.row(r).range(column, column + columns).data();
              const T* const dout = dy.row(r).range(column, column + columns).data();
              const C scale = rstd[r * heads + head];
              for (std::int64_t j = 0; j < columns; ++j)
                block[j] = multiply_add<C>(dout[j], in[j] * scale, block[j]);
            }
          for (std::int64_t j = 0; j < columns; ++j) sum[j] += block[j];
        }
        for (std::int64_t j = 0; j < columns; ++j) dweight[first + j] = sum[j];
      });
#endif
}

#define OSTRAKON_INSTANTIATE(T)                                                                    \
  template void head_norm_forward<T>(const Exec&, NormWeight, double, std::int64_t,                \
                                     View<const T*>, View<T**>, View<T**>);                        \
  template void head_norm_statistics<T>(const Exec&, double, std::int64_t, View<const T**>,        \
                                        View<compute_t<T>*>);                                      \
  template void head_norm_backward_input<T>(const Exec&, NormWeight, std::int64_t, View<const T*>, \
                                            View<const T**>, View<const compute_t<T>*>,            \
                                            View<T**>);                                            \
  template void head_norm_backward_parameters<T>(const Exec&, View<const T**>,                     \
                                                 View<const compute_t<T>*>, View<const T**>,       \
                                                 View<compute_t<T>*>);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
