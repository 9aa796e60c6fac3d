// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// Adds (modulo 2^64) a hash of (key, first + i, bits of x[i]) for every i to digest(0). As it is a
/// sum, it does not depend on how an array is divided.
void add_digest(const Exec& exec, View<const float*> x, std::uint64_t key, std::int64_t first,
                View<std::uint64_t*> digest);

/// Adds such hashes of the bits that x[i] has as a B. A is B, or float, which is rounded to B as
/// convert() does.
/// So the digest of floats as 16-bit numbers is that of the array into which they are converted.
template <class A, class B>
void add_digest_as(const Exec& exec, View<const A*> x, std::uint64_t key, std::int64_t first,
                   View<std::uint64_t*> digest);

}  // namespace ostrakon::math
