// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/facts.hpp>
#include <ostrakon/config/settings.hpp>

namespace ostrakon::train {

/// What decides the bits that kernels compute on this rank: the build, Kokkos, the library of
/// matrix products with its version, instructions and threads, and the digest of some products in
/// the numbers that the settings use. Where ranks have all of it alike, a leaf gives the same bits
/// on each of them. Milliseconds; on the memory of the host, or the device, for that long.
Facts kernel_facts(const config::Settings& settings, int matrix_threads);

}  // namespace ostrakon::train
