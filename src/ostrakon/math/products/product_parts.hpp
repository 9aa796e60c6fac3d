// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/math/products/device_product.hpp>

// The libraries that multiply.
#if !OSTRAKON_PRODUCTS_ON_DEVICE && defined(OSTRAKON_HAVE_ONEDNN)
#define OSTRAKON_GEMM_ONEDNN
#endif
#if !OSTRAKON_PRODUCTS_ON_DEVICE && defined(OSTRAKON_HAVE_CBLAS)
#define OSTRAKON_GEMM_CBLAS
#endif
#if OSTRAKON_PRODUCTS_ON_DEVICE && defined(KOKKOS_ENABLE_CUDA) && defined(OSTRAKON_HAVE_CUBLAS)
#define OSTRAKON_GEMM_CUBLAS
#endif

namespace ostrakon::math {

/// Converts to the type of sizes in CBLAS and cuBLAS.
inline int blas_int(std::int64_t value, const char* what) {
  require(value <= std::numeric_limits<int>::max(), "gemm: ", what, " is ", value,
          ", but the BLAS counts with 32 bits, so at most ", std::numeric_limits<int>::max());
  return static_cast<int>(value);
}

/// The extents of op(A) (m, k), op(B) (k, n) and C (m, n).
struct ProductExtents {
  std::int64_t m, n, k;
};

/// Transposes of operands, and distances of their rows.
struct ProductLayout {
  bool turn_a, turn_b;
  std::int64_t lda, ldb, ldc;
};

/// A product, or a part of one: the addresses of its operands.
template <class T, class C>
struct ProductPart {
  const T* a;
  const T* b;
  C* c;
  ProductExtents extents;
};

/// Divides a product at sizes that are row lengths and not multiples of 8, such as a vocabulary of
/// 50257 words: in 16 bits cuBLAS takes six times as long for it, on an H100, as for the multiple
/// of 8 below, and the rest takes little time. Parts of fewer than `worth_it` multiplications for a
/// row of C are not divided: how many rows there are must not decide, as parts have other bits than
/// the whole. The rest of the terms comes first, so that its small sum is rounded to C, not the
/// large one. Calls multiply(part, beta).
template <class T, class C, class Scale, class Multiply>
void multiply_in_parts(const ProductPart<T, C>& part, const ProductLayout& layout, Scale beta,
                       std::int64_t worth_it, const Multiply& multiply) {
  constexpr std::int64_t multiple = 8;
  const ProductExtents& all = part.extents;
  const auto is_divided = [](std::int64_t size) { return size > multiple && size % multiple != 0; };
  if (all.n * all.k < worth_it) return multiply(part, beta);
  ProductPart<T, C> first = part, rest = part;
  if (is_divided(all.k) && (!layout.turn_a || layout.turn_b)) {
    first.extents.k = all.k / multiple * multiple;
    rest.extents.k = all.k - first.extents.k;
    rest.a += first.extents.k * (layout.turn_a ? layout.lda : 1);
    rest.b += first.extents.k * (layout.turn_b ? 1 : layout.ldb);
    multiply_in_parts(rest, layout, beta, worth_it, multiply);
    multiply_in_parts(first, layout, Scale(1), worth_it, multiply);
    return;
  }
  if (is_divided(all.n)) {
    first.extents.n = all.n / multiple * multiple;
    rest.extents.n = all.n - first.extents.n;
    rest.b += first.extents.n * (layout.turn_b ? layout.ldb : 1);
    rest.c += first.extents.n;
  } else if (is_divided(all.m) && layout.turn_a) {
    first.extents.m = all.m / multiple * multiple;
    rest.extents.m = all.m - first.extents.m;
    rest.a += first.extents.m;
    rest.c += first.extents.m * layout.ldc;
  } else {
    return multiply(part, beta);
  }
  multiply_in_parts(first, layout, beta, worth_it, multiply);
  multiply_in_parts(rest, layout, beta, worth_it, multiply);
}

}  // namespace ostrakon::math
