// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/products/gemm.hpp>

#include <algorithm>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/products/amx_gemm.hpp>
#include <ostrakon/math/products/onednn_matmul.hpp>
#include <ostrakon/math/products/ordered_gemm.hpp>
#include <ostrakon/math/products/product_parts.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/row_kernel.hpp>
#include <ostrakon/math/work_items.hpp>
#include <string>
#include <type_traits>
#include <utility>

#if defined(OSTRAKON_GEMM_CUBLAS)
#include <ostrakon/math/products/cublas_gemm.hpp>
#endif
#if defined(OSTRAKON_GEMM_CBLAS)
#include <cblas.h>
#endif

namespace ostrakon::math {
namespace {

template <class T>
std::string shape_text(const View<T**>& x, Transpose transpose) {
  return text("(", x.rows(), ", ", x.columns(), ")",
              transpose == Transpose::yes ? " transposed" : "");
}

template <class T, class C>
ProductExtents checked_extents(Transpose transpose_a, Transpose transpose_b,
                               const View<const T**>& a, const View<const T**>& b,
                               const View<C**>& c) {
  const bool turn_a = transpose_a == Transpose::yes;
  const bool turn_b = transpose_b == Transpose::yes;
  const std::int64_t m = turn_a ? a.columns() : a.rows();
  const std::int64_t k = turn_a ? a.rows() : a.columns();
  const std::int64_t k_of_b = turn_b ? b.columns() : b.rows();
  const std::int64_t n = turn_b ? b.rows() : b.columns();
  const bool fits = k == k_of_b && c.rows() == m && c.columns() == n && m >= 0 && n >= 0 && k >= 0;
  const bool strides_fit =
      a.stride() >= a.columns() && b.stride() >= b.columns() && c.stride() >= c.columns();
  if (!fits || !strides_fit)
    throw Error(text("gemm: A ", shape_text(a, transpose_a), " and B ", shape_text(b, transpose_b),
                     " do not multiply into C ", shape_text(c, Transpose::no), "; row strides are ",
                     a.stride(), ", ", b.stride(), " and ", c.stride()));
  return {m, n, k};
}

/// Returns one matrix of a batch.
template <class T>
View<T**> matrix_of(const Batch<T>& all, std::int64_t i) {
  const View<T**>& x = all.first();
  return {x.data() + i * all.stride(), x.rows(), x.columns(), x.stride(), x.origin()};
}

template <class C>
void scale(const Exec& exec, compute_t<C> beta, View<C**> c) {
  for_each_row(
      exec, "gemm_scale", c.rows(), c.columns(), KOKKOS_LAMBDA(const Row& row, std::int64_t r) {
        if (beta == 0)
          row.map([](std::int64_t) { return C(0); }, c.row(r));
        else
          row.map([=](std::int64_t, compute_t<C> element) { return beta * element; }, c.row(r),
                  c.row(r));
      });
}

/// The product without a library: an item of work is a run of columns of one row of C.
template <class T, class C>
[[maybe_unused]] void plain_gemm(const Exec& exec, bool turn_a, bool turn_b,
                                 const ProductExtents& extents, compute_t<T> alpha,
                                 View<const T**> a, View<const T**> b, compute_t<T> beta,
                                 View<C**> c) {
  using Sum = compute_t<T>;
  constexpr std::int64_t run = per_item(64);
  const std::int64_t runs = items_for(extents.n, run);
  const std::int64_t n = extents.n;
  const std::int64_t k = extents.k;
  const std::int64_t a_row = turn_a ? 1 : a.stride();
  const std::int64_t a_term = turn_a ? a.stride() : 1;
  const std::int64_t b_term = turn_b ? 1 : b.stride();
  const std::int64_t b_column = turn_b ? b.stride() : 1;
  for_each_item(
      exec, "gemm", extents.m * runs, KOKKOS_LAMBDA(std::int64_t item) {
        const std::int64_t row = item / runs;
        const std::int64_t first = item % runs * run;
        const std::int64_t width = smaller(run, n - first);
        Sum sums[run] = {};
        for (std::int64_t term = 0; term < k; ++term) {
          const Sum factor = a.data()[row * a_row + term * a_term];
          const T* terms = b.data() + term * b_term + first * b_column;
          for (std::int64_t j = 0; j < width; ++j)
            sums[j] = multiply_add(factor, static_cast<Sum>(terms[j * b_column]), sums[j]);
        }
        const auto out = c.row(row).range(first, first + width);
        for (std::int64_t j = 0; j < width; ++j)
          out[j] = static_cast<C>(alpha * sums[j] + (beta == Sum(0) ? Sum(0) : beta * out[j]));
      });
}

#if !defined(OSTRAKON_GEMM_CUBLAS)

#if defined(OSTRAKON_GEMM_CBLAS)
void cblas_gemm(bool turn_a, bool turn_b, const ProductExtents& extents, double alpha,
                View<const double**> a, View<const double**> b, double beta, View<double**> c) {
  const int m = blas_int(extents.m, "the number of rows");
  const int n = blas_int(extents.n, "the number of columns");
  const int k = blas_int(extents.k, "the number of terms");
  const int lda = blas_int(a.stride(), "the row stride of A");
  const int ldb = blas_int(b.stride(), "the row stride of B");
  const int ldc = blas_int(c.stride(), "the row stride of C");
  cblas_dgemm(CblasRowMajor, turn_a ? CblasTrans : CblasNoTrans, turn_b ? CblasTrans : CblasNoTrans,
              m, n, k, alpha, a.data(), lda, b.data(), ldb, beta, c.data(), ldc);
}
#endif

template <class T, class C>
void one_gemm([[maybe_unused]] const Exec& exec, bool turn_a, bool turn_b,
              const ProductExtents& extents, compute_t<T> alpha, View<const T**> a,
              View<const T**> b, compute_t<T> beta, View<C**> c) {
#if OSTRAKON_PRODUCTS_ON_DEVICE
  plain_gemm<T, C>(exec, turn_a, turn_b, extents, alpha, a, b, beta, c);
#else
  const Strides a_strides{turn_a ? 1 : a.stride(), turn_a ? a.stride() : 1};
  const Strides b_strides{turn_b ? 1 : b.stride(), turn_b ? b.stride() : 1};
  if constexpr (!std::is_same<T, double>::value) {
    const OrderedProduct product{extents.m, extents.n,  extents.k, a_strides,
                                 b_strides, c.stride(), alpha,     beta};
    if constexpr (std::is_same<T, bf16>::value)
      if (half_products<T>() == HalfProducts::amx)
        return amx_gemm(product, a.data(), b.data(), c.data());
#if defined(OSTRAKON_GEMM_ONEDNN)
    if constexpr (is_16bit<T>) {
      using onednn::format_of;
      if (half_products<T>() == HalfProducts::onednn &&
          onednn::multiply({format_of<T>, format_of<C>, extents.m, extents.n, extents.k, a_strides,
                            b_strides, c.stride(), alpha, beta},
                           a.data(), b.data(), c.data()))
        return;
    }
#endif
    ordered_gemm(product, a.data(), b.data(), c.data());
  } else {
#if defined(OSTRAKON_GEMM_CBLAS)
    cblas_gemm(turn_a, turn_b, extents, alpha, a, b, beta, c);
#else
    plain_gemm<T, C>(exec, turn_a, turn_b, extents, alpha, a, b, beta, c);
#endif
  }
#endif
}

/// Returns a number that distinguishes products for which a device's library may choose different
/// kernels: by sizes, and by the distances of rows and of matrices in a batch, which determine
/// alignment.
template <class T, class C>
[[maybe_unused]] std::uint64_t variant_of(bool turn_a, bool turn_b, const ProductExtents& extents,
                                          const Batch<const T>& a, const Batch<const T>& b,
                                          const Batch<C>& c, Varies varies) {
  std::uint64_t variant = (turn_a ? 2U : 0U) + (turn_b ? 1U : 0U);
  for (const std::int64_t one :
       {varies == Varies::rows ? 0 : extents.m, extents.n, varies == Varies::terms ? 0 : extents.k,
        c.count(), a.first().stride(), b.first().stride(), c.first().stride(), a.stride(),
        b.stride(), c.stride()})
    variant = mix_bits(variant + static_cast<std::uint64_t>(one));
  return variant;
}

template <class T, class C>
void library_gemm(const Exec& exec, bool turn_a, bool turn_b, const ProductExtents& extents,
                  compute_t<T> alpha, const Batch<const T>& a, const Batch<const T>& b,
                  compute_t<T> beta, const Batch<C>& c, Varies varies) {
  // On the fake device the host's products run as kernels.
  launch(
      exec, product_name(turn_a, turn_b),
      [=](const KernelSpace&) {
        for (std::int64_t i = 0; i < c.count(); ++i)
          one_gemm<T, C>(exec, turn_a, turn_b, extents, alpha, matrix_of(a, i), matrix_of(b, i),
                         beta, matrix_of(c, i));
      },
      variant_of(turn_a, turn_b, extents, a, b, c, varies));
}

#endif

}  // namespace

namespace {

template <class T, class C>
void multiply(const Exec& exec, Transpose transpose_a, Transpose transpose_b, compute_t<T> alpha,
              const Batch<const T>& a, const Batch<const T>& b, compute_t<T> beta,
              const Batch<C>& c, Varies varies) {
  const ProductExtents extents =
      checked_extents<T, C>(transpose_a, transpose_b, a.first(), b.first(), c.first());
  require(a.count() == c.count() && b.count() == c.count(), "gemm: batches of ", a.count(), ", ",
          b.count(), " and ", c.count(), " matrices, expected equally many");
  if (extents.m == 0 || extents.n == 0) return;
  if (extents.k == 0) {  // BLAS libraries differ for k = 0
    for (std::int64_t i = 0; i < c.count(); ++i) scale(exec, beta, matrix_of(c, i));
    return;
  }
  library_gemm<T, C>(exec, transpose_a == Transpose::yes, transpose_b == Transpose::yes, extents,
                     alpha, a, b, beta, c, varies);
}

}  // namespace

template <class T, class C>
void gemm_batched(const Exec& exec, Transpose transpose_a, Transpose transpose_b,
                  compute_t<T> alpha, const Batch<const T>& a, const Batch<const T>& b,
                  compute_t<T> beta, const Batch<C>& c) {
  multiply<T, C>(exec, transpose_a, transpose_b, alpha, a, b, beta, c, Varies::nothing);
}

template <class T, class C>
void gemm(const Exec& exec, Transpose transpose_a, Transpose transpose_b, compute_t<T> alpha,
          View<const T**> a, View<const T**> b, compute_t<T> beta, View<C**> c) {
  gemm_batched<T, C>(exec, transpose_a, transpose_b, alpha, Batch<const T>(a), Batch<const T>(b),
                     beta, Batch<C>(c));
}

template <class T>
void gemm_plus(const Exec& exec, Transpose transpose_a, Transpose transpose_b, View<const T**> a,
               View<const T**> b, const Addends<T>& addends, View<T**> c) {
  const auto& [onto, bias] = addends;
  require(!onto || (onto.rows() == c.rows() && onto.columns() == c.columns()),
          "gemm: the product (", c.rows(), ", ", c.columns(), ") is added to (", onto.rows(), ", ",
          onto.columns(), "), expected one shape");
  require(!bias || bias.size() == c.columns(), "gemm: a bias of ", bias.size(), " for ",
          c.columns(), " columns");
  if (onto) copy<T>(exec, onto.flat(), c.flat());
  gemm<T>(exec, transpose_a, transpose_b, 1, a, b, onto ? 1 : 0, c);
  if (bias) add_bias<T>(exec, c, bias);
}

namespace {

/// Rows of C that are summed over pieces at a time: about 2^22 elements, 16 MiB of float.
std::int64_t rows_by_piece(std::int64_t m, std::int64_t n) {
  constexpr std::int64_t elements = std::int64_t{1} << 22;
  constexpr std::int64_t granule = 64;
  const std::int64_t fitting = elements / std::max<std::int64_t>(1, n) / granule * granule;
  return std::min(m, std::max(granule, fitting));
}

/// One piece needs no memory besides C, so a device multiplies all rows in one launch.
std::int64_t rows_at_once(std::int64_t m, std::int64_t n, std::int64_t pieces) {
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
  return std::is_same<T, float>::value && !products_on_device && terms <= product_chunk;
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
  const std::int64_t most_rows = rows_at_once(c.rows(), n, pieces);
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
    multiply<T, compute_t<T>>(
        exec, Transpose::yes, Transpose::no, 1, Batch<const T>(a.row_range(first, next)),
        Batch<const T>(b.row_range(first, next)), beta, Batch<compute_t<T>>(c), Varies::terms);
    beta = 1;
    first = next;
  } while (first < last);
}

}  // namespace

template <class T>
void gemm_by_piece(const Exec& exec, View<const T**> a, View<const T**> b, View<compute_t<T>**> c,
                   std::int64_t pieces, View<compute_t<T>*> workspace) {
  using C = compute_t<T>;
  require(pieces >= 1 && a.rows() % pieces == 0, "gemm: ", a.rows(), " terms in ", pieces,
          " pieces, expected a multiple");
  const std::int64_t terms = a.rows() / pieces;
  sum_runs<T>(exec, c, pieces, terms, workspace,
              [&](std::int64_t piece, std::int64_t begin, std::int64_t end, C beta, View<C**> to) {
                const auto rows = [&](const View<const T**>& x) {
                  return x.row_range(piece * terms, (piece + 1) * terms);
                };
                gemm<T, C>(exec, Transpose::yes, Transpose::no, 1, rows(a).column_range(begin, end),
                           rows(b), beta, to);
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
  const std::int64_t most_rows = rows_at_once(c.rows(), c.columns(), 1);
  for (std::int64_t begin = 0; begin < c.rows(); begin += most_rows) {
    const std::int64_t end = std::min(c.rows(), begin + most_rows);
    multiply_run<T>(exec, a.column_range(begin, end), b, beta, c.row_range(begin, end));
  }
}

template <class T>
void gemm_by_row(const Exec& exec, Transpose transpose_b, View<const T**> a, View<const T**> b,
                 View<T**> c, View<T*> workspace, std::int64_t at_once) {
  if (at_once == 0 || is_partition_invariant<T>())
    return multiply<T, T>(exec, Transpose::no, transpose_b, 1, Batch<const T>(a), Batch<const T>(b),
                          0, Batch<T>(c), Varies::rows);
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

void warm_up_products() {
#if defined(OSTRAKON_GEMM_CUBLAS)
  Cublas::one();
#endif
}

#define OSTRAKON_INSTANTIATE(T, C)                                                             \
  template void gemm<T, C>(const Exec&, Transpose, Transpose, compute_t<T>, View<const T**>,   \
                           View<const T**>, compute_t<T>, View<C**>);                          \
  template void gemm_batched<T, C>(const Exec&, Transpose, Transpose, compute_t<T>,            \
                                   const Batch<const T>&, const Batch<const T>&, compute_t<T>, \
                                   const Batch<C>&);
OSTRAKON_INSTANTIATE(float, float)
OSTRAKON_INSTANTIATE(double, double)
OSTRAKON_INSTANTIATE(bf16, bf16)
OSTRAKON_INSTANTIATE(bf16, float)
OSTRAKON_INSTANTIATE(fp16, fp16)
OSTRAKON_INSTANTIATE(fp16, float)
#undef OSTRAKON_INSTANTIATE

template void add_matrix<float>(const Exec&, View<const float**>, View<float**>);
template void add_matrix<double>(const Exec&, View<const double**>, View<double**>);

#define OSTRAKON_INSTANTIATE(T)                                                                   \
  template void gemm_plus<T>(const Exec&, Transpose, Transpose, View<const T**>, View<const T**>, \
                             const Addends<T>&, View<T**>);                                       \
  template bool adds_as_a_whole<T>(std::int64_t);                                                 \
  template void gemm_by_piece<T>(const Exec&, View<const T**>, View<const T**>,                   \
                                 View<compute_t<T>**>, std::int64_t, View<compute_t<T>*>);        \
  template void gemm_by_run<T>(const Exec&, View<const T**>, View<const T**>,                     \
                               View<compute_t<T>**>, HostView<const std::int64_t*>,               \
                               View<compute_t<T>*>);                                              \
  template void gemm_of_run<T>(const Exec&, View<const T**>, View<const T**>, compute_t<T>,       \
                               View<compute_t<T>**>);                                             \
  template void gemm_by_row<T>(const Exec&, Transpose, View<const T**>, View<const T**>,          \
                               View<T**>, View<T*>, std::int64_t);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
