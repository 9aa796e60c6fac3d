// SPDX-License-Identifier: Apache-2.0
#pragma once

// Loops over registers of a device's threads.

#include <ostrakon/math/portability.hpp>

namespace ostrakon::math {

/// Runs body(i) for i in [0, n), fully unrolled, as registers can't be indexed at run time.
template <int n, class Body>
KOKKOS_INLINE_FUNCTION void unrolled(const Body& body) {
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int i = 0; i < n; ++i) body(i);
}

/// Runs body(i) in a loop that is not unrolled, to save registers.
template <class Body>
KOKKOS_INLINE_FUNCTION void rolled(int n, const Body& body) {
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
  for (int i = 0; i < n; ++i) body(i);
}

}  // namespace ostrakon::math
