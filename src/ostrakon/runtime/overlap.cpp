// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/overlap.hpp>

#include <algorithm>
#include <array>

namespace ostrakon::runtime {
namespace {

/// The totals to which the seconds of an action on another stream than compute are added, all and
/// hidden ones; or null.
struct Account {
  double* all = nullptr;
  double* hidden = nullptr;
};

Account account_of(const plan::Action& action, OverlapTimes& overlap) {
  if (plan::communicates(action.kind)) return {&overlap.communication, &overlap.hidden};
  if (action.unit < 0) return {};  // copies for the whole step: batches, and its sums
  switch (action.stream) {
    case plan::Stream::upload:
    case plan::Stream::download:
      return {&overlap.copying, &overlap.copying_hidden};
    case plan::Stream::host:
      return {&overlap.host, &overlap.host_hidden};
    default:
      return {};
  }
}

}  // namespace

OverlapTimes measure_overlap(const Program& program, const std::vector<ActionTime>& times) {
  const std::vector<plan::Action>& actions = program.plan.actions;
  OverlapTimes overlap;
  double first = 0.0, last = 0.0;
  bool any = false;
  std::vector<std::size_t> computes;
  for (std::size_t a = 0; a < times.size(); ++a) {
    if (times[a].end == 0.0) continue;  // skipped
    first = any ? std::min(first, times[a].begin) : times[a].begin;
    last = std::max(last, times[a].end);
    any = true;
    if (actions[a].stream != plan::Stream::compute) continue;
    overlap.compute += times[a].end - times[a].begin;
    computes.push_back(a);
  }
  overlap.all = last - first;
  // Actions are in the order of time within each stream.
  std::array<std::size_t, plan::streams> next_of{};
  for (std::size_t a = 0; a < times.size(); ++a) {
    if (actions[a].stream == plan::Stream::compute || times[a].end == 0.0) continue;
    const Account account = account_of(actions[a], overlap);
    if (account.all == nullptr) continue;
    *account.all += times[a].end - times[a].begin;
    std::size_t& next = next_of[static_cast<std::size_t>(actions[a].stream)];
    while (next < computes.size() && times[computes[next]].end <= times[a].begin) ++next;
    for (std::size_t c = next; c < computes.size() && times[computes[c]].begin < times[a].end; ++c)
      *account.hidden += std::min(times[computes[c]].end, times[a].end) -
                         std::max(times[computes[c]].begin, times[a].begin);
  }
  return overlap;
}

}  // namespace ostrakon::runtime
