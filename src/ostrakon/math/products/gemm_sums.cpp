// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/ordered_gemm.hpp>
#include <ostrakon/math/products/varying_gemm.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>
#include <ostrakon/math/work_items.hpp>
#include <type_traits>

// Products that are summed over runs of terms, or whose rows depend on data.

namespace ostrakon::math {

namespace {

/// Rows of C that are summed over pieces at a time: about 2^22 elements, 16 MiB of float.
std::int64_t rows_by_piece(std::int64_t m, std::int64_t n) {
  constexpr std::int64_t elements = std::int64_t{1} << 22;
  constexpr std::int64_t granule = 64;
  const std::int64_t fitting = elements / std::max<std::int64_t>(1, n) / granule * granule;
  return std::min(m, std::max(granule, fitting));
}

/// One piece needs no memory besides C, so a device multiplies all rows in one launch.
std::int64_t rows_of_launch(std::int64_t m, std::int64_t n, std::int64_t pieces) {
  return on_device && pieces == 1 ? m : rows_by_piece(m, n);
}

}  // namespace

template <class T>
void add_matrix(const Exec& exec, View<const T**> from, View<T**> to) {
  for_each_row(
      exec, "gemm_add", from.rows(), from.columns(),
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const auto sum = to.row(index);
        row.map([](std::int64_t, T before, T term) { return before + term; }, sum, sum,
                from.row(index));
      });
}

/// Whether a product of so many terms is a single chunk, which is added to a sum in one step.
template <class T>
bool adds_as_a_whole(std::int64_t terms) {
  if (products_on_device) return true;  // C is added to a finished sum
  return std::is_same<T, float>::value && terms <= product_chunk;
}

std::int64_t gemm_by_piece_workspace(std::int64_t m, std::int64_t n, std::int64_t pieces) {
  return (tree_slots(pieces) - 1) * rows_by_piece(m, n) * n;
}

namespace {

/// c = the sum of the products of `pieces` runs of rows: multiply(piece, begin, end, beta, to)
/// computes rows [begin, end) of a run's product. `terms`: the largest number of rows in a run that
/// may be added in one step.
template <class T, class Multiply>
void sum_runs(const Exec& exec, View<compute_t<T>**> c, std::int64_t pieces, std::int64_t terms,
              View<compute_t<T>*> workspace, const Multiply& multiply) {
  using C = compute_t<T>;
  const std::int64_t n = c.columns();
  const std::int64_t most_rows = rows_of_launch(c.rows(), n, pieces);
  require(workspace.size() >= gemm_by_piece_workspace(c.rows(), n, pieces), "gemm: workspace of ",
          workspace.size(), " elements, expected at least ",
          gemm_by_piece_workspace(c.rows(), n, pieces));
  for (std::int64_t begin = 0; begin < c.rows(); begin += most_rows) {
    const std::int64_t end = std::min(c.rows(), begin + most_rows);
    const std::int64_t rows = end - begin;
    const auto slot = [&](std::int64_t index) {
      return index == 0 ? c.row_range(begin, end)
                        : workspace.range((index - 1) * rows * n, index * rows * n).matrix(rows, n);
    };
    for (std::int64_t piece = 0; piece < pieces; ++piece)
      sum_product<T>(exec, piece, pieces, terms, slot,
                     [&](C beta, View<C**> to) { multiply(piece, begin, end, beta, to); });
  }
}

/// Returns the number of terms per product of gemm_by_run(). A library compiles a 16-bit kernel for
/// each number of terms, so only few are used.
template <class T>
std::int64_t terms_at_once(std::int64_t terms) {
  if (!is_16bit<T> || products_on_device || is_partition_invariant<T>()) return terms;
  std::int64_t power = product_chunk;
  while (power > terms && power > 1) power /= 2;
  return std::min(power, terms);
}

/// c = beta c + the product of all rows, in as few products as possible.
template <class T>
void multiply_run(const Exec& exec, View<const T**> a, View<const T**> b, compute_t<T> beta,
                  View<compute_t<T>**> c) {
  std::int64_t first = 0;
  const std::int64_t last = a.rows();
  do {
    const std::int64_t next = first + terms_at_once<T>(last - first);
    gemm_varying<T, compute_t<T>>(
        exec, Transpose::yes, Transpose::no, 1, Batch<const T>(a.row_range(first, next)),
        Batch<const T>(b.row_range(first, next)), beta, Batch<compute_t<T>>(c), Varies::terms);
    beta = 1;
    first = next;
  } while (first < last);
}

}  // namespace

template <class T>
void gemm_by_piece(const Exec& exec, View<const T**> a, View<const T**> b, View<compute_t<T>**> c,
                   std::int64_t pieces, View<compute_t<T>*> workspace, compute_t<T> beta) {
  using C = compute_t<T>;
  require(pieces >= 1 && a.rows() % pieces == 0, "gemm: ", a.rows(), " terms in ", pieces,
          " pieces, expected a multiple");
  require(beta == 0 || pieces == 1, "gemm: a sum over ", pieces,
          " pieces is added to C, expected one piece");
  const std::int64_t terms = a.rows() / pieces;
  sum_runs<T>(exec, c, pieces, terms, workspace,
              [&](std::int64_t piece, std::int64_t begin, std::int64_t end, C own, View<C**> to) {
                const auto rows = [&](const View<const T**>& x) {
                  return x.row_range(piece * terms, (piece + 1) * terms);
                };
                gemm<T, C>(exec, Transpose::yes, Transpose::no, 1, rows(a).column_range(begin, end),
                           rows(b), beta + own, to);
              });
}

template <class T>
void gemm_by_run(const Exec& exec, View<const T**> a, View<const T**> b, View<compute_t<T>**> c,
                 HostView<const std::int64_t*> offsets, View<compute_t<T>*> workspace) {
  using C = compute_t<T>;
  const std::int64_t pieces = offsets.size() - 1;
  require(pieces >= 1, "gemm: no runs of terms, expected at least one");
  // A run without terms must add +0, as it does on a rank that has it alone, so it is not added in
  // one step.
  const std::int64_t apart = std::numeric_limits<std::int64_t>::max();
  sum_runs<T>(exec, c, pieces, apart, workspace,
              [&](std::int64_t piece, std::int64_t begin, std::int64_t end, C beta, View<C**> to) {
                const std::int64_t first = offsets[piece], last = offsets[piece + 1];
                multiply_run<T>(exec, a.row_range(first, last).column_range(begin, end),
                                b.row_range(first, last), beta, to);
              });
}

template <class T>
void gemm_of_run(const Exec& exec, View<const T**> a, View<const T**> b, compute_t<T> beta,
                 View<compute_t<T>**> c) {
  const std::int64_t most_rows = rows_of_launch(c.rows(), c.columns(), 1);
  for (std::int64_t begin = 0; begin < c.rows(); begin += most_rows) {
    const std::int64_t end = std::min(c.rows(), begin + most_rows);
    multiply_run<T>(exec, a.column_range(begin, end), b, beta, c.row_range(begin, end));
  }
}

template <class T>
void gemm_by_row(const Exec& exec, Transpose transpose_b, View<const T**> a, View<const T**> b,
                 View<T**> c, View<T*> workspace, std::int64_t at_once) {
  if (at_once == 0 || is_partition_invariant<T>())
    return gemm_varying<T, T>(exec, Transpose::no, transpose_b, 1, Batch<const T>(a),
                              Batch<const T>(b), 0, Batch<T>(c), Varies::rows);
  const std::int64_t k = a.columns(), n = c.columns(), whole = a.rows() / at_once * at_once;
  for (std::int64_t i = 0; i < whole; i += at_once)
    gemm<T>(exec, Transpose::no, transpose_b, 1, a.row_range(i, i + at_once), b, 0,
            c.row_range(i, i + at_once));
  const std::int64_t rest = a.rows() - whole;
  if (rest == 0) return;
  require(workspace.size() >= gemm_by_row_workspace<T>(k, n, at_once), "gemm: workspace of ",
          workspace.size(), " elements, expected at least ",
          gemm_by_row_workspace<T>(k, n, at_once));
  const View<T**> rows = workspace.range(0, at_once * k).matrix(at_once, k);
  const View<T**> sums = workspace.range(at_once * k, at_once * (k + n)).matrix(at_once, n);
  for_each_item(
      exec, "gemm_pad", at_once, KOKKOS_LAMBDA(std::int64_t i) {
        for (std::int64_t j = 0; j < k; ++j) rows(i, j) = i < rest ? a(whole + i, j) : T(0);
      });
  gemm<T>(exec, Transpose::no, transpose_b, 1, View<const T**>(rows), b, 0, sums);
  for_each_item(
      exec, "gemm_unpad", rest, KOKKOS_LAMBDA(std::int64_t i) {
        for (std::int64_t j = 0; j < n; ++j) c(whole + i, j) = sums(i, j);
      });
}

template void add_matrix<float>(const Exec&, View<const float**>, View<float**>);
template void add_matrix<double>(const Exec&, View<const double**>, View<double**>);

#define OSTRAKON_INSTANTIATE(T)                                                             \
  template bool adds_as_a_whole<T>(std::int64_t);                                           \
  template void gemm_by_piece<T>(const Exec&, View<const T**>, View<const T**>,             \
                                 View<compute_t<T>**>, std::int64_t, View<compute_t<T>*>,   \
                                 compute_t<T>);                                             \
  template void gemm_by_run<T>(const Exec&, View<const T**>, View<const T**>,               \
                               View<compute_t<T>**>, HostView<const std::int64_t*>,         \
                               View<compute_t<T>*>);                                        \
  template void gemm_of_run<T>(const Exec&, View<const T**>, View<const T**>, compute_t<T>, \
                               View<compute_t<T>**>);                                       \
  template void gemm_by_row<T>(const Exec&, Transpose, View<const T**>, View<const T**>,    \
                               View<T**>, View<T*>, std::int64_t);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
