// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <vector>

namespace ostrakon::plan {

/// The groups by which traffic is counted: all ranks of an axis, in one level or two, or the
/// neighbours along the shard axis that share a copy kept after forward.
enum class Group { shard, replicate, kept, tensor };
constexpr Named<Group> group_names[] = {{Group::shard, "shard"},
                                        {Group::replicate, "replicate"},
                                        {Group::kept, "kept"},
                                        {Group::tensor, "tensor"}};
constexpr const char* name(Group group) { return name_in(group_names, group); }
constexpr int groups = 4;
/// Returns the group of each action that communicates or keeps a part; entries of other actions
/// have no meaning.
std::vector<Group> find_groups(const StepPlan& plan);

/// Bytes of the whole array of an action's collective; 0 where it doesn't communicate.
std::int64_t array_bytes(const Action& action);

/// Bytes that an action sends to each of the other ranks of its group, or 0.
std::int64_t message_bytes(const Action& action);

/// Bytes that an action copies between host and device memory, or 0; and the sum over all actions
/// of a kind, copy_to_device or copy_to_host.
std::int64_t copied_bytes(const Action& action);
std::int64_t copied_bytes(const StepPlan& plan, Kind kind);

/// Bytes of masters, moments and gradients that the host's stream reads or writes in an action, or
/// in a step, each once per action. Updates on the host take time for them.
std::int64_t bytes_on_host(const StepPlan& plan, const Action& action);
std::int64_t bytes_on_host(const StepPlan& plan);

/// Counts the partners of a rank in collectives that are on other nodes, in the span of each
/// action, in one level or two. A node is `ranks_per_node` neighbouring ranks; the rank is the one
/// that sends the most across nodes in the step: any rank if groups and nodes divide evenly. Each
/// collective counts as one message to each partner, as an all-to-all sends it. An all-gather in
/// MPI may pass parts on from rank to rank: a ring across nodes in one level sends less across
/// them.
class Links {
 public:
  /// `ranks_per_node`: 0 where one node has all ranks.
  Links(const StepPlan& plan, int ranks_per_node);

  int ranks_per_node() const { return ranks_per_node_; }

  /// The number of the rank's partners on other nodes in the group of `action`; 0 where it doesn't
  /// communicate.
  int partners_across_nodes(const Action& action) const;

  /// Bytes of a collective or a message that the rank sends to ranks on other nodes, and to those
  /// on its own node.
  std::int64_t bytes_across_nodes(const Action& action) const;
  std::int64_t bytes_inside_nodes(const Action& action) const;

  /// Whether any group of this span has ranks on several nodes.
  bool spans_nodes(const Span& span) const;

 private:
  /// The groups of a span.
  struct Groups {
    Span span;
    std::int64_t bytes_to_each = 0;  ///< bytes that a rank sends to each of the others in a step
    int apart = 0;                   ///< number of the rank's partners on other nodes
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
