// SPDX-License-Identifier: Apache-2.0
#pragma once

// The softmax of a row of logits on a device: the largest logit and the sum of exponentials in one
// read. A thread sums exponentials relative to the largest logit that it has seen, so far; what
// threads have is put together at the end. The first elements stay in registers (held_row.hpp).

#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/held_row.hpp>

namespace ostrakon::math {

#if OSTRAKON_ON_DEVICE

/// Vectors of logits in each thread.
constexpr int held_logits = 16;

template <class C>
using LogitRow = HeldRow<vector_elements<C>(), held_logits>;

/// Logits that a team reads at a time.
template <class C>
constexpr std::int64_t logits_of_segment =
    std::int64_t{vector_elements<C>()} * held_logits* most_threads_of_held_row;

/// The largest logit of a row, or of what a thread has of it, and the sum of exponentials relative
/// to it.
template <class C>
struct Softmax {
  C largest, total;
};

/// Adds logits of this thread.
template <class C>
KOKKOS_INLINE_FUNCTION void add_logits(const LogitRow<C>& row,
                                       const typename LogitRow<C>::template Of<C>& logits,
                                       Softmax<C>& own) {
  const C largest = row.own_maximum(logits, own.largest);
  own.total *= fast_exp(own.largest - largest);
  own.total += row.template own_sum<C>([=](C logit) { return fast_exp(logit - largest); }, logits);
  own.largest = largest;
}

/// body(row, its logits, the first one's index) for the segments of z behind the first one.
template <class C, class Body>
KOKKOS_INLINE_FUNCTION void for_each_further_segment(const TeamMember& team, const View<C*>& z,
                                                     const Body& body) {
  for (std::int64_t begin = logits_of_segment<std::remove_const_t<C>>; begin < z.size();
       begin += logits_of_segment<std::remove_const_t<C>>) {
    const std::int64_t end = smaller(z.size(), begin + logits_of_segment<std::remove_const_t<C>>);
    const LogitRow<std::remove_const_t<C>> row(team, end - begin);
    body(row, row.load(z.range(begin, end)), begin);
  }
}

/// Returns what this thread has of z, whose first logits are `first` in `row`.
template <class C, class Z>
KOKKOS_INLINE_FUNCTION Softmax<C> own_softmax(const LogitRow<C>& row,
                                              const typename LogitRow<C>::template Of<C>& first,
                                              const View<Z*>& z) {
  Softmax<C> own = {z[0], C(0)};
  add_logits<C>(row, first, own);
  for_each_further_segment(row.team(), z,
                           [&](const LogitRow<C>& segment, const auto& logits, std::int64_t) {
                             add_logits<C>(segment, logits, own);
                           });
  return own;
}

/// Puts together what all threads have.
template <class C>
KOKKOS_INLINE_FUNCTION Softmax<C> softmax_of(const LogitRow<C>& row, const Softmax<C>& own) {
  const C largest = row.maximum_of_threads(own.largest);
  return {largest, row.sum_of_threads(own.total * fast_exp(own.largest - largest))};
}

/// Runs body(LogitRow, index) for every index in [0, rows), for rows of `words` logits.
template <class C, class Body>
void for_each_row_of_logits(const Exec& exec, const char* name, std::int64_t rows,
                            std::int64_t words, const Body& body) {
  for_each_held<vector_elements<C>(), held_logits>(exec, name, rows,
                                                   smaller(words, logits_of_segment<C>), body);
}

#endif

}  // namespace ostrakon::math
