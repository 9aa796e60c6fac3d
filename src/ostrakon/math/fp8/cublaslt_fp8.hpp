// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products in 8 bits by cuBLASLt, for product.cpp alone.

#include <ostrakon/math/fp8/blocks.hpp>
#include <ostrakon/math/view.hpp>
#include <string>

#if OSTRAKON_PRODUCTS_ON_DEVICE && defined(KOKKOS_ENABLE_CUDA) && defined(OSTRAKON_HAVE_CUBLAS)
#define OSTRAKON_FP8_CUBLASLT 1
#else
#define OSTRAKON_FP8_CUBLASLT 0
#endif

namespace ostrakon::math::cublaslt {

/// Codes of a row begin at multiples of it, and rows and columns of products are multiples of it.
constexpr std::int64_t fp8_granule = 16;

/// Rows of an operand.
struct Fp8Operand {
  ProductDType dtype;  ///< fp8 or mxfp8
  Fp8Format format;
  View<std::uint8_t**> codes;
  View<float*> scales;  ///< fp8: of each row
  /// mxfp8: of the rows' blocks, as MxRows has them; fp8: memory for these, where the device takes
  /// scales of blocks alone.
  View<std::uint8_t*> block_scales;
};

/// C (m, n) = A B^T + onto, for A (m, k) and B (n, k); `onto` is null, C, or laid out as C.
/// One algorithm multiplies all products that differ in m alone, without split sums, in
/// ProductWorkspace::current(). C: float, bf16 or fp16. Not thread-safe. Throws Error if cuBLASLt
/// has no such product; without cuBLASLt products are only counted (LaunchCount).
template <class C>
void multiply(const Exec& exec, const Fp8Operand& a, const Fp8Operand& b, View<const C**> onto,
              View<C**> c);

#if OSTRAKON_FP8_CUBLASLT
std::string why_no_fp8(ProductDType dtype);
#endif

}  // namespace ostrakon::math::cublaslt
