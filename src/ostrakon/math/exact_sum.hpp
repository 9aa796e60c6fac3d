// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {

/// A sum of doubles without rounding (Kulisch's long accumulator): a fixed-point integer wide
/// enough for every finite double, in 64-bit limbs that each hold 32 bits and have spare bits for
/// carries. Integer addition is associative, so the result depends neither on the order of the
/// additions nor on the number of ranks; two accumulators are added limb by limb (MPI_SUM on
/// int64). In total at least 2^32 terms can be added before a limb could overflow. The last limb
/// counts non-finite terms, which are excluded from the sum.
constexpr int exact_sum_limbs = 68;

/// Adds the sum of x[i]^2 to `limbs` (exact_sum_limbs): exact over blocks of `norm_block` elements
/// from x[0] on, each of them summed in double, in an order that depends only on the length of the
/// block. So a shard that begins at a multiple of norm_block in the flat parameter adds the same
/// terms for any number of shards; a shorter last block counts as padded with zeros. A block that
/// has a NaN or an infinity, or whose sum overflows, counts as one non-finite term. Runs as a
/// kernel, or on the calling thread, which Kokkos need not know, with the same bits; no other
/// thread may use `limbs` meanwhile.
constexpr std::int64_t norm_block = 64;
template <class T, class Space>
void add_squares(const ExecutorFor<Space>& where, View<const T*, Space> x,
                 View<std::int64_t*, Space> limbs);

/// Adds every x[i] exactly.
template <class T>
void add_terms(const Exec& exec, View<const T*> x, View<std::int64_t*> limbs);

/// Adds a term exactly, on the calling thread.
void exact_sum_add(HostView<std::int64_t*> limbs, double term);

/// Propagates carries, so that every limb has all of its spare bits again; the sum is unchanged.
void exact_sum_carry(HostView<std::int64_t*> limbs);

/// The accumulated sum, rounded once to double.
double exact_sum_value(HostView<const std::int64_t*> limbs);

/// The number of non-finite terms.
std::int64_t exact_sum_non_finite(HostView<const std::int64_t*> limbs);

}  // namespace ostrakon::math
