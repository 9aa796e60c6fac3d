// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/scaling/step_parts.hpp>

#include <algorithm>
#include <cstddef>

namespace ostrakon::scaling {

Part part_of(plan::Kind kind, plan::Stream stream) {
  using plan::Activity;
  switch (plan::traits(kind).activity) {
    case Activity::collective:
    case Activity::global_sum:
      return Part::communication;
    case Activity::message:
      return kind == plan::Kind::receive ? Part::waiting : Part::communication;
    case Activity::copy:
      return Part::copies;
    default:
      return stream == plan::Stream::host ? Part::host : Part::compute;
  }
}

RankParts divide_step(const std::vector<TracedAction>& actions, double step_seconds) {
  struct Edge {
    double time;
    int change;  // change of the number of running actions
    std::size_t part, stream;
  };
  std::vector<Edge> edges;
  for (const TracedAction& action : actions) {
    const auto part = static_cast<std::size_t>(part_of(action.kind, action.stream));
    const auto stream = static_cast<std::size_t>(action.stream);
    edges.push_back({action.begin, 1, part, stream});
    edges.push_back({action.end, -1, part, stream});
  }
  std::sort(edges.begin(), edges.end(),
            [](const Edge& one, const Edge& other) { return one.time < other.time; });

  RankParts divided;
  std::array<std::array<int, plan::streams>, parts> running{};
  constexpr auto waiting = static_cast<std::size_t>(Part::waiting);
  const auto count = [&](double seconds) {
    for (std::size_t part = 0; part < waiting; ++part)
      for (std::size_t stream = 0; stream < running[part].size(); ++stream)
        if (running[part][stream] > 0) {
          divided.seconds[part] += seconds;
          divided.by_stream[stream] += seconds;
          return;
        }
  };
  for (std::size_t e = 0; e < edges.size(); ++e) {
    if (e > 0) count(edges[e].time - edges[e - 1].time);
    running[edges[e].part][edges[e].stream] += edges[e].change;
  }
  double busy = 0.0;
  for (std::size_t part = 0; part < waiting; ++part) busy += divided.seconds[part];
  divided.seconds[waiting] = std::max(0.0, step_seconds - busy);
  return divided;
}

double span_of(const std::vector<TracedAction>& actions) {
  if (actions.empty()) return 0.0;
  double first = actions[0].begin, last = actions[0].end;
  for (const TracedAction& action : actions) {
    first = std::min(first, action.begin);
    last = std::max(last, action.end);
  }
  return last - first;
}

}  // namespace ostrakon::scaling
