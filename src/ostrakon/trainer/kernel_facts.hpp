// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/facts.hpp>
#include <ostrakon/config/settings.hpp>

namespace ostrakon::train {

/// Returns the facts that determine the bits of kernels on this rank: the build, Kokkos, the
/// library of matrix products and its threads, and the digest of some products in the dtypes that
/// the settings use. If all of them are equal, a leaf gives the same bits on each rank. Takes
/// milliseconds, and host or device memory for that time.
Facts kernel_facts(const config::Settings& settings, int matrix_threads);

}  // namespace ostrakon::train
