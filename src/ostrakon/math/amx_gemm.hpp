// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of bf16 matrices on the host by AMX, the matrix units of Intel's processors since 2023,
// whose bits depend on nothing but the factors.

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/ordered_gemm.hpp>

namespace ostrakon::math {

/// Whether this processor has AMX for bf16, and AVX-512 to pack for it, and the system lets this
/// process use it, which the first call asks for. False where this was not compiled for x86-64.
bool has_amx();

/// Bytes that a thread keeps for these products.
std::int64_t amx_gemm_room();

/// C = alpha A B + beta C, each element of C by itself. Its sum S begins with zero, or with what C
/// has where C is float and alpha and beta are 1. For 32 terms after the other, S += E + O, where E
/// and O are the chains of fused multiply-adds over those with even and with odd index, from zero
/// on. Then C = S, or alpha S, or fma(alpha, S, beta C), rounded once. AMX rounds to nearest, and
/// takes and gives subnormal numbers as zero.
///
/// So any rows and columns of a product have its bits when they are computed alone, with every
/// number of threads; and products that are added to a C of float one after the other have the bits
/// of one over all terms, if all but the last have a multiple of 32. On as many OpenMP threads as
/// omp_get_max_threads() says. Only where has_amx().
void amx_gemm(const OrderedProduct& product, const bf16* a, const bf16* b, float* c);
void amx_gemm(const OrderedProduct& product, const bf16* a, const bf16* b, bf16* c);

}  // namespace ostrakon::math
