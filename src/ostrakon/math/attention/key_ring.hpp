// SPDX-License-Identifier: Apache-2.0
#pragma once

// Keys and values of the latest tokens of a sequence, for attention with a window: a ring has the
// row of position p in row p modulo its rows.

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// Puts rows of x, from position `begin` on, into the ring. Throws Error if they are more than it
/// has.
template <class T>
void put_in_ring(const Exec& exec, std::int64_t begin, View<const T**> x, View<T**> ring);

/// Returns the first of the positions, one after the other, of the rows that attention of queries
/// from `begin` on takes: the first that they see, or less, at a multiple of the keys that kernels
/// take at a time. So a query has the bits that it has with the rows of all tokens.
std::int64_t first_ordered_key(std::int64_t begin, std::int64_t window);
/// Returns how many such rows there are for so many queries, at most.
std::int64_t most_ordered_keys(std::int64_t queries, std::int64_t window);

/// in_order(i, :) = the ring's row of position first_ordered_key(begin, window) + i, for those that
/// queries [begin, end) see; 0 before these. Rows behind stay as they are. The ring has the rows of
/// positions [begin - window + 1, end).
template <class T>
void take_in_order(const Exec& exec, View<const T**> ring, std::int64_t window, std::int64_t begin,
                   std::int64_t end, View<T**> in_order);

}  // namespace ostrakon::math
