// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <ostrakon/math/work_items.hpp>

namespace ostrakon::math {

/// A sum of doubles without rounding (Kulisch's long accumulator): a fixed-point integer wide
/// enough for every finite double, in 64-bit limbs that each hold 32 bits and have spare bits for
/// carries. Integer addition is associative, so neither the order of the additions nor the number
/// of ranks that share them shows in the result; two accumulators add limb by limb (MPI_SUM on
/// int64). All of them together take 2^32 terms at least, before a limb could overflow. The last
/// limb counts non-finite terms, which are excluded from the sum.
constexpr int exact_sum_limbs = 68;

/// Adds the sum of x[i]^2 to `limbs` (exact_sum_limbs): exactly over blocks of `norm_block`
/// elements from x[0] on, each of them summed in double, in an order that depends on nothing but
/// the length of the block. A shard that begins at a multiple of norm_block in the flat parameter
/// thus adds the same terms whatever the number of shards; a last block that is shorter counts as
/// if zeros followed. A block that has a NaN or an infinity, or whose sum overflows, counts as one
/// non-finite term. As a kernel; or on the calling thread, which Kokkos need not know, with the
/// same bits, while no other thread uses `limbs`.
constexpr std::int64_t norm_block = 64;
template <class T, class Space>
void add_squares(const WorksOn<Space>& where, View<const T*, Space> x,
                 View<std::int64_t*, Space> limbs);

/// Adds every x[i], exactly.
template <class T>
void add_terms(const Exec& exec, View<const T*> x, View<std::int64_t*> limbs);

/// Propagates carries, so that every limb has all of its spare bits again; the sum is unchanged.
void exact_sum_carry(HostView<std::int64_t*> limbs);

/// The accumulated sum, rounded once to double.
double exact_sum_value(HostView<const std::int64_t*> limbs);

/// The number of non-finite terms.
std::int64_t exact_sum_non_finite(HostView<const std::int64_t*> limbs);

}  // namespace ostrakon::math
