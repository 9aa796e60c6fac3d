// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/expert_counts.hpp>

#include <algorithm>
#include <ostrakon/train/dispatch_dtype.hpp>

namespace ostrakon::train {

ExpertCounts::ExpertCounts(const plan::ModelDescription& model) : first_{step_sums} {
  for (const plan::UnitDescription& unit : model.units) {
    first_.push_back(first_.back() + plan::counted(unit));
    groups_.insert(groups_.end(), unit.counts.begin(), unit.counts.end());
  }
}

void ExpertCounts::read_load(HostView<const std::int64_t*> sums,
                             std::vector<ExpertLoad>& loads) const {
  loads.clear();
  std::int64_t begin = step_sums;
  for (const std::int64_t experts : groups_) {
    const std::int64_t* const counts = sums.data() + begin;
    const auto [least, most] = std::minmax_element(counts, counts + experts);
    std::int64_t all = 0;
    for (std::int64_t e = 0; e < experts; ++e) all += counts[e];
    const double mean = static_cast<double>(all) / static_cast<double>(experts);
    loads.push_back({static_cast<double>(*least) / mean, static_cast<double>(*most) / mean});
    begin += experts;
  }
}

}  // namespace ostrakon::train
