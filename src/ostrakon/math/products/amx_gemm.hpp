// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of bf16 matrices on the host by AMX, the matrix units of Intel's processors since 2023.
// Their bits depend only on the factors.

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/products/ordered_gemm.hpp>

namespace ostrakon::math {

/// Whether this processor has AMX for bf16, and AVX-512 for packing, and the system permits this
/// process to use them; the first call asks for permission. False if not compiled for x86-64.
bool has_amx();

/// Bytes of workspace per thread for these products.
std::int64_t amx_gemm_room();

/// C = alpha A B + beta C, each element of C independently. Its sum S begins with zero, or with C
/// if C is float and alpha and beta are 1. Every 32 terms, S += E + O, where E and O are the chains
/// of fused multiply-adds over those terms with even and with odd index, starting from zero. Then C
/// = S, or alpha S, or fma(alpha, S, beta C), rounded once. AMX rounds to nearest, and flushes
/// subnormal numbers to zero.
///
/// So rows and columns of a product have the same bits when they are computed alone, with any
/// number of threads. Products that are added to a C of float one after the other have the bits of
/// one product over all terms, if all but the last have a multiple of 32 terms. Runs on
/// omp_get_max_threads() OpenMP threads. Requires has_amx().
void amx_gemm(const OrderedProduct& product, const bf16* a, const bf16* b, float* c);
void amx_gemm(const OrderedProduct& product, const bf16* a, const bf16* b, bf16* c);

}  // namespace ostrakon::math
