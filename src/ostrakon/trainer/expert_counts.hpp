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
/// unit, and behind them the sum of further losses, if the model has such. Counters are integers,
/// summed over micro-batches and ranks.
class ExpertCounts {
 public:
  explicit ExpertCounts(const plan::ModelDescription& model, const model::LossTerms& loss = {});

  /// The number of integers in all of the step's sums.
  std::int64_t sums() const { return first_.back() + (has_further_ ? math::exact_sum_limbs : 0); }
  /// The range of a unit's counters in all sums.
  View<std::int64_t*> of_unit(int unit, View<std::int64_t*> sums) const {
    const auto u = static_cast<std::size_t>(unit);
    return sums.range(first_[u], first_[u + 1]);
  }
  /// Whether there is a sum of further losses, and its range in all sums.
  bool has_further() const { return has_further_; }
  template <class Sums>
  Sums further_of(Sums sums) const {
    return sums.range(first_.back(), first_.back() + math::exact_sum_limbs);
  }
  /// Overwrites `loads` with the load of each layer, from the sums over all ranks.
  void read_load(HostView<const std::int64_t*> sums, std::vector<ExpertLoad>& loads) const;
  /// Reads the rounds of each layer whose experts are shared by ranks.
  void read_rounds(HostView<const std::int64_t*> sums,
                   std::vector<ExpertRoundsTaken>& rounds) const;

 private:
  std::vector<std::int64_t> first_;  // first counter of each unit, then the end
  bool has_further_;
  struct Group {
    std::int64_t begin, count;  // positions in all sums
  };
  std::vector<Group> loads_, rounds_;
};

}  // namespace ostrakon::train
