// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

enum class Transpose { no, yes };

/// C = alpha op(A) op(B) + beta C. Shapes: op(A) (m, k), op(B) (k, n), C (m, n), all row-major.
/// With beta == 0, C is not read. The one seam to a BLAS: oneDNN (float), else CBLAS, else a plain
/// kernel on the host; cuBLAS on CUDA.
/// Instantiated for T = C = float or double, and for T = bf16 or fp16 with C = T or float, which
/// are multiplied and summed in float. Throws Error naming both shapes where they do not fit.
template <class T, class C = T>
void gemm(const Exec& exec, Transpose transpose_a, Transpose transpose_b, compute_t<T> alpha,
          View<const T**> a, View<const T**> b, compute_t<T> beta, View<C**> c);

/// `count` products as above; product i uses A + i * stride_a and so on (strides in elements):
/// a, b and c are the operands of the first.
template <class T, class C = T>
void gemm_batched(const Exec& exec, Transpose transpose_a, Transpose transpose_b,
                  compute_t<T> alpha, View<const T**> a, std::int64_t stride_a, View<const T**> b,
                  std::int64_t stride_b, compute_t<T> beta, View<C**> c, std::int64_t stride_c,
                  std::int64_t count);

/// Which library multiplies matrices of float here: "oneDNN", "CBLAS", "cuBLAS" or "Kokkos".
const char* gemm_library();

/// How 16-bit matrices are multiplied here: by which library, and whether it does so in float.
const char* gemm_library_16bit();

/// Threads of the library from now on, in products of the thread that calls this. The bits of a
/// product may depend on it, so all ranks set the same number: see train/threads.hpp.
void set_gemm_threads(int threads);

}  // namespace ostrakon::math
