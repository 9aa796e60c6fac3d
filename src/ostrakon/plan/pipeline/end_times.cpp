// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/pipeline/end_times.hpp>

#include <algorithm>
#include <array>

namespace ostrakon::plan {

std::vector<double> end_times(const StepPlan& plan, const std::vector<double>& seconds) {
  std::vector<double> ends(plan.actions.size());
  std::array<double, streams> free{};  // per stream: when it becomes free
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    double& stream = free[static_cast<std::size_t>(plan.actions[a].stream)];
    double begin = stream;
    for (int other : plan.actions[a].waits) begin = std::max(begin, ends[other]);
    ends[a] = stream = begin + seconds[a];
  }
  return ends;
}

}  // namespace ostrakon::plan
