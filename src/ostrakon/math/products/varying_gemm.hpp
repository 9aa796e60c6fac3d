// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products with an extent that depends on data, for gemm_sums.cpp.

#include <ostrakon/math/products/device_product.hpp>
#include <ostrakon/math/products/gemm.hpp>

namespace ostrakon::math {

/// Computes what gemm_batched does; on a device by one algorithm for all values of the extent that
/// varies.
template <class T, class C>
void gemm_varying(const Exec& exec, Transpose transpose_a, Transpose transpose_b,
                  compute_t<T> alpha, const Batch<const T>& a, const Batch<const T>& b,
                  compute_t<T> beta, const Batch<C>& c, Varies varies);

}  // namespace ostrakon::math
