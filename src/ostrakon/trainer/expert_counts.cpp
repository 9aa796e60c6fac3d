// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/expert_counts.hpp>

#include <algorithm>
#include <numeric>
#include <ostrakon/trainer/dispatch_dtype.hpp>

namespace ostrakon::train {

ExpertCounts::ExpertCounts(const plan::ModelDescription& model, const model::LossTerms& loss)
    : first_{step_sums},
      further_(loss.are_of_pairs  ? math::pair_outputs - 1
               : loss.further > 0 ? 1
                                  : 0) {
  for (const plan::UnitDescription& unit : model.units) {
    std::int64_t begin = first_.back();
    for (const std::int64_t experts : unit.counts) {
      loads_.push_back({begin, experts});
      begin += experts;
    }
    if (unit.capacity.rows > 0) rounds_.push_back({begin, unit.capacity.most_rounds});
    first_.push_back(first_.back() + plan::counted(unit));
  }
}

void ExpertCounts::read_load(HostView<const std::int64_t*> sums,
                             std::vector<ExpertLoad>& loads) const {
  loads.clear();
  for (const Group& group : loads_) {
    const std::int64_t* const counts = sums.data() + group.begin;
    const auto [least, most] = std::minmax_element(counts, counts + group.count);
    const auto all = std::accumulate(counts, counts + group.count, std::int64_t{0});
    if (all == 0) {
      loads.emplace_back();
      continue;
    }
    const double mean = static_cast<double>(all) / static_cast<double>(group.count);
    loads.push_back({static_cast<double>(*least) / mean, static_cast<double>(*most) / mean});
  }
}

void ExpertCounts::read_rounds(HostView<const std::int64_t*> sums,
                               std::vector<ExpertRoundsTaken>& rounds) const {
  rounds.clear();
  for (const Group& group : rounds_) {
    const std::int64_t* const counts = sums.data() + group.begin;
    ExpertRoundsTaken taken;
    for (std::int64_t r = 0; r < group.count; ++r)
      if (counts[r] > 0) taken.most = r + 1;
    if (group.count > 1 && counts[0] > 0)
      taken.share_of_more = static_cast<double>(counts[1]) / static_cast<double>(counts[0]);
    rounds.push_back(taken);
  }
}

}  // namespace ostrakon::train
