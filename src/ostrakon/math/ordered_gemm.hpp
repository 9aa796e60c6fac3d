// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of matrices on the host, computed in float, whose bits depend on nothing but the
// factors.

#include <cstdint>

namespace ostrakon::math {

/// Terms that are summed before they are added to C.
constexpr std::int64_t product_chunk = 256;

/// Element (i, j) is at row * i + column * j.
struct Strides {
  std::int64_t row, column;
};

/// C = alpha A B + beta C for A (m, k), B (k, n) and C (m, n), all at least 1 long. Rows of C are
/// c_row apart. With beta == 0, C is not read.
struct OrderedProduct {
  std::int64_t m, n, k;
  Strides a, b;
  std::int64_t c_row;
  float alpha, beta;
};

/// Each element of C by itself: k in chunks of product_chunk terms, the terms of a chunk summed one
/// after the other by fused multiply-adds, beginning with zero; then, chunk after chunk,
/// C = fma(alpha, sum of the chunk, beta C), with beta = 1 after the first. So any rows and columns
/// of a product have its bits when they are computed alone, with every number of threads and on
/// every processor. (alpha * sum, not fma, where C is not read.) On as many OpenMP threads as
/// omp_get_max_threads() says.
///
/// T, C: float, float; or T bf16 or fp16, whose elements are converted to float as they are packed,
/// and C float or T, rounded once at the end.
template <class T, class C>
void ordered_gemm(const OrderedProduct& product, const T* a, const T* b, C* c);

/// Bytes that a thread keeps for these products.
std::int64_t ordered_gemm_room();

/// The kernel for this processor: "AVX-512", "AVX2" or "plain loops".
const char* ordered_gemm_kernel();

}  // namespace ostrakon::math
