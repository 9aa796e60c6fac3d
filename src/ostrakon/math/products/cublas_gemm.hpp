// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products by cuBLAS, for gemm.cpp alone.

#include <cublas_v2.h>

#include <limits>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/device/memory.hpp>
#include <ostrakon/math/products/cublaslt_product.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/product_parts.hpp>
#include <type_traits>

namespace ostrakon::math {
namespace {

void check_cublas(cublasStatus_t status, const char* call) {
  require(status == CUBLAS_STATUS_SUCCESS, call, " failed: cuBLAS status ",
          static_cast<int>(status));
}

/// The process's handle, with one workspace: otherwise the library allocates one for each stream,
/// at its first product there. Products on concurrent streams would share the workspace, so one
/// stream multiplies.
class Cublas {
 public:
  static Cublas& one() {
    static std::unique_ptr<Cublas> all;
    if (!all) {
      all.reset(new Cublas);
      Kokkos::push_finalize_hook([] { all.reset(); });  // before CUDA ends
    }
    return *all;
  }
  ~Cublas() { cublasDestroy(handle_); }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  cublasHandle_t on(cudaStream_t stream) {
    if (!has_stream_ || stream != stream_) {
      check_cublas(cublasSetStream(handle_, stream), "cublasSetStream");
      check_cublas(cublasSetWorkspace(handle_, workspace_.data(), workspace_bytes),
                   "cublasSetWorkspace");  // must be set again after each change of stream
      stream_ = stream;
      has_stream_ = true;
    }
    return handle_;
  }

  /// Multiplies by cuBLASLt, in the same workspace.
  void multiply(const CublasLtProduct& product, const void* alpha, const void* a, const void* b,
                const void* beta, void* c, cudaStream_t stream) {
    multiply_by_one_algorithm(product, alpha, a, b, beta, c, workspace_.data(), workspace_bytes,
                              stream);
  }

 private:
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;  // as cuBLAS advises

  Cublas() : workspace_(static_cast<std::int64_t>(workspace_bytes)) {
    check_cublas(cublasCreate(&handle_), "cublasCreate");
    // Partial sums must stay in float: 16-bit reductions are disallowed.
    check_cublas(cublasSetMathMode(handle_, static_cast<cublasMath_t>(
                                                CUBLAS_DEFAULT_MATH |
                                                CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
                 "cublasSetMathMode");
  }

  device::DeviceBytes workspace_;
  cublasHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  bool has_stream_ = false;
};

template <class T>
constexpr cudaDataType_t cuda_type = std::is_same<T, bf16>::value     ? CUDA_R_16BF
                                     : std::is_same<T, fp16>::value   ? CUDA_R_16F
                                     : std::is_same<T, double>::value ? CUDA_R_64F
                                                                      : CUDA_R_32F;

// cuBLAS is column-major, so it computes C^T = op(B)^T op(A)^T: operands and sizes are exchanged.
template <class T, class C>
void library_gemm(const Exec& exec, bool turn_a, bool turn_b, const ProductExtents& whole,
                  compute_t<T> alpha, const Batch<const T>& all_a, const Batch<const T>& all_b,
                  compute_t<T> whole_beta, const Batch<C>& all_c, Varies varies) {
  const View<const T**> a = all_a.first();
  const View<const T**> b = all_b.first();
  const View<C**> c = all_c.first();
  const auto operation_a = turn_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const auto operation_b = turn_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int lda = blas_int(a.stride(), "the row stride of A");
  const int ldb = blas_int(b.stride(), "the row stride of B");
  const int ldc = blas_int(c.stride(), "the row stride of C");
  const int batches = blas_int(all_c.count(), "the number of products");
  if (varies != Varies::nothing) {
    if (LaunchCount::takes_one(product_name(turn_a, turn_b))) return;
    const CublasLtProduct product = {turn_a,
                                     turn_b,
                                     whole.m,
                                     whole.n,
                                     whole.k,
                                     lda,
                                     ldb,
                                     ldc,
                                     cuda_type<T>,
                                     cuda_type<C>,
                                     varies == Varies::rows,
                                     varies == Varies::terms};
    return Cublas::one().multiply(product, &alpha, a.data(), b.data(), &whole_beta, c.data(),
                                  exec.cuda_stream());
  }
  const auto multiply = [&](const ProductPart<T, C>& part, compute_t<T> beta) {
    const int m = blas_int(part.extents.m, "the number of rows");
    const int n = blas_int(part.extents.n, "the number of columns");
    const int k = blas_int(part.extents.k, "the number of terms");
    if (LaunchCount::takes_one(product_name(turn_a, turn_b))) return;
    const cublasHandle_t handle = Cublas::one().on(exec.cuda_stream());
    if constexpr (std::is_same<T, float>::value) {
      check_cublas(
          cublasSgemmStridedBatched(handle, operation_b, operation_a, n, m, k, &alpha, part.b, ldb,
                                    all_b.stride(), part.a, lda, all_a.stride(), &beta, part.c, ldc,
                                    all_c.stride(), batches),
          "cublasSgemmStridedBatched");
    } else if constexpr (is_16bit<T>) {
      check_cublas(cublasGemmStridedBatchedEx(handle, operation_b, operation_a, n, m, k, &alpha,
                                              part.b, cuda_type<T>, ldb, all_b.stride(), part.a,
                                              cuda_type<T>, lda, all_a.stride(), &beta, part.c,
                                              cuda_type<C>, ldc, all_c.stride(), batches,
                                              CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                   "cublasGemmStridedBatchedEx");
    } else {
      check_cublas(
          cublasDgemmStridedBatched(handle, operation_b, operation_a, n, m, k, &alpha, part.b, ldb,
                                    all_b.stride(), part.a, lda, all_a.stride(), &beta, part.c, ldc,
                                    all_c.stride(), batches),
          "cublasDgemmStridedBatched");
    }
  };
  // Smaller products lose more by another launch than they gain; other types gain nothing.
  constexpr std::int64_t worth_it =
      is_16bit<T> ? std::int64_t{1} << 27 : std::numeric_limits<std::int64_t>::max();
  multiply_in_parts(ProductPart<T, C>{a.data(), b.data(), c.data(), whole},
                    ProductLayout{turn_a, turn_b, lda, ldb, ldc}, whole_beta, worth_it, multiply);
}

}  // namespace
}  // namespace ostrakon::math
