// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/facts.hpp>
#include <ostrakon/config/settings.hpp>

namespace ostrakon::train {

/// What determines the bits that kernels compute on this rank: the build, Kokkos, what
/// multiplies matrices and on how many threads, and the digest of some products in the dtypes that
/// the settings use. Where all of it is equal, a leaf gives the same bits on each
/// rank. Milliseconds; on the memory of the host, or the device, for that long.
Facts kernel_facts(const config::Settings& settings, int matrix_threads);

}  // namespace ostrakon::train
