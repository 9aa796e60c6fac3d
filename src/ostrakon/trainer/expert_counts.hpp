// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/math/exact_sum.hpp>
#include <ostrakon/math/view.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/plan/ir/description.hpp>
#include <vector>

namespace ostrakon::train {

/// How evenly a layer's assignments are divided over its experts: assignments of the expert with
/// the fewest and of the one with the most, relative to the mean. 1 and 1: evenly.
struct ExpertLoad {
  double least = 1.0, most = 1.0;
};

/// The maximum number of rounds in which tokens were dispatched between the ranks that share a
/// layer's experts; and the share of micro-batches, of all ranks, that needed more than one.
struct ExpertRoundsTaken {
  std::int64_t most = 1;
  double share_of_more = 0.0;
};

/// The positions of units' counters in a step's sums: after losses and squares (step_sums), unit by
/// unit, and behind them further sums, if the model has such: of further losses, or of what is told
/// of pairs besides their losses. Counters are integers, summed over micro-batches and ranks.
class ExpertCounts {
 public:
  explicit ExpertCounts(const plan::ModelDescription& model, const model::LossTerms& loss = {});

  /// The number of integers in all of the step's sums.
  std::int64_t sums() const {
    return first_.back() + std::int64_t{further_} * math::exact_sum_limbs;
  }
  /// The range of a unit's counters in all sums.
  View<std::int64_t*> of_unit(int unit, View<std::int64_t*> sums) const {
    const auto u = static_cast<std::size_t>(unit);
    return sums.range(first_[u], first_[u + 1]);
  }
  /// The number of further sums, and the range of one in all sums. Sum i is over the array i + 1 of
  /// the last unit's output.
  int further() const { return further_; }
  template <class Sums>
  Sums further_of(Sums sums, int i = 0) const {
    const std::int64_t begin = first_.back() + std::int64_t{i} * math::exact_sum_limbs;
    return sums.range(begin, begin + math::exact_sum_limbs);
  }
  /// Overwrites `loads` with the load of each layer, from the sums over all ranks.
  void read_load(HostView<const std::int64_t*> sums, std::vector<ExpertLoad>& loads) const;
  /// Reads the rounds of each layer whose experts are shared by ranks.
  void read_rounds(HostView<const std::int64_t*> sums,
                   std::vector<ExpertRoundsTaken>& rounds) const;

 private:
  std::vector<std::int64_t> first_;  // first counter of each unit, then the end
  int further_;
  struct Group {
    std::int64_t begin, count;  // positions in all sums
  };
  std::vector<Group> loads_, rounds_;
};

}  // namespace ostrakon::train
