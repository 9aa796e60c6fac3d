// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

using CategoryBytes = std::array<std::int64_t, categories>;

/// Bytes that are alive at the peak and belong to one unit.
struct UnitBytes {
  std::string unit;  ///< "-" for what belongs to no unit
  CategoryBytes by_category{};
  std::int64_t bytes = 0;
};

/// What a rank exchanges in collectives of one kind of group.
struct Traffic {
  int ranks = 1;              ///< of a group
  bool spans_nodes = false;   ///< whether any group of this kind has ranks on more than one node
  std::int64_t messages = 0;  ///< collectives
  std::int64_t bytes_sent = 0;
  std::int64_t smallest = 0;  ///< bytes that a collective is over: M of M (n - 1) / n
  std::int64_t median = 0;    ///< the lower one of two
  std::int64_t largest = 0;
};

/// The figures of a plan: what one rank needs, sends and computes in a step. Bytes of buffers
/// include the alignment of the arena.
struct Report {
  std::int64_t arena_bytes = 0;
  std::int64_t lower_bound_bytes = 0;  ///< most bytes alive at one action
  std::int64_t persistent_bytes = 0;
  /// Parameters, moments and summed gradients that a rank has before it updates: what sharding
  /// divides. 0 in plans that don't train.
  std::int64_t state_bytes = 0;
  std::string peak_action;
  CategoryBytes peak_by_category{};
  std::vector<UnitBytes> peak_by_unit;  ///< in the order of the units, then "-"

  int nodes = 1;
  int ranks_per_node = 1;
  Traffic shard, replicate;
  /// All bytes that a rank sends in collectives of groups that span nodes count as sent across
  /// nodes, though a ring passes some of them on inside a node. The step's sums, some kilobytes for
  /// all ranks together, count nowhere.
  std::int64_t bytes_inside_nodes = 0;
  std::int64_t bytes_across_nodes = 0;

  std::array<std::int64_t, kinds> actions{};  ///< of each kind
  std::array<double, kinds> flops{};
};

/// Bytes that an action's collective is over, or 0 for what doesn't communicate.
std::int64_t message_bytes(const StepPlan& plan, const Action& action);

/// The bytes alive at each action, those that live from step to step included.
std::vector<CategoryBytes> live_bytes(const StepPlan& plan);

/// A node is `ranks_per_node` neighbouring ranks; 0: one node has them all.
Report make_report(const StepPlan& plan, const MemoryPlan& memory, int ranks_per_node);

/// Tables for people.
std::string report_text(const StepPlan& plan, const Report& report);

/// The whole plan as JSON: the report, every buffer with its place in the arena, every action with
/// the buffers that it uses (as indices). One buffer or action on a line; names of fields are
/// stable.
void write_report_json(std::ostream& out, const StepPlan& plan, const MemoryPlan& memory,
                       const Report& report);

}  // namespace ostrakon::plan
