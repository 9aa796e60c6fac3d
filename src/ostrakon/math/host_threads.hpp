// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/portability.hpp>

namespace ostrakon {

/// Number of threads that kernels of the host use in this process: with OpenMP from OMP_NUM_THREADS
/// or a flag of Kokkos, with Serial 1.
inline int host_threads() { return Kokkos::DefaultHostExecutionSpace().concurrency(); }

}  // namespace ostrakon
