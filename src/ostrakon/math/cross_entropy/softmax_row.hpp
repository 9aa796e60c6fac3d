// SPDX-License-Identifier: Apache-2.0
#pragma once

// The softmax of a row of logits on a device: the largest logit and the sum of exponentials in one
// read. A thread sums exponentials relative to the largest logit that it has seen, so far; what
// threads have is put together at the end. The first elements stay in registers (held_row.hpp).
// What is behind them may stay in shared memory; what does not is read again where it is needed
// again. The order of a sum does not depend on how much stays. A row that is too long for one team
// is divided into parts, one for each team of a cluster (team_cluster.hpp).

#include <algorithm>
#include <limits>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/rows/held_row.hpp>
#include <ostrakon/math/shared_copies.hpp>
#include <ostrakon/math/team_cluster.hpp>
#include <ostrakon/math/unrolled.hpp>

namespace ostrakon::math {

/// Vectors of the first logits in each thread, which stay, and of further ones at a time. A team
/// has few threads, so that each has registers for its logits and for exponentials of several.
constexpr int held_logits = 6, further_logits = 2, most_threads_of_logits = 1024;

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

/// How the teams of a cluster share a row of logits.
struct LogitParts {
  int teams;               ///< the fewest that keep the whole row; if none do, the most
  std::int64_t words;      ///< logits of a part; the last part may have less
  std::int64_t in_memory;  ///< logits of a part that stay in shared memory

  /// Returns how many words of a row do not stay.
  template <class C>
  constexpr std::int64_t read_again(std::int64_t of_row) const {
    std::int64_t again = 0;
    for (std::int64_t begin = 0; begin < of_row; begin += words)
      again += std::max<std::int64_t>(
          0, std::min(words, of_row - begin) - most_held_logits<C> - in_memory);
    return again;
  }
};

/// Returns the parts of a row of `words` logits, by at most `most_teams` teams with `memory` bytes
/// of shared memory each. Parts begin at whole cache lines of a row that does so.
template <class C>
constexpr LogitParts logit_parts(std::int64_t words, std::int64_t memory, int most_teams) {
  constexpr std::int64_t line = 128 / sizeof(C);
  const std::int64_t stay =
      most_held_logits<C> + logits_in_memory<C>(std::numeric_limits<std::int64_t>::max(), memory);
  const auto teams = static_cast<int>(std::min<std::int64_t>(most_teams, items_for(words, stay)));
  const std::int64_t part = teams == 1 ? words : items_for(items_for(words, teams), line) * line;
  return {teams, part, logits_in_memory<C>(part, memory)};
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
  /// z: the row; `in_memory` of them are to stay in `memory`, shared memory.
  template <class Z>
  KOKKOS_FUNCTION FurtherLogits(const BlockTeam& team, const View<Z*>& z, void* memory,
                                int in_memory)
      : team_(team),
        z_(z.data()),
        memory_(static_cast<C*>(memory)),
        words_(static_cast<int>(z.size())),
        end_of_memory_(static_cast<int>(smaller(words_, most_held_logits<C> + in_memory))) {}

  /// Begins to copy those that stay, of which each thread reads what it has copied itself.
  KOKKOS_FUNCTION void begin_copies() const {
    constexpr int n = vector_elements<C>();
    const int in_memory = end_of_memory_ - most_held_logits<C>;
    const int vectors = static_cast<int>(items_for(in_memory, n));
#if OSTRAKON_IN_DEVICE_CODE
#pragma unroll 1
#endif
    for (int v = team_.rank(); v < vectors; v += team_.size())
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
  FurtherLogits<C>(row.team(), z, nullptr, 0).add_to(own);
  return own;
}

/// Puts together what all threads have.
template <class C>
KOKKOS_INLINE_FUNCTION Softmax<C> softmax_of(const LogitRow<C>& row, const Softmax<C>& own) {
  const C largest = row.maximum_of_threads(own.largest);
  return {largest, row.sum_of_threads(own.total * fast_exp(own.largest - largest))};
}

/// Puts together what the teams of a cluster have shared.
template <class C>
KOKKOS_INLINE_FUNCTION Softmax<C> softmax_of_cluster(const TeamCluster& cluster) {
  cluster.wait();
  Softmax<C> all = cluster.shared_by<Softmax<C>>(0);
  rolled(cluster.teams() - 1, [&](int before) {
    const auto next = cluster.shared_by<Softmax<C>>(before + 1);
    const C largest = next.largest > all.largest ? next.largest : all.largest;
    all.total =
        all.total * fast_exp(all.largest - largest) + next.total * fast_exp(next.largest - largest);
    all.largest = largest;
  });
  cluster.wait();
  return all;
}

/// Threads of a team that has `words` logits of a row.
template <class C>
int threads_of_logits(std::int64_t words) {
  return threads_of_held_row<vector_elements<C>(), held_logits>(
      smaller(words, most_held_logits<C>));
}

/// Runs body(LogitRow, index) for every index in [0, rows), for rows of `words` logits.
template <class C, class Body>
static void for_each_row_of_logits(const Exec& exec, const char* name, std::int64_t rows,
                                   std::int64_t words, const Body& body) {
  for_each_block_team<most_threads_of_logits>(
      exec, name, rows, threads_of_logits<C>(words), 0, KOKKOS_LAMBDA(const BlockTeam& team) {
        body(LogitRow<C>(team, smaller(words, most_held_logits<C>)), team.index());
      });
}

#endif

}  // namespace ostrakon::math
