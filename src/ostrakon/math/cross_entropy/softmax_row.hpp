// SPDX-License-Identifier: Apache-2.0
#pragma once

// The softmax of a row of logits on a device: the largest logit and the sum of exponentials in one
// read. A thread sums exponentials relative to the largest logit that it has seen, so far; what
// threads have is put together at the end. The first elements stay in registers (held_row.hpp).
// What is behind them may stay in shared memory; what does not is read again where it is needed
// again. The order of a sum does not depend on how much stays.

#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/held_row.hpp>
#include <ostrakon/math/shared_copies.hpp>

namespace ostrakon::math {

/// Vectors of the first logits in each thread, which stay, and of further ones at a time. A team
/// has few threads, so that each has registers for its logits and for exponentials of several.
constexpr int held_logits = 39, further_logits = 4, most_threads_of_logits = 256;

/// Logits that a team holds in registers, and those that it reads at a time behind them.
template <class C>
constexpr int most_held_logits = vector_elements<C>() * held_logits* most_threads_of_logits;
template <class C>
constexpr int logits_at_once = vector_elements<C>() * further_logits* most_threads_of_logits;

/// Returns how many of `words` logits stay behind those in registers, in `memory` bytes: as many
/// times what is read at a time as fit, or all.
template <class C>
constexpr std::int64_t logits_in_memory(std::int64_t words, std::int64_t memory) {
  constexpr std::int64_t bytes_at_once = logits_at_once<C> * static_cast<std::int64_t>(sizeof(C));
  const std::int64_t behind = words > most_held_logits<C> ? words - most_held_logits<C> : 0;
  return smaller(behind, memory / bytes_at_once * logits_at_once<C>);
}

#if OSTRAKON_ON_DEVICE

template <class C>
using LogitRow = HeldRow<vector_elements<C>(), held_logits, BlockTeam>;
template <class C>
using FurtherRow = HeldRow<vector_elements<C>(), further_logits, BlockTeam>;

/// The largest logit of a row, or of what a thread has of it, and the sum of exponentials relative
/// to it.
template <class C>
struct Softmax {
  C largest, total;
};

/// The logits of a row behind those in registers. Indices are int, as registers are scarce, and
/// more than enough for words.
template <class C>
class FurtherLogits {
 public:
  /// Begins to copy `in_memory` of them into shared memory, where each thread reads what it has
  /// copied itself. z: the row.
  template <class Z>
  KOKKOS_FUNCTION FurtherLogits(const BlockTeam& team, const View<Z*>& z, int in_memory)
      : team_(team),
        z_(z.data()),
        words_(static_cast<int>(z.size())),
        end_of_memory_(most_held_logits<C> + in_memory) {
    constexpr int n = vector_elements<C>();
    const int vectors = static_cast<int>(items_for(in_memory, n));
    memory_ = static_cast<C*>(team.memory(std::int64_t{vectors} * n * static_cast<int>(sizeof(C))));
#if OSTRAKON_IN_DEVICE_CODE
#pragma unroll 1
#endif
    for (int v = team.rank(); v < vectors; v += team.size())
      begin_lanes_copy<n>(memory_, z_ + most_held_logits<C>, std::int64_t{v} * n, in_memory);
  }

  /// Waits for the copies.
  KOKKOS_FUNCTION void wait() const { end_own_copies(); }

  /// Runs body(row, its logits, the first one's index) for runs of them.
  template <class Body>
  KOKKOS_FUNCTION void for_each_run(const Body& body) const {
#if OSTRAKON_IN_DEVICE_CODE
#pragma unroll 1
#endif
    for (int begin = most_held_logits<C>; begin < words_; begin += logits_at_once<C>) {
      const int size = words_ - begin < logits_at_once<C> ? words_ - begin : logits_at_once<C>;
      const C* const from =
          begin < end_of_memory_ ? memory_ + (begin - most_held_logits<C>) : z_ + begin;
      const FurtherRow<C> row(team_, size);
      body(row, row.load(View<const C*>(from, size)), begin);
    }
  }

  /// Adds them to what this thread has.
  KOKKOS_FUNCTION void add_to(Softmax<C>& own) const {
    for_each_run([&](const FurtherRow<C>& row, const auto& logits, int) {
      const C largest = row.own_maximum(logits, own.largest);
      own.total *= fast_exp(own.largest - largest);
      own.total +=
          row.template own_sum<C>([=](C logit) { return fast_exp(logit - largest); }, logits);
      own.largest = largest;
    });
  }

 private:
  const BlockTeam& team_;
  const C* z_;
  C* memory_;
  int words_, end_of_memory_;
};

/// Returns what this thread has of z.
template <class C, class Z>
KOKKOS_INLINE_FUNCTION Softmax<C> own_softmax(const LogitRow<C>& row, const View<Z*>& z) {
  const auto logits = row.load(z.range(0, smaller(z.size(), most_held_logits<C>)));
  const C largest = row.own_maximum(logits, z[0]);
  Softmax<C> own = {
      largest, row.template own_sum<C>([=](C logit) { return fast_exp(logit - largest); }, logits)};
  FurtherLogits<C>(row.team(), z, 0).add_to(own);
  return own;
}

/// Puts together what all threads have.
template <class C>
KOKKOS_INLINE_FUNCTION Softmax<C> softmax_of(const LogitRow<C>& row, const Softmax<C>& own) {
  const C largest = row.maximum_of_threads(own.largest);
  return {largest, row.sum_of_threads(own.total * fast_exp(own.largest - largest))};
}

/// Runs body(LogitRow, index) for every index in [0, rows), for rows of `words` logits, of which
/// `in_memory` are to stay in shared memory.
template <class C, class Body>
void for_each_row_of_logits(const Exec& exec, const char* name, std::int64_t rows,
                            std::int64_t words, std::int64_t in_memory, const Body& body) {
  constexpr int n = vector_elements<C>();
  const std::int64_t width = smaller(words, most_held_logits<C>);
  const std::int64_t bytes = items_for(in_memory, n) * n * static_cast<std::int64_t>(sizeof(C));
  for_each_block_team<most_threads_of_logits>(
      exec, name, rows, threads_of_held_row<n, held_logits>(width), bytes,
      KOKKOS_LAMBDA(const BlockTeam& team) { body(LogitRow<C>(team, width), team.index()); });
}

#endif

}  // namespace ostrakon::math
