// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/pipeline_schedule.hpp>

#include <algorithm>

namespace ostrakon::plan {

PipelineSchedule one_forward_one_backward(int stage, int stages, int micro_batches) {
  const int warm_up = std::min(stages - 1 - stage, micro_batches);
  PipelineSchedule turns;
  turns.reserve(2 * static_cast<std::size_t>(micro_batches));
  for (int m = 0; m < warm_up; ++m) turns.push_back({true, m});
  for (int m = 0; m < micro_batches; ++m) {
    if (m + warm_up < micro_batches) turns.push_back({true, m + warm_up});
    turns.push_back({false, m});
  }
  return turns;
}

}  // namespace ostrakon::plan
