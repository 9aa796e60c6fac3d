// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs a product on OpenMP threads, if rows and columns of it have the same bits when they are
// computed alone.

#include <cstdint>
#include <ostrakon/math/products/ordered_gemm.hpp>
#if defined(_OPENMP)
#include <omp.h>
#endif

namespace ostrakon::math {

/// Calls multiply(part, a, b, c) for part `index` of `count` of the rows of C. Other kernels divide
/// rows in the same way, so that they stay in a thread's caches. Columns are divided instead if
/// there are many more of them, or too few rows for all threads.
template <class T, class C, class Multiply>
void multiply_part(const OrderedProduct& whole, const T* a, const T* b, C* c, std::int64_t index,
                   std::int64_t count, const Multiply& multiply) {
  constexpr std::int64_t granule = 32;  // columns; no cache line of C is shared
  const auto granules_of = [](std::int64_t all) { return (all + granule - 1) / granule; };
  const bool columns = whole.n > 4 * whole.m || (granules_of(whole.m) < count && whole.n > whole.m);
  const std::int64_t size = columns ? whole.n : whole.m;
  const std::int64_t granules = granules_of(size);
  const auto begin_of = [&](std::int64_t part) {
    const std::int64_t begin = granules * part / count * granule;
    return begin < size ? begin : size;
  };
  const std::int64_t begin = begin_of(index), length = begin_of(index + 1) - begin;
  if (length == 0) return;
  OrderedProduct part = whole;
  if (columns) {
    part.n = length;
    multiply(part, a, b + begin * whole.b.column, c + begin);
  } else {
    part.m = length;
    multiply(part, a + begin * whole.a.row, b, c + begin * whole.c_row);
  }
}

/// Calls multiply(part, a, b, c) for all parts, on omp_get_max_threads() threads.
template <class T, class C, class Multiply>
void multiply_on_threads(const OrderedProduct& product, const T* a, const T* b, C* c,
                         const Multiply& multiply) {
#if defined(_OPENMP)
  // With fewer multiplications per thread, starting the threads takes longer than the product.
  constexpr std::int64_t enough = std::int64_t{1} << 16;
  if (omp_get_max_threads() > 1 && product.m * product.n * product.k >= 2 * enough) {
#pragma omp parallel
    multiply_part(product, a, b, c, omp_get_thread_num(), omp_get_num_threads(), multiply);
    return;
  }
#endif
  multiply(product, a, b, c);
}

}  // namespace ostrakon::math
