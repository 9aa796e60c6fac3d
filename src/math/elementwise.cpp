// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/elementwise.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/column_kernel.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {
namespace {

/// On the host: sums[j] of `width` columns starting at x. Rows are summed in blocks and the blocks
/// after that, so that rounding grows with rows / block_rows, not with rows.
template <class T, std::int64_t max_width>
[[maybe_unused]] KOKKOS_FUNCTION void sum_columns(const T* x, std::int64_t rows,
                                                  std::int64_t stride, std::int64_t width,
                                                  T* sums) {
  constexpr std::int64_t block_rows = 64;
  T total[max_width] = {};
  for (std::int64_t begin = 0; begin < rows; begin += block_rows) {
    const std::int64_t end = smaller(rows, begin + block_rows);
    T partial[max_width] = {};
    if (width == max_width) {  // the usual case, with a length that the compiler knows
      for (std::int64_t i = begin; i < end; ++i)
        for (std::int64_t j = 0; j < max_width; ++j) partial[j] += x[i * stride + j];
    } else {
      for (std::int64_t i = begin; i < end; ++i)
        for (std::int64_t j = 0; j < width; ++j) partial[j] += x[i * stride + j];
    }
    for (std::int64_t j = 0; j < max_width; ++j) total[j] += partial[j];
  }
  for (std::int64_t j = 0; j < width; ++j) sums[j] = total[j];
}

constexpr std::int64_t tree_run = 512;  // that many elements of all pieces stay in cache

/// Sums `width` elements of each of `pieces` pieces, `stride` apart, into the first of them. A node
/// over n pieces splits into the largest power of two below n and the rest. Adding neighbours at
/// distance 1, 2, 4, ... makes just these nodes.
template <class T>
KOKKOS_FUNCTION void sum_pieces(T* x, int pieces, std::int64_t stride, std::int64_t width) {
  for (std::int64_t distance = 1; distance < pieces; distance *= 2)
    for (std::int64_t piece = 0; piece + distance < pieces; piece += 2 * distance) {
      T* left = x + piece * stride;
      const T* right = left + distance * stride;
      for (std::int64_t i = 0; i < width; ++i) left[i] += right[i];
    }
}

void require_pieces(int pieces) {
  require(pieces >= 1, "tree_sum: ", pieces, " pieces, expected at least 1");
}

}  // namespace

template <class T>
void fill(const Exec& exec, T* x, std::int64_t count, T value) {
  for_each_item(
      exec, "fill", count, KOKKOS_LAMBDA(std::int64_t i) { x[i] = value; });
}

template <class T>
void copy(const Exec& exec, const T* x, T* y, std::int64_t count) {
  for_each_item(
      exec, "copy", count, KOKKOS_LAMBDA(std::int64_t i) { y[i] = x[i]; });
}

template <class T>
void add_to(const Exec& exec, const T* x, T* y, std::int64_t count) {
  for_each_item(
      exec, "add_to", count, KOKKOS_LAMBDA(std::int64_t i) { y[i] += x[i]; });
}

template <class T>
void tree_sum(const Exec& exec, T* x, int pieces, std::int64_t count) {
  require_pieces(pieces);
  constexpr std::int64_t run = per_item(tree_run);
  for_each_item(
      exec, "tree_sum", items_for(count, run), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item * run;
        sum_pieces(x + first, pieces, count, smaller(run, count - first));
      });
}

template <class T>
void host::add_to(const T* x, T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] += x[i];
}

template <class T>
void host::tree_sum(T* x, int pieces, std::int64_t count, T* sum) {
  require_pieces(pieces);
  int left = 1;
  while (2 * left < pieces) left *= 2;
  for (std::int64_t first = 0; first < count; first += tree_run) {
    const std::int64_t width = smaller(tree_run, count - first);
    T* const begin = x + first;
    T* const to = sum + first;
    if (pieces == 1) {
      if (to != begin) std::copy(begin, begin + width, to);
      continue;
    }
    // The two halves of the tree where they are; their sum, the last, at once to where it belongs.
    T* const other = begin + left * count;
    sum_pieces(begin, left, count, width);
    sum_pieces(other, pieces - left, count, width);
    for (std::int64_t i = 0; i < width; ++i) to[i] = begin[i] + other[i];
  }
}

template <class T>
void add_bias(const Exec& exec, Matrix<T> x, const T* bias) {
  constexpr std::int64_t run = per_item(4096);
  const std::int64_t columns = x.columns;
  const std::int64_t runs = items_for(columns, run);
  for_each_item(
      exec, "add_bias", x.rows * runs, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item % runs * run;
        const std::int64_t width = smaller(run, columns - first);
        T* row = x.row(item / runs) + first;
        const T* terms = bias + first;
        for (std::int64_t j = 0; j < width; ++j) row[j] += terms[j];
      });
}

template <class T>
void column_sums(const Exec& exec, ConstMatrix<T> x, T* sums) {
#if OSTRAKON_ON_DEVICE
  sum_over_rows(
      exec, "column_sums", x.rows, x.columns,
      KOKKOS_LAMBDA(std::int64_t r, std::int64_t j) { return x(r, j); }, sums);
#else
  constexpr std::int64_t run = 256;
  const std::int64_t columns = x.columns;
  for_each_item(
      exec, "column_sums", items_for(columns, run), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item * run;
        const std::int64_t width = smaller(run, columns - first);
        sum_columns<T, run>(x.data + first, x.rows, x.stride, width, sums + first);
      });
#endif
}

#define OSTRAKON_INSTANTIATE(T)                                     \
  template void fill<T>(const Exec&, T*, std::int64_t, T);          \
  template void copy<T>(const Exec&, const T*, T*, std::int64_t);   \
  template void add_to<T>(const Exec&, const T*, T*, std::int64_t); \
  template void tree_sum<T>(const Exec&, T*, int, std::int64_t);    \
  template void host::add_to<T>(const T*, T*, std::int64_t);        \
  template void host::tree_sum<T>(T*, int, std::int64_t, T*);       \
  template void add_bias<T>(const Exec&, Matrix<T>, const T*);      \
  template void column_sums<T>(const Exec&, ConstMatrix<T>, T*);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
