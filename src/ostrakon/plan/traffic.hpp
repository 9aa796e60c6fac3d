// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <ostrakon/plan/step_plan.hpp>
#include <vector>

namespace ostrakon::plan {

/// The groups by which traffic is counted: all ranks of an axis, in one level or in two, or
/// neighbours along the shard axis over which a copy kept after forward is divided.
enum class Group { shard, replicate, kept, tensor };
constexpr Named<Group> group_names[] = {{Group::shard, "shard"},
                                        {Group::replicate, "replicate"},
                                        {Group::kept, "kept"},
                                        {Group::tensor, "tensor"}};
constexpr const char* name(Group group) { return name_in(group_names, group); }
constexpr int groups = 4;
/// Finds the group of each action that communicates or keeps a part; those of others mean nothing.
std::vector<Group> find_groups(const StepPlan& plan);

/// Bytes of the whole array that an action's collective is over, or 0 for what doesn't communicate.
std::int64_t array_bytes(const Action& action);

/// Bytes that an action sends to each of the other ranks of its group, or 0.
std::int64_t message_bytes(const Action& action);

/// Bytes that an action copies between host and device memory, or 0; and those of all actions of a
/// kind, copy_to_device or copy_to_host.
std::int64_t copied_bytes(const Action& action);
std::int64_t copied_bytes(const StepPlan& plan, Kind kind);

/// Bytes of masters, moments and gradients that the host's stream reads or writes in an action, or
/// in a step, each once for an action: what updates on the host take time for.
std::int64_t bytes_on_host(const StepPlan& plan, const Action& action);
std::int64_t bytes_on_host(const StepPlan& plan);

/// Knows which of a rank's partners in collectives are on other nodes: those of the action's own
/// span, in one level or in two. A node is `ranks_per_node` neighbouring ranks; the rank is the one
/// that sends the most across nodes in the step: any of them where groups and nodes divide evenly.
/// What is counted is a message to each partner. An all-to-all sends just that. An all-gather of
/// MPI's may pass parts on from rank to rank: in one level across nodes, a ring sends less across
/// them.
class Links {
 public:
  /// 0: one node has all ranks.
  Links(const StepPlan& plan, int ranks_per_node);

  int ranks_per_node() const { return ranks_per_node_; }

  /// Partners of the rank on other nodes, in the group of `action`; 0 for what doesn't communicate.
  int partners_across_nodes(const Action& action) const;

  /// What the rank sends of a collective, or as a message, to ranks on other nodes, and to those on
  /// its own.
  std::int64_t bytes_across_nodes(const Action& action) const;
  std::int64_t bytes_inside_nodes(const Action& action) const;

  /// Whether a rank of any group of such ranks has partners on other nodes.
  bool spans_nodes(const Span& span) const;

 private:
  /// The groups of a span.
  struct Groups {
    Span span;
    std::int64_t bytes_to_each = 0;  ///< that a rank sends to each of the others in a step
    int apart = 0;                   ///< partners of the rank on other nodes
    bool spans_nodes = false;
  };
  void find_groups(const StepPlan& plan);
  int count_apart(const Span& span, int rank) const;
  bool leaves_node(const Action& message) const;

  int ranks_per_node_ = 1;
  Grid grid_;
  int stage_ = 0;
  std::vector<Groups> groups_;
};

}  // namespace ostrakon::plan
