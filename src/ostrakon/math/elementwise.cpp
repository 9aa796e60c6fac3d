// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/elementwise.hpp>

#include <ostrakon/math/convert_run.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/rows/column_kernel.hpp>
#include <ostrakon/math/work_items.hpp>
#include <type_traits>

namespace ostrakon::math {
namespace {

/// Sums the columns of x, at most `max_width`, on the host. Rows are summed in blocks, and then the
/// blocks, so that the rounding error grows with rows / block_rows, not with rows.
template <class T, std::int64_t max_width, class C = compute_t<T>>
[[maybe_unused]] KOKKOS_FUNCTION void sum_columns(View<const T**> x, View<C*> sums) {
  constexpr std::int64_t block_rows = 64;
  const std::int64_t width = x.columns();
  C total[max_width] = {};
  for (std::int64_t begin = 0; begin < x.rows(); begin += block_rows) {
    const std::int64_t end = smaller(x.rows(), begin + block_rows);
    C partial[max_width] = {};
    if (width == max_width) {  // the usual case, with a constant length
      for (std::int64_t i = begin; i < end; ++i) {
        const auto row = x.row(i);
        for (std::int64_t j = 0; j < max_width; ++j) partial[j] += row[j];
      }
    } else {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto row = x.row(i);
        for (std::int64_t j = 0; j < width; ++j) partial[j] += row[j];
      }
    }
    for (std::int64_t j = 0; j < max_width; ++j) total[j] += partial[j];
  }
  for (std::int64_t j = 0; j < width; ++j) sums[j] = total[j];
}

#if OSTRAKON_ON_DEVICE
/// The contribution of a row of x to the sums of its columns.
template <class T>
struct ColumnTerms {
  static constexpr int vector = vector_elements<T>();
  View<const T**> x;

  template <int n>
  bool begin_vectors() const {
    return rows_begin_vectors<n>(x);
  }
  template <int n>
  KOKKOS_INLINE_FUNCTION void add(std::int64_t r, std::int64_t j, compute_t<T>* sums) const {
    const Vector<T, n> values = load_vector<n>(&x(r, j));
    for (int k = 0; k < n; ++k) sums[k] += static_cast<compute_t<T>>(values.at[k]);
  }
};
#endif

/// y[i] += x[i].
template <class T>
KOKKOS_INLINE_FUNCTION void add_run(const T* x, T* y, std::int64_t count) {
  map_run<vector_elements<T>()>(
      count, [](std::int64_t, T before, T term) { return static_cast<T>(before + term); }, y, y, x);
}

}  // namespace

template <class A, class B, class Space>
void convert(const ExecutorFor<Space>& where, View<const A*, Space> x, View<B*, Space> y) {
  require_equal_sizes("convert", x.size(), y.size());
  constexpr std::int64_t run = per_item_on<ExecutorFor<Space>>(4096, vector_elements<A, B>());
  for_each_item(
      where, "convert", items_for(x.size(), run), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item * run;
        const std::int64_t end = smaller(first + run, x.size());
        convert_run(x.range(first, end).data(), y.range(first, end).data(), end - first);
      });
}

template <class T, class Space>
void add_to(const ExecutorFor<Space>& where, View<const T*, Space> x, View<T*, Space> y) {
  require_equal_sizes("add_to", x.size(), y.size());
  constexpr std::int64_t run = per_item_on<ExecutorFor<Space>>(4096, vector_elements<T>());
  for_each_item(
      where, "add_to", items_for(x.size(), run), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item * run;
        const std::int64_t end = smaller(first + run, x.size());
        add_run(x.range(first, end).data(), y.range(first, end).data(), end - first);
      });
}

template <class T>
void fill(const Exec& exec, View<T*> x, T value) {
  constexpr std::int64_t run = per_item(4096, vector_elements<T>());
  for_each_item(
      exec, "fill", items_for(x.size(), run), KOKKOS_LAMBDA(std::int64_t item) {
        const auto to = x.range(item * run, smaller((item + 1) * run, x.size()));
        map_run<vector_elements<T>()>(
            to.size(), [=](std::int64_t) { return value; }, to.data());
      });
}

template <class T>
void copy(const Exec& exec, View<const T*> x, View<T*> y) {
  require_equal_sizes("copy", x.size(), y.size());
  constexpr std::int64_t run = per_item(4096, vector_elements<T>());
  for_each_item(
      exec, "copy", items_for(y.size(), run), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item * run, end = smaller(first + run, y.size());
        const auto to = y.range(first, end);
        map_run<vector_elements<T>()>(
            to.size(), [](std::int64_t, T element) { return element; }, to.data(),
            x.range(first, end).data());
      });
}

template <class T>
void add_bias(const Exec& exec, View<T**> x, View<const T*> bias) {
  require_equal_sizes("add_bias", x.columns(), bias.size());
  const std::int64_t columns = x.columns();
#if OSTRAKON_ON_DEVICE
  for_each_row(
      exec, "add_bias", x.rows(), columns, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        using C = compute_t<T>;
        row.map([](std::int64_t, C value, C term) { return value + term; }, x.row(r), x.row(r),
                bias);
      });
#else
  constexpr std::int64_t run = 4096;
  const std::int64_t runs = items_for(columns, run);
  for_each_item(
      exec, "add_bias", x.rows() * runs, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item % runs * run;
        const std::int64_t width = smaller(run, columns - first);
        const auto row = x.row(item / runs).range(first, first + width);
        const auto terms = bias.range(first, first + width);
        for (std::int64_t j = 0; j < width; ++j) row[j] = static_cast<T>(row[j] + terms[j]);
      });
#endif
}

template <class T>
void add_residual(const Exec& exec, View<const T**> x, View<const compute_t<T>**> sum,
                  View<const T*> bias, View<T**> y) {
  using C = compute_t<T>;
  const char* const name = "add_residual";
  require_shape(name, "x", x, y.rows(), y.columns());
  require_shape(name, "sum", sum, y.rows(), y.columns());
  require_size_if_any(name, "bias", bias, y.columns());
  const std::int64_t columns = y.columns();
#if OSTRAKON_ON_DEVICE
  for_each_row(
      exec, name, y.rows(), columns, KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        if (bias)
          row.map([](std::int64_t, C from, C more, C term) { return from + (more + term); },
                  y.row(r), x.row(r), sum.row(r), bias);
        else
          row.map([](std::int64_t, C from, C more) { return from + more; }, y.row(r), x.row(r),
                  sum.row(r));
      });
#else
  constexpr std::int64_t run = 4096;
  const std::int64_t runs = items_for(columns, run);
  for_each_item(
      exec, name, y.rows() * runs, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item % runs * run, row = item / runs;
        const std::int64_t end = first + smaller(run, columns - first);
        const auto from = x.row(row).range(first, end);
        const auto more = sum.row(row).range(first, end);
        const auto to = y.row(row).range(first, end);
        if (bias) {
          const auto terms = bias.range(first, end);
          for (std::int64_t j = 0; j < to.size(); ++j)
            to[j] = static_cast<T>(C(from[j]) + (more[j] + C(terms[j])));
        } else {
          for (std::int64_t j = 0; j < to.size(); ++j) to[j] = static_cast<T>(C(from[j]) + more[j]);
        }
      });
#endif
}

template <class T>
void column_sums(const Exec& exec, View<const T**> x, View<compute_t<T>*> sums) {
  require_equal_sizes("column_sums", x.columns(), sums.size());
#if OSTRAKON_ON_DEVICE
  sum_over_rows<compute_t<T>, 1>(exec, "column_sums", x.rows(), x.columns(), ColumnTerms<T>{x},
                                 {{sums}});
#else
  constexpr std::int64_t run = 256;
  const std::int64_t columns = x.columns();
  for_each_item(
      exec, "column_sums", items_for(columns, run), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item * run;
        const std::int64_t end = smaller(first + run, columns);
        sum_columns<T, run>(x.column_range(first, end), sums.range(first, end));
      });
#endif
}

#define OSTRAKON_INSTANTIATE(T)                                                           \
  template void fill<T>(const Exec&, View<T*>, T);                                        \
  template void copy<T>(const Exec&, View<const T*>, View<T*>);                           \
  template void add_to<T>(const Exec&, View<const T*>, View<T*>);                         \
  template void add_to<T>(const CallingThread&, HostView<const T*>, HostView<T*>);        \
  template void add_bias<T>(const Exec&, View<T**>, View<const T*>);                      \
  template void add_residual<T>(const Exec&, View<const T**>, View<const compute_t<T>**>, \
                                View<const T*>, View<T**>);                               \
  template void column_sums<T>(const Exec&, View<const T**>, View<compute_t<T>*>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

template void copy<std::int32_t>(const Exec&, View<const std::int32_t*>, View<std::int32_t*>);
template void copy<std::int64_t>(const Exec&, View<const std::int64_t*>, View<std::int64_t*>);
#define OSTRAKON_INSTANTIATE(A, B)                                    \
  template void convert<A, B>(const Exec&, View<const A*>, View<B*>); \
  template void convert<A, B>(const CallingThread&, HostView<const A*>, HostView<B*>);
OSTRAKON_INSTANTIATE(float, float)
OSTRAKON_INSTANTIATE(double, double)
OSTRAKON_INSTANTIATE(float, bf16)
OSTRAKON_INSTANTIATE(bf16, float)
OSTRAKON_INSTANTIATE(float, fp16)
OSTRAKON_INSTANTIATE(fp16, float)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
