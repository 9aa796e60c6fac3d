// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/portability.hpp>

namespace ostrakon::math {

/// Makes Kokkos allocate what it needs for kernels on `exec`, so that these allocate nothing:
/// Kokkos for CUDA else allocates at each launch of teams, zero bytes of scratch memory.
void warm_up(const Exec& exec);

}  // namespace ostrakon::math
