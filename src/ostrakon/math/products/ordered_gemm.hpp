// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of matrices on the host, computed in float, whose bits depend only on the factors.

#include <cstdint>

namespace ostrakon::math {

/// Terms that are summed before they are added to C.
constexpr std::int64_t product_chunk = 256;

/// Element (i, j) is at row * i + column * j.
struct Strides {
  std::int64_t row, column;
};

/// C = alpha A B + beta C for A (m, k), B (k, n) and C (m, n), with m, n and k at least 1. Rows of
/// C are c_row apart. With beta == 0, C is not read.
struct OrderedProduct {
  std::int64_t m, n, k;
  Strides a, b;
  std::int64_t c_row;
  float alpha, beta;
};

/// Computes each element of C independently: k is divided into chunks of product_chunk terms, and
/// the terms of a chunk are summed in order by fused multiply-adds, beginning with zero; then,
/// chunk by chunk, C = fma(alpha, sum of the chunk, beta C), with beta = 1 after the first. (If C
/// is not read, it is alpha * sum.) So rows and columns of a product have the same bits when they
/// are computed alone, with any number of threads and on every processor. Runs on
/// omp_get_max_threads() OpenMP threads.
///
/// T, C: float, float; or T bf16 or fp16, whose elements are converted to float when they are
/// packed, and C float or T, rounded once at the end.
template <class T, class C>
void ordered_gemm(const OrderedProduct& product, const T* a, const T* b, C* c);

/// Bytes of workspace per thread for these products.
std::int64_t ordered_gemm_room();

/// The kernel for this processor: "AVX-512", "AVX2" or "plain loops".
const char* ordered_gemm_kernel();

}  // namespace ostrakon::math
