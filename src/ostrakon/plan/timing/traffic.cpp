// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/timing/traffic.hpp>

#include <algorithm>

namespace ostrakon::plan {

// A gather from a part that was kept, in one level or two, is recognized by its source, as its
// ranks may be those of a level of the shard group.
std::vector<Group> find_groups(const StepPlan& plan) {
  std::vector<Group> found(plan.actions.size(), Group::shard);
  std::vector<bool> is_of_kept(plan.buffers.size(), false);
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    const Action& action = plan.actions[a];
    if (action.span.axis == Axis::replicate) found[a] = Group::replicate;
    if (action.span.axis == Axis::tensor) found[a] = Group::tensor;
    const bool keeps = action.kind == Kind::keep;
    if (!keeps && action.kind != Kind::gather) continue;
    const int part = action.buffer(Role::shard), whole = action.buffer(Role::parameters);
    const int source = part >= 0 ? part : whole;  // in place
    if (source < 0 || !(keeps || is_of_kept[source])) continue;
    found[a] = Group::kept;
    is_of_kept[keeps ? part : whole] = true;
  }
  return found;
}

std::int64_t array_bytes(const Action& action) {
  const bool sends = communicates(action.kind) && action.span.ranks > 1;
  return sends ? action.elements * action.element_bytes : 0;
}

std::int64_t message_bytes(const Action& action) { return array_bytes(action) / action.span.ranks; }

std::int64_t copied_bytes(const Action& action) {
  return is_copy(action.kind) ? action.elements * action.element_bytes : 0;
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
        bytes += action.elements * plan.layouts.gathered.element_bytes;
        break;
      case Role::host_sums:
        break;
      default:
        bytes += action.elements * plan.layouts.masters.element_bytes;
    }
  return bytes;
}

std::int64_t bytes_on_host(const StepPlan& plan) {
  std::int64_t bytes = 0;
  for (const Action& action : plan.actions) bytes += bytes_on_host(plan, action);
  return bytes;
}

Links::Links(const StepPlan& plan, int ranks_per_node)
    : ranks_per_node_(ranks_per_node > 0 ? std::min(ranks_per_node, plan.grid.ranks())
                                         : plan.grid.ranks()),
      grid_(plan.grid),
      stage_(plan.stage) {
  find_groups(plan);
  std::int64_t most = 0;
  std::vector<int> apart(groups_.size());
  for (int rank = 0; rank < grid_.ranks(); ++rank) {
    std::int64_t across = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      apart[g] = count_apart(groups_[g].span, rank);
      groups_[g].spans_nodes = groups_[g].spans_nodes || apart[g] > 0;
      across += apart[g] * groups_[g].bytes_to_each;
    }
    if (across <= most) continue;
    most = across;
    for (std::size_t g = 0; g < groups_.size(); ++g) groups_[g].apart = apart[g];
  }
}

void Links::find_groups(const StepPlan& plan) {
  for (Axis axis : {Axis::tensor, Axis::shard, Axis::replicate})
    groups_.push_back({grid_.span(axis), 0, 0, false});
  for (const Action& action : plan.actions) {
    if (array_bytes(action) == 0) continue;
    auto found = std::find_if(groups_.begin(), groups_.end(),
                              [&](const Groups& one) { return one.span == action.span; });
    if (found == groups_.end())
      found = groups_.insert(groups_.end(), Groups{action.span, 0, 0, false});
    found->bytes_to_each += message_bytes(action);
  }
}

/// Counts the ranks in the group of `rank` that are not on its node.
int Links::count_apart(const Span& span, int rank) const {
  const int begin = rank / ranks_per_node_ * ranks_per_node_;
  const int end = std::min(begin + ranks_per_node_, grid_.ranks());
  const int step = grid_.stride(span), place = grid_.coordinate(rank, span);
  const int before = std::min(place, (rank - begin) / step);
  const int after = std::min(span.ranks - 1 - place, (end - 1 - rank) / step);
  return span.ranks - (before + 1 + after);
}

int Links::partners_across_nodes(const Action& action) const {
  if (array_bytes(action) == 0) return 0;
  for (const Groups& one : groups_)
    if (one.span == action.span) return one.apart;
  return 0;
}

/// Whether a rank of this stage is on another node than its partner in the action's other stage.
bool Links::leaves_node(const Action& message) const {
  const int ranks = grid_.ranks_of_stage();
  for (int place = 0; place < ranks; ++place)
    if ((stage_ * ranks + place) / ranks_per_node_ !=
        (message.peer * ranks + place) / ranks_per_node_)
      return true;
  return false;
}

std::int64_t Links::bytes_across_nodes(const Action& action) const {
  if (action.kind == Kind::send)
    return leaves_node(action) ? action.elements * action.element_bytes : 0;
  return partners_across_nodes(action) * message_bytes(action);
}

std::int64_t Links::bytes_inside_nodes(const Action& action) const {
  if (action.kind == Kind::send)
    return leaves_node(action) ? 0 : action.elements * action.element_bytes;
  return (action.span.ranks - 1 - partners_across_nodes(action)) * message_bytes(action);
}

bool Links::spans_nodes(const Span& span) const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [&](const Groups& one) { return one.span == span && one.spans_nodes; });
}

}  // namespace ostrakon::plan
