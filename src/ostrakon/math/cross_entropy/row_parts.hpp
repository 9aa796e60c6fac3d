// SPDX-License-Identifier: Apache-2.0
#pragma once

// A row of logits in parts, one for each team of a cluster: a team reads its part, all learn the
// softmax of the row, and each stores the gradients of its part, whose logits have stayed.

#include <ostrakon/math/cross_entropy/row_loss.hpp>
#include <ostrakon/math/cross_entropy/softmax_row.hpp>

namespace ostrakon::math {

/// The derivative of cap * tanh(z / cap), from its value.
template <class C>
KOKKOS_INLINE_FUNCTION C slope_of_capped(C value, C inverse_cap) {
  const C t = value * inverse_cap;
  return multiply_add(-t, t, C(1));
}

#if OSTRAKON_ON_DEVICE

/// What one team of a cluster has of a row of logits. `is_capped`: whether gradients go through a
/// cap, for which logits are held, and else exponentials.
template <bool is_capped, class C>
class PartOfRow {
 public:
  /// Reads the part z; returns the softmax of it. first: the row's first logit.
  KOKKOS_FUNCTION Softmax<C> read(const BlockTeam& team, const View<C*>& z, C first, void* memory,
                                  int in_memory) {
    const LogitRow<C> row = row_of(team, z);
    const FurtherLogits<C> further(team, z, memory, in_memory);
    further.begin_copies();
    held_ = row.load(z.range(0, held_words(z)));
    const C largest = row.own_maximum(held_, first);
    held_largest_ = largest;
    const auto power = [=](C logit) { return fast_exp(logit - largest); };
    Softmax<C> own = {largest, C(0)};
    if (is_capped) {
      own.total = row.template own_sum<C>(power, held_);
    } else {
      row.update(held_, power);
      own.total = row.template own_sum<C>([](C of_logit) { return of_logit; }, held_);
    }
    further.wait();
    further.add_to(own);
    return softmax_of(row, own);
  }

  /// dz = what `times` says, through the cap. target: its place in the part.
  template <class T>
  KOKKOS_FUNCTION void store(const BlockTeam& team, const View<C*>& z, void* memory, int in_memory,
                             const Softmax<C>& all, const LogitFactors<C>& times, int target, C by,
                             const View<T*>& dz) const {
    const LogitRow<C> row = row_of(team, z);
    const C largest = all.largest, factor = times.softmax / all.total;
    const C at_target = times.target, everywhere = times.everywhere;
    const auto without_softmax = [=](int i, C part) {
      return (i == target ? part - at_target : part) - everywhere;
    };
    const auto gradient = [=](int i, C logit) {
      const C plain = without_softmax(i, fast_exp(logit - largest) * factor);
      return is_capped ? plain * slope_of_capped(logit, by) : plain;
    };
    const auto to = dz.range(0, held_words(z));
    if (is_capped) {
      row.store(
          to, [=](int i, C logit) { return gradient(i, logit); }, held_);
    } else {
      const C own_factor = fast_exp(held_largest_ - largest) * factor;
      row.store(
          to, [=](int i, C of_logit) { return without_softmax(i, of_logit * own_factor); }, held_);
    }
    const int size = static_cast<int>(z.size());
    FurtherLogits<C>(team, z, memory, in_memory)
        .for_each_run([&](const FurtherRow<C>& run, const auto& more, int begin) {
          run.store(
              dz.range(begin, size), [=](int i, C logit) { return gradient(begin + i, logit); },
              more);
        });
  }

 private:
  KOKKOS_FUNCTION static int held_words(const View<C*>& z) {
    const int size = static_cast<int>(z.size());
    return size < most_held_logits<C> ? size : most_held_logits<C>;
  }
  KOKKOS_FUNCTION static LogitRow<C> row_of(const BlockTeam& team, const View<C*>& z) {
    return LogitRow<C>(team, held_words(z));
  }

  typename LogitRow<C>::template Of<C> held_;
  C held_largest_;
};

/// The parts of a thread's teams: of one, and in tests on a host of all of a cluster.
template <bool is_capped, class C>
class OwnParts {
 public:
  KOKKOS_FUNCTION PartOfRow<is_capped, C>& at([[maybe_unused]] int team) {
#if OSTRAKON_IN_DEVICE_CODE
    return part_[0];
#else
    return part_[team];
#endif
  }

 private:
  PartOfRow<is_capped, C> part_[OSTRAKON_IN_DEVICE_CODE == 1 ? 1 : most_teams_of_cluster];
};

#endif

}  // namespace ostrakon::math
