// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/portability.hpp>

namespace ostrakon::math {

/// A bijection of 64-bit integers in which every bit of the input changes about half the bits of
/// the output: the finalizer of splitmix64 (Steele et al. 2014, in Stafford's variant 13).
KOKKOS_INLINE_FUNCTION std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace ostrakon::math
