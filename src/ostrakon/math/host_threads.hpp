// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/portability.hpp>

namespace ostrakon {

/// Threads on which kernels of the host run in this process: with OpenMP what OMP_NUM_THREADS or a
/// flag of Kokkos says, with Serial 1.
inline int host_threads() { return Kokkos::DefaultHostExecutionSpace().concurrency(); }

}  // namespace ostrakon
