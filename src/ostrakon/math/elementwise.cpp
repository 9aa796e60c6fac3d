// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/elementwise.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/column_kernel.hpp>
#include <ostrakon/math/convert_run.hpp>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {
namespace {

/// On the host: sums[j] of `width` columns starting at x. Rows are summed in blocks and the blocks
/// after that, so that rounding grows with rows / block_rows, not with rows.
template <class T, std::int64_t max_width, class C = compute_t<T>>
[[maybe_unused]] KOKKOS_FUNCTION void sum_columns(const T* x, std::int64_t rows,
                                                  std::int64_t stride, std::int64_t width,
                                                  C* sums) {
  constexpr std::int64_t block_rows = 64;
  C total[max_width] = {};
  for (std::int64_t begin = 0; begin < rows; begin += block_rows) {
    const std::int64_t end = smaller(rows, begin + block_rows);
    C partial[max_width] = {};
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
constexpr std::int64_t narrow_run = 256;

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

/// Sums `width` elements (narrow_run at most) of each of `pieces` pieces as they are in the wider
/// type, in the same tree. Whole nodes wait in a stack for the one on their right: after p pieces
/// there is one for each bit of p.
template <class T, class C = compute_t<T>>
void sum_narrow_pieces(const T* x, int pieces, std::int64_t stride, std::int64_t width, C* sum) {
  constexpr int most_nodes = 32;
  C node[most_nodes][narrow_run];
  int nodes = 0;
  const auto add_last_two = [&] {
    const C* right = node[--nodes];
    C* left = node[nodes - 1];
    for (std::int64_t i = 0; i < width; ++i) left[i] += right[i];
  };
  for (int piece = 0; piece < pieces; ++piece) {
    convert_run(x + piece * stride, node[nodes++], width);
    for (int bit = piece; bit % 2 == 1; bit /= 2) add_last_two();
  }
  while (nodes > 1) add_last_two();
  std::copy(node[0], node[0] + width, sum);
}

/// Sums pieces of `count` elements into `sum`; clobbers x.
template <class T>
void add_up_pieces(T* x, int pieces, std::int64_t count, T* sum) {
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

/// Adds the sum of `pieces` pieces to `sum`, `width` elements (narrow_run at most), or `stores` it
/// there; clobbers x, but for 16-bit elements.
template <class T, class C = compute_t<T>>
void add_pieces(T* x, int pieces, std::int64_t stride, std::int64_t width, bool stores, C* sum) {
  const auto add = [&](const C* total) {
    if (stores && sum != total) std::copy(total, total + width, sum);
    if (stores) return;
    for (std::int64_t i = 0; i < width; ++i) sum[i] += total[i];
  };
  if constexpr (is_16bit<T>) {
    C total[narrow_run];
    sum_narrow_pieces(x, pieces, stride, width, total);
    add(total);
  } else {
    sum_pieces(x, pieces, stride, width);
    add(x);
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

template <class A, class B>
void convert(const Exec& exec, const A* x, B* y, std::int64_t count) {
  constexpr std::int64_t run = per_item(4096);
  for_each_item(
      exec, "convert", items_for(count, run), KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t first = item * run;
        convert_run(x + first, y + first, smaller(run, count - first));
      });
}

template <class A, class B>
void host::convert(const A* x, B* y, std::int64_t count) {
  convert_run(x, y, count);
}

template <class T>
void add_to(const Exec& exec, const T* x, T* y, std::int64_t count) {
  for_each_item(
      exec, "add_to", count, KOKKOS_LAMBDA(std::int64_t i) { y[i] = static_cast<T>(y[i] + x[i]); });
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
  for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(y[i] + x[i]);
}

template <class T>
void host::tree_sum(T* x, int pieces, std::int64_t count, compute_t<T>* sum) {
  require_pieces(pieces);
  if constexpr (is_16bit<T>) {
    for (std::int64_t first = 0; first < count; first += narrow_run)
      sum_narrow_pieces(x + first, pieces, count, smaller(narrow_run, count - first), sum + first);
  } else {
    add_up_pieces(x, pieces, count, sum);
  }
}

template <class T>
void host::chain_sum(T* x, int pieces, int tree, bool continues, std::int64_t count,
                     compute_t<T>* sum) {
  require_pieces(pieces);
  require(tree >= 1, "chain_sum: trees over ", tree, " pieces, expected at least 1");
  if (tree >= pieces && !continues) return tree_sum(x, pieces, count, sum);
  for (std::int64_t first = 0; first < count; first += narrow_run) {
    const std::int64_t width = smaller(narrow_run, count - first);
    for (int piece = 0; piece < pieces; piece += tree)
      add_pieces(x + piece * count + first, std::min(tree, pieces - piece), count, width,
                 piece == 0 && !continues, sum + first);
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
        for (std::int64_t j = 0; j < width; ++j) row[j] = static_cast<T>(row[j] + terms[j]);
      });
}

template <class T>
void column_sums(const Exec& exec, ConstMatrix<T> x, compute_t<T>* sums) {
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

#define OSTRAKON_INSTANTIATE(T)                                                      \
  template void fill<T>(const Exec&, T*, std::int64_t, T);                           \
  template void copy<T>(const Exec&, const T*, T*, std::int64_t);                    \
  template void add_to<T>(const Exec&, const T*, T*, std::int64_t);                  \
  template void host::add_to<T>(const T*, T*, std::int64_t);                         \
  template void host::tree_sum<T>(T*, int, std::int64_t, compute_t<T>*);             \
  template void host::chain_sum<T>(T*, int, int, bool, std::int64_t, compute_t<T>*); \
  template void add_bias<T>(const Exec&, Matrix<T>, const T*);                       \
  template void column_sums<T>(const Exec&, ConstMatrix<T>, compute_t<T>*);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

template void tree_sum<float>(const Exec&, float*, int, std::int64_t);
template void tree_sum<double>(const Exec&, double*, int, std::int64_t);

#define OSTRAKON_INSTANTIATE(A, B)                                      \
  template void convert<A, B>(const Exec&, const A*, B*, std::int64_t); \
  template void host::convert<A, B>(const A*, B*, std::int64_t);
OSTRAKON_INSTANTIATE(float, float)
OSTRAKON_INSTANTIATE(double, double)
OSTRAKON_INSTANTIATE(float, bf16)
OSTRAKON_INSTANTIATE(bf16, float)
OSTRAKON_INSTANTIATE(float, fp16)
OSTRAKON_INSTANTIATE(fp16, float)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
