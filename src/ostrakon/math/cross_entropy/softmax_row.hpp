// SPDX-License-Identifier: Apache-2.0
#pragma once

// The softmax of a row of logits on a device: the largest logit and the sum of exponentials in one
// read. A thread sums exponentials relative to the largest logit that it has seen, so far; what
// threads have is put together at the end. The first elements stay in registers (held_row.hpp).

#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/held_row.hpp>

namespace ostrakon::math {

#if OSTRAKON_ON_DEVICE

/// Vectors of the first logits in each thread, which stay, and of further ones at a time. A team
/// has few threads, so that each has registers for its logits and for exponentials of several.
constexpr int held_logits = 32, further_logits = 4, most_threads_of_logits = 256;

template <class C>
using LogitRow = HeldRow<vector_elements<C>(), held_logits>;
template <class C>
using FurtherLogits = HeldRow<vector_elements<C>(), further_logits>;

/// Logits that a team holds, and those that it reads at a time behind them.
template <class C>
constexpr int most_held_logits = vector_elements<C>() * held_logits* most_threads_of_logits;
template <class C>
constexpr int logits_at_once = vector_elements<C>() * further_logits* most_threads_of_logits;

/// The largest logit of a row, or of what a thread has of it, and the sum of exponentials relative
/// to it.
template <class C>
struct Softmax {
  C largest, total;
};

/// body(row, its logits, the first one's index) for what is behind the logits of z that are held.
/// Indices are int, as registers are scarce, and more than enough for words.
template <class C, class Z, class Body>
KOKKOS_INLINE_FUNCTION void for_each_further_run(const TeamMember& team, const View<Z*>& z,
                                                 const Body& body) {
  const int size = static_cast<int>(z.size());
  for (int begin = most_held_logits<C>; begin < size; begin += logits_at_once<C>) {
    const int end = size - begin < logits_at_once<C> ? size : begin + logits_at_once<C>;
    const FurtherLogits<C> row(team, end - begin);
    body(row, row.load(z.range(begin, end)), begin);
  }
}

/// Adds the logits of z that are not held to what this thread has.
template <class C, class Z>
KOKKOS_INLINE_FUNCTION void add_further_logits(const TeamMember& team, const View<Z*>& z,
                                               Softmax<C>& own) {
  for_each_further_run<C>(team, z, [&](const FurtherLogits<C>& row, const auto& logits, int) {
    const C largest = row.own_maximum(logits, own.largest);
    own.total *= fast_exp(own.largest - largest);
    own.total +=
        row.template own_sum<C>([=](C logit) { return fast_exp(logit - largest); }, logits);
    own.largest = largest;
  });
}

/// Returns what this thread has of z.
template <class C, class Z>
KOKKOS_INLINE_FUNCTION Softmax<C> own_softmax(const LogitRow<C>& row, const View<Z*>& z) {
  const auto logits = row.load(z.range(0, smaller(z.size(), most_held_logits<C>)));
  const C largest = row.own_maximum(logits, z[0]);
  Softmax<C> own = {
      largest, row.template own_sum<C>([=](C logit) { return fast_exp(logit - largest); }, logits)};
  add_further_logits<C>(row.team(), z, own);
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
  for_each_held<vector_elements<C>(), held_logits, most_threads_of_logits>(
      exec, name, rows, smaller(words, most_held_logits<C>), body);
}

#endif

}  // namespace ostrakon::math
