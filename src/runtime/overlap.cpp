// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/runtime/overlap.hpp>

namespace ostrakon::runtime {

Overlap measure_overlap(const Program& program, const std::vector<ActionTime>& times) {
  const std::vector<plan::Action>& actions = program.plan.actions;
  Overlap overlap;
  double first = 0.0, last = 0.0;
  bool any = false;
  std::vector<std::size_t> computes;
  for (std::size_t a = 0; a < times.size(); ++a) {
    const double seconds = times[a].end - times[a].begin;
    if (times[a].end == 0.0) continue;  // left out
    first = any ? std::min(first, times[a].begin) : times[a].begin;
    last = std::max(last, times[a].end);
    any = true;
    if (plan::communicates(actions[a].kind)) overlap.communication += seconds;
    if (actions[a].stream != plan::Stream::compute) continue;
    overlap.compute += seconds;
    computes.push_back(a);
  }
  overlap.all = last - first;
  // Both lists are in the order of time: compute's by itself, collectives' stream by stream.
  for (int stream = 0; stream < plan::streams; ++stream) {
    std::size_t next = 0;
    for (std::size_t a = 0; a < times.size(); ++a) {
      if (static_cast<int>(actions[a].stream) != stream || !plan::communicates(actions[a].kind))
        continue;
      while (next < computes.size() && times[computes[next]].end <= times[a].begin) ++next;
      for (std::size_t c = next; c < computes.size() && times[computes[c]].begin < times[a].end;
           ++c)
        overlap.hidden += std::min(times[computes[c]].end, times[a].end) -
                          std::max(times[computes[c]].begin, times[a].begin);
    }
  }
  return overlap;
}

}  // namespace ostrakon::runtime
