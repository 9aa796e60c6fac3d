// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/waits.hpp>

#include <algorithm>
#include <array>

namespace ostrakon::plan {
namespace {

using Clock = std::array<int, streams>;  // per stream: how many actions have ended

Clock nobody() {
  Clock clock;
  clock.fill(-1);
  return clock;
}

/// The last actions that touched a buffer.
struct Touched {
  int write = -1;
  Clock reads = nobody();  // since that write, per stream
};

}  // namespace

void find_waits(StepPlan& plan) {
  std::vector<Clock> clocks(plan.actions.size());
  std::vector<int> position(plan.actions.size());
  std::vector<Touched> touched(plan.buffers.size());
  Clock last = nobody();  // per stream: its last action
  Clock length{};
  std::vector<int> wanted;
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
    Action& action = plan.actions[a];
    const int stream = static_cast<int>(action.stream);
    const auto want = [&](int other) {
      if (other >= 0 && plan.actions[other].stream != action.stream) wanted.push_back(other);
    };
    wanted.clear();
    for (const Use& used : action.uses) {
      Touched& buffer = touched[used.buffer];
      const bool begins = buffer.write < 0 && !plan.buffers[used.buffer].persistent;
      if (begins && action.stream != Stream::compute) want(last[static_cast<int>(Stream::compute)]);
      want(buffer.write);
      if (used.access == Access::read) continue;
      for (int reader : buffer.reads) want(reader);
    }
    for (const Use& used : action.uses) {
      Touched& buffer = touched[used.buffer];
      if (used.access == Access::read) {
        buffer.reads[stream] = a;
      } else {
        buffer.write = a;
        buffer.reads = nobody();
      }
    }
    // The latest goes first, as it may have waited for the others.
    std::sort(wanted.begin(), wanted.end(), std::greater<int>());
    Clock clock = last[stream] < 0 ? Clock{} : clocks[last[stream]];
    action.waits.clear();
    for (int other : wanted) {
      const int of = static_cast<int>(plan.actions[other].stream);
      if (position[other] < clock[of]) continue;
      action.waits.push_back(other);
      for (int s = 0; s < streams; ++s) clock[s] = std::max(clock[s], clocks[other][s]);
    }
    position[a] = length[stream]++;
    clock[stream] = length[stream];  // for actions after this one
    clocks[a] = clock;
    last[stream] = a;
  }
}

}  // namespace ostrakon::plan
