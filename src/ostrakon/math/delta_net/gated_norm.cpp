// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/delta_net/gated_norm.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/fast_divide.hpp>
#include <ostrakon/math/rows/column_kernel.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>

namespace ostrakon::math {
namespace {

std::int64_t heads_in(const char* name, std::int64_t columns, std::int64_t head_width) {
  require(head_width >= 1 && columns % head_width == 0, name, ": ", columns,
          " columns, expected whole heads of width ", head_width);
  return columns / head_width;
}

#if OSTRAKON_ON_DEVICE
/// The contribution of a head of a row to the weight's gradient; a row here is one head.
template <class T>
struct GatedNormTerms {
  using C = compute_t<T>;
  static constexpr int vector = vector_elements<T>();
  View<const T**> x, gate, dy;
  View<const C*> rstd;
  FastDivide by_heads;
  std::int64_t width;

  template <int n>
  bool begin_vectors() const {
    return width % n == 0 && rows_begin_vectors<n>(x) && rows_begin_vectors<n>(gate) &&
           rows_begin_vectors<n>(dy);
  }
  template <int n>
  KOKKOS_INLINE_FUNCTION void add(std::int64_t index, std::int64_t j, C* sums) const {
    const std::int64_t r = by_heads.quotient(index), column = by_heads.rest(index) * width + j;
    const Vector<T, n> in = load_vector<n>(&x(r, column)), dout = load_vector<n>(&dy(r, column));
    const Vector<T, n> gates = load_vector<n>(&gate(r, column));
    const C scale = rstd[index];
    for (int k = 0; k < n; ++k) {
      const C z = C(gates.at[k]);
      sums[k] += C(dout.at[k]) * (z * fast_sigmoid(z)) * (C(in.at[k]) * scale);
    }
  }
};
#endif

}  // namespace

template <class T>
void gated_norm_forward(const Exec& exec, double epsilon, View<const T**> x, View<const T**> gate,
                        View<const T*> weight, View<T**> y) {
  using C = compute_t<T>;
  const char* const name = "gated_norm";
  const std::int64_t width = weight.size(), heads = heads_in(name, x.columns(), width);
  require_shape(name, "gate", gate, x.rows(), x.columns());
  require_shape(name, "y", y, x.rows(), x.columns());
  const C over_width = C(1) / static_cast<C>(width), small = static_cast<C>(epsilon);
  const FastDivide by_heads(heads);
  for_each_row(
      exec, name, x.rows() * heads, width, KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t r = by_heads.quotient(index), first = by_heads.rest(index) * width;
        const auto in = x.row(r).range(first, first + width);
        const C squares = row.template sum_of<C>(
            [](std::int64_t, C value) {
              return Product<C>{value, value};
            },
            in);
        const C scale = C(1) / sqrt(multiply_add(squares, over_width, small));
        row.map([=](std::int64_t, C value, C z,
                    C factor) { return value * scale * factor * (z * fast_sigmoid(z)); },
                y.row(r).range(first, first + width), in, gate.row(r).range(first, first + width),
                weight);
      });
}

template <class T>
void gated_norm_backward_input(const Exec& exec, View<const T**> x, View<const T**> gate,
                               View<const T*> weight, View<const compute_t<T>*> rstd,
                               View<const T**> dy, View<T**> dx, View<T**> dgate) {
  using C = compute_t<T>;
  const char* const name = "gated_norm_dx";
  const std::int64_t width = weight.size(), heads = heads_in(name, x.columns(), width);
  require_shape(name, "gate", gate, x.rows(), x.columns());
  require_size(name, "rstd", rstd, x.rows() * heads);
  for (const auto& one : {View<const T**>(dx), View<const T**>(dgate), dy})
    require_shape(name, "a gradient", one, x.rows(), x.columns());
  const C over_width = C(1) / static_cast<C>(width);
  const FastDivide by_heads(heads);
  for_each_row(
      exec, name, x.rows() * heads, width, KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t r = by_heads.quotient(index), first = by_heads.rest(index) * width;
        const auto in = x.row(r).range(first, first + width);
        const auto z = gate.row(r).range(first, first + width);
        const auto d = dy.row(r).range(first, first + width);
        const C scale = rstd[index];
        // This is norm_backward_input with a gate: rstd (g - n average(g n)) with g = dy weight
        // silu(gate) and n = x rstd.
        const C projection = row.template sum_of<C>(
                                 [](std::int64_t, C out, C of, C factor, C value) {
                                   return Product<C>{out * factor * (of * fast_sigmoid(of)), value};
                                 },
                                 d, z, weight, in) *
                             scale * over_width;
        row.map_two(
            [=](std::int64_t, C out, C of, C factor, C value) {
              const C open = fast_sigmoid(of), normed = value * scale, by_norm = out * factor;
              return Two<C, C>{scale * multiply_add(by_norm, of * open, -(normed * projection)),
                               by_norm * normed * open * multiply_add(of, C(1) - open, C(1))};
            },
            dx.row(r).range(first, first + width), dgate.row(r).range(first, first + width), d, z,
            weight, in);
      });
}

template <class T>
void gated_norm_backward_parameters(const Exec& exec, View<const T**> x, View<const T**> gate,
                                    View<const compute_t<T>*> rstd, View<const T**> dy,
                                    View<compute_t<T>*> dweight) {
  using C = compute_t<T>;
  const char* const name = "gated_norm_dw";
  const std::int64_t rows = x.rows(), width = dweight.size();
  const std::int64_t heads = heads_in(name, x.columns(), width);
  require_size(name, "rstd", rstd, rows * heads);
  require_shape(name, "gate", gate, rows, x.columns());
  require_shape(name, "dy", dy, rows, x.columns());
#if OSTRAKON_ON_DEVICE
  sum_over_rows<C, 1>(exec, name, rows * heads, width,
                      GatedNormTerms<T>{x, gate, dy, rstd, FastDivide(heads), width}, {{dweight}});
#else
  // Rows are summed in blocks, as in sum_norm_gradients().
  constexpr std::int64_t rows_per_block = 64;
  constexpr std::int64_t columns_per_item = 64;
  for_each_item(
      exec, name, items_for(width, columns_per_item), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item * columns_per_item;
        const std::int64_t columns = smaller(columns_per_item, width - first);
        C sum[columns_per_item] = {};
        for (std::int64_t begin = 0; begin < rows; begin += rows_per_block) {
          C block[columns_per_item] = {};
          for (std::int64_t r = begin; r < smaller(begin + rows_per_block, rows); ++r)
            for (std::int64_t head = 0; head < heads; ++head) {
              const std::int64_t column = head * width + first;
              const T *const in = &x(r, column), *const z = &gate(r, column);
              const T* const dout = &dy(r, column);
              const C scale = rstd[r * heads + head];
              for (std::int64_t j = 0; j < columns; ++j) {
                const C of = C(z[j]);
                block[j] =
                    multiply_add(C(dout[j]) * (of * fast_sigmoid(of)), C(in[j]) * scale, block[j]);
              }
            }
          for (std::int64_t j = 0; j < columns; ++j) sum[j] += block[j];
        }
        for (std::int64_t j = 0; j < columns; ++j) dweight[first + j] = sum[j];
      });
#endif
}

#define OSTRAKON_INSTANTIATE(T)                                                                  \
  template void gated_norm_forward<T>(const Exec&, double, View<const T**>, View<const T**>,     \
                                      View<const T*>, View<T**>);                                \
  template void gated_norm_backward_input<T>(const Exec&, View<const T**>, View<const T**>,      \
                                             View<const T*>, View<const compute_t<T>*>,          \
                                             View<const T**>, View<T**>, View<T**>);             \
  template void gated_norm_backward_parameters<T>(const Exec&, View<const T**>, View<const T**>, \
                                                  View<const compute_t<T>*>, View<const T**>,    \
                                                  View<compute_t<T>*>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
