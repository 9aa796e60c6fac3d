// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/products/gemm.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/products/amx_gemm.hpp>
#include <ostrakon/math/products/onednn_matmul.hpp>
#include <ostrakon/math/products/ordered_gemm.hpp>
#include <ostrakon/math/products/pinned_products.hpp>
#include <ostrakon/math/products/product_parts.hpp>
#include <ostrakon/math/products/varying_gemm.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>
#include <ostrakon/math/work_items.hpp>
#include <string>
#include <type_traits>
#include <utility>

#if OSTRAKON_PINS_PRODUCTS
#include <ostrakon/math/products/pinned_gemm.hpp>
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

#endif

#if defined(OSTRAKON_FAKE_DEVICE)
/// Inside a kernel of the fake device products are computed at once.
template <class T>
bool is_pinned_here() {
  return fake_in_kernel() == 0;
}
#elif OSTRAKON_PINS_PRODUCTS
template <class T>
constexpr bool is_pinned_here() {
  return pins_products_of<T>;
}
#endif

template <class T, class C>
void library_gemm(const Exec& exec, bool turn_a, bool turn_b, const ProductExtents& extents,
                  compute_t<T> alpha, const Batch<const T>& a, const Batch<const T>& b,
                  compute_t<T> beta, const Batch<C>& c, [[maybe_unused]] Varies varies) {
#if OSTRAKON_PINS_PRODUCTS
  if (is_pinned_here<T>())
    return pinned_gemm<T, C>(exec, turn_a, turn_b, extents, alpha, a, b, beta, c, varies);
#endif
#if !defined(OSTRAKON_GEMM_CUBLAS)
  launch(exec, product_name(turn_a, turn_b), [=](const KernelSpace&) {
    for (std::int64_t i = 0; i < c.count(); ++i)
      one_gemm<T, C>(exec, turn_a, turn_b, extents, alpha, matrix_of(a, i), matrix_of(b, i), beta,
                     matrix_of(c, i));
  });
#endif
}

}  // namespace

template <class T, class C>
void gemm_varying(const Exec& exec, Transpose transpose_a, Transpose transpose_b,
                  compute_t<T> alpha, const Batch<const T>& a, const Batch<const T>& b,
                  compute_t<T> beta, const Batch<C>& c, Varies varies) {
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

template <class T, class C>
void gemm_batched(const Exec& exec, Transpose transpose_a, Transpose transpose_b,
                  compute_t<T> alpha, const Batch<const T>& a, const Batch<const T>& b,
                  compute_t<T> beta, const Batch<C>& c) {
  gemm_varying<T, C>(exec, transpose_a, transpose_b, alpha, a, b, beta, c, Varies::nothing);
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
#if OSTRAKON_PINS_PRODUCTS
  const bool turn_a = transpose_a == Transpose::yes, turn_b = transpose_b == Transpose::yes;
  const ProductExtents extents = checked_extents<T, T>(transpose_a, transpose_b, a, b, c);
  if (is_pinned_here<T>() && adds_in_product<T>(extents) && extents.m * extents.n * extents.k > 0) {
    DeviceProduct product = product_of<T, T>(turn_a, turn_b, extents, Batch<const T>(a),
                                             Batch<const T>(b), Batch<T>(c), Varies::nothing);
    product.has_bias = static_cast<bool>(bias);
    return multiply_pinned(exec, product,
                           {a.data(), b.data(), onto ? onto.data() : c.data(), c.data(),
                            bias.data(), 1.0, onto ? 1.0 : 0.0});
  }
#else
  // What is counted here is what a device launches.
  if (on_device && !has_device &&
      LaunchCount::takes_one(
          product_name(transpose_a == Transpose::yes, transpose_b == Transpose::yes)))
    return;
#endif
  if (onto) copy<T>(exec, onto.flat(), c.flat());
  gemm<T>(exec, transpose_a, transpose_b, 1, a, b, onto ? 1 : 0, c);
  if (bias) add_bias<T>(exec, c, bias);
}

void warm_up_products() {
#if OSTRAKON_PINS_PRODUCTS
  product_library();
#endif
}

#define OSTRAKON_INSTANTIATE(T, C)                                                             \
  template void gemm<T, C>(const Exec&, Transpose, Transpose, compute_t<T>, View<const T**>,   \
                           View<const T**>, compute_t<T>, View<C**>);                          \
  template void gemm_batched<T, C>(const Exec&, Transpose, Transpose, compute_t<T>,            \
                                   const Batch<const T>&, const Batch<const T>&, compute_t<T>, \
                                   const Batch<C>&);                                           \
  template void gemm_varying<T, C>(const Exec&, Transpose, Transpose, compute_t<T>,            \
                                   const Batch<const T>&, const Batch<const T>&, compute_t<T>, \
                                   const Batch<C>&, Varies);
OSTRAKON_FOR_ALL_SUMS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

#define OSTRAKON_INSTANTIATE(T)                                                                   \
  template void gemm_plus<T>(const Exec&, Transpose, Transpose, View<const T**>, View<const T**>, \
                             const Addends<T>&, View<T**>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
