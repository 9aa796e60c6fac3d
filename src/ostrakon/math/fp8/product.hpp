// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of operands in 8 bits. With fp8 an operand's numbers that are summed together have one
// scale: a row of op(A), a column of op(B). With mxfp8 32 of them have one, those whose indices
// differ only below the multiples of 32. So a row of C depends on the same row of op(A) alone, and
// a column on the same column of op(B).
//
// On CUDA cuBLASLt multiplies the codes. Elsewhere operands are rounded, multiplied by their
// scales, which is exact, and multiplied by gemm(): a sum of such products is that of the codes
// times both scales, as these are powers of two.

#include <ostrakon/math/fp8/formats.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <string>

namespace ostrakon::math {

/// How a product's operands are rounded.
struct Fp8Formats {
  Fp8Format a = Fp8Format::e4m3, b = Fp8Format::e4m3;
  ProductDType dtype = ProductDType::fp8;  ///< or mxfp8
};

/// The form whose products this process computes: kernels in the device form may run on a host.
constexpr KernelForm product_form = products_on_device ? kernel_form : KernelForm::host;

/// Whether a form's products take codes rather than rounded operands.
bool multiplies_codes(KernelForm form);
/// Numbers of a sum, of which its length has to be a multiple: 32 with mxfp8, else 1.
std::int64_t numbers_of_scale(ProductDType dtype);
/// Why this process can't multiply in 8 bits, as a part of a sentence; empty where it can.
std::string why_no_fp8(ProductDType dtype);
/// How fp8 or mxfp8 is multiplied here: "cuBLASLt", or "as bf16, rounded to 8 bits".
std::string fp8_kernel(DType stored);

/// Bytes of workspace of fp8_gemm() for op(A) (m, k) and op(B) (k, n), aligned to 16.
template <class T>
std::int64_t fp8_gemm_workspace(ProductDType dtype, std::int64_t m, std::int64_t n, std::int64_t k,
                                KernelForm form = product_form);

/// C = op(A) op(B) + onto, in 8 bits, rounded as gemm() rounds. A row of C has the same bits for
/// any m. `onto`: null, C, or a matrix of its shape that does not overlap it. On CUDA m, n, and the
/// distance of C's rows have to be multiples of 16, and k of numbers_of_scale(). Throws Error if
/// they are not.
template <class T, class C = T>
void fp8_gemm(const Exec& exec, Fp8Formats formats, Transpose transpose_a, Transpose transpose_b,
              View<const T**> a, View<const T**> b, View<const C**> onto, View<C**> c,
              View<std::byte*> workspace);

template <class T>
std::int64_t fp8_gemm_by_piece_workspace(ProductDType dtype, std::int64_t m, std::int64_t n,
                                         std::int64_t k, std::int64_t pieces,
                                         KernelForm form = product_form);

/// C = A^T B as gemm_by_piece(), in 8 bits: each piece, a run of rows of A (k, m) and B (k, n), has
/// scales, or blocks, of its own.
template <class T>
void fp8_gemm_by_piece(const Exec& exec, Fp8Formats formats, View<const T**> a, View<const T**> b,
                       View<compute_t<T>**> c, std::int64_t pieces, View<std::byte*> workspace);

}  // namespace ostrakon::math
