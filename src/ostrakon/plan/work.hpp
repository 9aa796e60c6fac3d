// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <ostrakon/plan/step_plan.hpp>
#include <vector>

namespace ostrakon::plan {

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

/// Which of a rank's partners in collectives are on other nodes. A node is `ranks_per_node`
/// neighbouring ranks; the rank is the one that sends the most across nodes in the step: any of
/// them where groups and nodes divide evenly.
class Links {
 public:
  /// 0: one node has all ranks.
  Links(const StepPlan& plan, int ranks_per_node);

  int ranks_per_node() const { return ranks_per_node_; }

  /// Partners of the rank on other nodes, in the group of `action`; 0 for what doesn't communicate.
  int partners_across_nodes(const Action& action) const;

  /// What the rank sends of a collective to ranks on other nodes, and to those on its own.
  std::int64_t bytes_across_nodes(const Action& action) const;
  std::int64_t bytes_inside_nodes(const Action& action) const;

  /// Ranks of the groups of a kind, the most, and whether any has ranks on more than one node.
  int ranks(Group group) const;
  bool spans_nodes(Group group) const;

 private:
  /// Groups of one kind and size.
  struct Groups {
    Group group = Group::shard;
    int ranks = 1;
    std::int64_t bytes_to_each = 0;  ///< that a rank sends to each of the others in a step
    int apart = 0;                   ///< partners of the rank on other nodes
    bool spans_nodes = false;
  };
  void find_groups(const StepPlan& plan);
  int count_apart(const StepPlan& plan, const Groups& one, int rank) const;

  int ranks_per_node_ = 1;
  std::vector<Groups> groups_;
};

}  // namespace ostrakon::plan
