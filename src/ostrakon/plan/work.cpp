// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/plan/work.hpp>

namespace ostrakon::plan {

std::int64_t array_bytes(const Action& action) {
  const bool sends = communicates(action.kind) && action.group_ranks > 1;
  return sends ? action.elements * action.element_bytes : 0;
}

std::int64_t message_bytes(const Action& action) {
  return array_bytes(action) / action.group_ranks;
}

std::int64_t copied_bytes(const Action& action) {
  const bool copies = action.kind == Kind::copy_to_device || action.kind == Kind::copy_to_host;
  return copies ? action.elements * action.element_bytes : 0;
}

std::int64_t copied_bytes(const StepPlan& plan, Kind kind) {
  std::int64_t bytes = 0;
  for (const Action& action : plan.actions)
    if (action.kind == kind) bytes += copied_bytes(action);
  return bytes;
}

std::int64_t bytes_on_host(const StepPlan& plan, const Action& action) {
  if (action.stream != Stream::host) return 0;
  std::int64_t bytes = 0;
  for (const Use& use : action.uses) switch (use.role) {
      case Role::first_moment:
      case Role::second_moment:
        bytes += plan.buffers[use.buffer].bytes;
        break;
      case Role::parameters:
        bytes += action.elements * plan.element_bytes;
        break;
      case Role::host_sums:
        break;
      default:
        bytes += action.elements * plan.master_bytes;
    }
  return bytes;
}

std::int64_t bytes_on_host(const StepPlan& plan) {
  std::int64_t bytes = 0;
  for (const Action& action : plan.actions) bytes += bytes_on_host(plan, action);
  return bytes;
}

Links::Links(const StepPlan& plan, int ranks_per_node)
    : ranks_per_node_(ranks_per_node > 0 ? std::min(ranks_per_node, plan.ranks) : plan.ranks) {
  find_groups(plan);
  std::int64_t most = 0;
  std::vector<int> apart(groups_.size());
  for (int rank = 0; rank < plan.ranks; ++rank) {
    std::int64_t across = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      apart[g] = count_apart(plan, groups_[g], rank);
      groups_[g].spans_nodes = groups_[g].spans_nodes || apart[g] > 0;
      across += apart[g] * groups_[g].bytes_to_each;
    }
    if (across <= most) continue;
    most = across;
    for (std::size_t g = 0; g < groups_.size(); ++g) groups_[g].apart = apart[g];
  }
}

void Links::find_groups(const StepPlan& plan) {
  groups_ = {{Group::shard, plan.group_ranks, 0, 0, false},
             {Group::replicate, plan.replicas(), 0, 0, false}};
  for (const Action& action : plan.actions) {
    if (array_bytes(action) == 0) continue;
    auto found = std::find_if(groups_.begin(), groups_.end(), [&](const Groups& one) {
      return one.group == action.group && one.ranks == action.group_ranks;
    });
    if (found == groups_.end())
      found = groups_.insert(groups_.end(), Groups{action.group, action.group_ranks, 0, 0, false});
    found->bytes_to_each += message_bytes(action);
  }
}

int Links::count_apart(const StepPlan& plan, const Groups& one, int rank) const {
  const int begin = rank / ranks_per_node_ * ranks_per_node_;
  const int end = std::min(begin + ranks_per_node_, plan.ranks);
  if (one.group == Group::replicate)
    return one.ranks -
           ((rank - begin) / plan.group_ranks + (end - 1 - rank) / plan.group_ranks + 1);
  // All others are runs of neighbours.
  const int first = rank / one.ranks * one.ranks;
  return one.ranks - (std::min(end, first + one.ranks) - std::max(begin, first));
}

int Links::partners_across_nodes(const Action& action) const {
  if (array_bytes(action) == 0) return 0;
  for (const Groups& one : groups_)
    if (one.group == action.group && one.ranks == action.group_ranks) return one.apart;
  return 0;
}

std::int64_t Links::bytes_across_nodes(const Action& action) const {
  return partners_across_nodes(action) * message_bytes(action);
}

std::int64_t Links::bytes_inside_nodes(const Action& action) const {
  return (action.group_ranks - 1 - partners_across_nodes(action)) * message_bytes(action);
}

int Links::ranks(Group group) const {
  int most = 1;
  for (const Groups& one : groups_)
    if (one.group == group) most = std::max(most, one.ranks);
  return most;
}

bool Links::spans_nodes(Group group) const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [&](const Groups& one) { return one.group == group && one.spans_nodes; });
}

}  // namespace ostrakon::plan
