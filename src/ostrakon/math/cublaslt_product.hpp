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
  std::int64_t lda = 0, ldb = 0, ldc = 0;  ///< elements from row to row
  cudaDataType_t type_ab = CUDA_R_32F, type_c = CUDA_R_32F;
  bool varies_m = false, varies_k = false;  ///< the algorithm does not depend on it
};

/// Multiplies by an algorithm that all products have which differ in what varies alone, so that the
/// first of them loads the kernel for all; and a row of C has the same bits however many rows there
/// are. No algorithm with split sums is taken. `alpha` and `beta` are of float, of double where A
/// and B are. One thread at a time. Throws Error where cuBLASLt fails.
void multiply_by_one_algorithm(const CublasLtProduct& product, const void* alpha, const void* a,
                               const void* b, const void* beta, void* c, void* workspace,
                               std::size_t workspace_bytes, cudaStream_t stream);

}  // namespace ostrakon::math

#endif
