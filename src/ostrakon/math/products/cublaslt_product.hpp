// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(OSTRAKON_HAVE_CUBLAS)

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

namespace ostrakon::math {

/// A product of row-major matrices on a CUDA device: C (m, n) = alpha op(A) op(B) + beta C.
struct CublasLtProduct {
  bool turn_a = false, turn_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;  ///< distance of rows in elements
  cudaDataType_t type_ab = CUDA_R_32F, type_c = CUDA_R_32F;
  bool varies_m = false, varies_k = false;  ///< the algorithm must not depend on m, or k
};

/// Multiplies with one algorithm for all products that differ only in the varying extents, so that
/// the first of them loads the kernel for all, and a row of C has the same bits for any number of
/// rows. Algorithms with split sums are not used. `alpha` and `beta` are float, or double if A and
/// B are. Not thread-safe. Throws Error if cuBLASLt fails.
void multiply_by_one_algorithm(const CublasLtProduct& product, const void* alpha, const void* a,
                               const void* b, const void* beta, void* c, void* workspace,
                               std::size_t workspace_bytes, cudaStream_t stream);

}  // namespace ostrakon::math

#endif
