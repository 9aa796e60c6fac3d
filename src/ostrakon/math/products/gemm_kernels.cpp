// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/attention_tiles.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/math/products/amx_gemm.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/onednn_matmul.hpp>
#include <ostrakon/math/products/ordered_gemm.hpp>
#include <ostrakon/math/products/product_parts.hpp>
#include <string>
#include <type_traits>
#if defined(OSTRAKON_GEMM_CBLAS) && defined(OSTRAKON_HAVE_OPENBLAS)
#include <cblas.h>
#endif
#if defined(_OPENMP)
#include <omp.h>
#endif

// This file chooses the kernels that multiply, and their number of threads.

namespace ostrakon::math {

const char* gemm_kernel() {
#if defined(OSTRAKON_GEMM_CUBLAS)
  return "cuBLASLt";
#elif OSTRAKON_PRODUCTS_ON_DEVICE && defined(OSTRAKON_HAVE_HIPBLASLT)
  return "hipBLASLt";
#elif OSTRAKON_PRODUCTS_ON_DEVICE
  return "a plain kernel, slow";
#else
  return ordered_gemm_kernel();
#endif
}

template <class T>
bool is_partition_invariant() {
  // By one algorithm, or by the plain kernel, where each element of C is a sum of its own.
  if (products_on_device) return true;
  if (std::is_same<T, double>::value) return false;
  if constexpr (is_16bit<T>) return half_products<T>() != HalfProducts::onednn;
  return true;
}

template <class T>
HalfProducts half_products() {
  if (std::is_same<T, bf16>::value && has_amx()) return HalfProducts::amx;
#if defined(OSTRAKON_GEMM_ONEDNN)
  if (onednn::multiplies(onednn::format_of<T>)) return HalfProducts::onednn;
#endif
  return HalfProducts::in_float;
}

const char* gemm_kernel_16bit(DType dtype) {
  if (products_on_device) return gemm_kernel();
  switch (dtype == DType::bf16 ? half_products<bf16>() : half_products<fp16>()) {
    case HalfProducts::amx:
      return "AMX";
    case HalfProducts::onednn:
      return "oneDNN";
    case HalfProducts::in_float:
      break;
  }
  return "in float";
}

const char* gemm_kernel_16bit() {
  static const std::string both = [] {
    const std::string of_bf16 = gemm_kernel_16bit(DType::bf16);
    const std::string of_fp16 = gemm_kernel_16bit(DType::fp16);
    return of_bf16 == of_fp16 ? of_bf16 : text(of_bf16, " (bf16), ", of_fp16, " (fp16)");
  }();
  return both.c_str();
}

std::int64_t thread_scratch_bytes() {
#if OSTRAKON_ON_DEVICE
  return 0;
#else
  return attention_room_bytes() + ordered_gemm_room() + (has_amx() ? amx_gemm_room() : 0);
#endif
}

int kernel_threads() {
#if defined(_OPENMP)
  return std::max(host_threads(), omp_get_max_threads());
#else
  return host_threads();
#endif
}

void set_gemm_threads(int threads) {
  require(threads >= 1, "gemm: ", threads, " threads, expected at least 1");
#if defined(_OPENMP)
  omp_set_num_threads(threads);
#endif
#if defined(OSTRAKON_GEMM_CBLAS) && defined(OSTRAKON_HAVE_OPENBLAS)
  openblas_set_num_threads(threads);
#endif
}

template bool is_partition_invariant<float>();
template bool is_partition_invariant<double>();
template bool is_partition_invariant<bf16>();
template bool is_partition_invariant<fp16>();

template HalfProducts half_products<bf16>();
template HalfProducts half_products<fp16>();

}  // namespace ostrakon::math
