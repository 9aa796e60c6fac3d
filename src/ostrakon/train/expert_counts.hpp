// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/math/view.hpp>
#include <ostrakon/plan/description.hpp>
#include <vector>

namespace ostrakon::train {

/// How evenly a layer's assignments are divided over its experts: those of the expert with the
/// fewest and of the one with the most, relative to the mean. 1 and 1: evenly.
struct ExpertLoad {
  double least = 1.0, most = 1.0;
};

/// In how many rounds tokens travelled between the ranks that share a layer's experts, at most; and
/// how often more than one was needed, of all micro-batches of all ranks.
struct ExpertRoundsTaken {
  std::int64_t most = 1;
  double share_of_more = 0.0;
};

/// Where a step's sums have what units count: behind losses and squares (step_sums), unit by unit.
/// They are integers, summed over micro-batches and ranks.
class ExpertCounts {
 public:
  explicit ExpertCounts(const plan::ModelDescription& model);

  /// Integers of all the step's sums.
  std::int64_t sums() const { return first_.back(); }
  /// Those that a unit of the model counts, of all sums.
  View<std::int64_t*> of_unit(int unit, View<std::int64_t*> sums) const {
    const auto u = static_cast<std::size_t>(unit);
    return sums.range(first_[u], first_[u + 1]);
  }
  /// Overwrites `loads` with that of each layer, from the sums over all ranks.
  void read_load(HostView<const std::int64_t*> sums, std::vector<ExpertLoad>& loads) const;
  /// Reads the rounds of each layer whose experts ranks share.
  void read_rounds(HostView<const std::int64_t*> sums,
                   std::vector<ExpertRoundsTaken>& rounds) const;

 private:
  std::vector<std::int64_t> first_;  // of each unit, then the end
  struct Group {
    std::int64_t begin, count;  // of all sums
  };
  std::vector<Group> loads_, rounds_;
};

}  // namespace ostrakon::train
