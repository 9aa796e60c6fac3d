// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/passes/gradients.hpp>
#include <ostrakon/plan/timing/timing.hpp>
#include <ostrakon/plan/timing/traffic.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

using CategoryBytes = std::array<std::int64_t, categories>;

/// Live bytes at the peak that belong to one unit.
struct UnitBytes {
  std::string unit;  ///< "-" for bytes that belong to no unit
  CategoryBytes by_category{};
  std::int64_t bytes = 0;
};

/// Smallest, median and largest of several sizes, in bytes.
struct Sizes {
  std::int64_t smallest = 0;
  std::int64_t median = 0;  ///< the lower one of two
  std::int64_t largest = 0;
};

/// Traffic of a rank over one span of ranks.
struct TrafficOfSpan {
  Span span;
  bool spans_nodes = false;
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_across_nodes = 0;
};

/// Traffic of a rank in collectives of one kind of group. A collective over an array of M bytes
/// among n ranks counts as n - 1 messages of M / n bytes, one to each of the others: that is what
/// an all-to-all sends, and the sum that an all-gather sends by any algorithm.
struct Traffic {
  int ranks = 1;             ///< ranks of a group; for copies kept after forward, of the largest
                             ///< group
  bool spans_nodes = false;  ///< whether any group of this kind has ranks on more than one node
  std::int64_t collectives = 0;
  std::int64_t messages = 0;
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_across_nodes = 0;  ///< how many of bytes_sent go to other nodes
  Sizes array;                          ///< M of each collective
  Sizes message;                        ///< M / n of each collective
  /// Traffic over the ranks of each level, if collectives have two levels. Else empty.
  std::vector<TrafficOfSpan> levels;
};

/// Overlap that streams and waits allow: a plan has no times.
struct OverlapBytes {
  /// Bytes that a rank sends in collectives that may overlap with a forward, a backward or an
  /// update, on the device or on the host: with one that happens neither before nor after the
  /// collective.
  std::int64_t bytes_while_computing = 0;
  std::int64_t collectives_while_computing = 0;
  /// All other bytes: the first gathers of a step, its last reduction, all that compute stalls for.
  std::int64_t bytes_while_nothing_computes = 0;
  std::int64_t collectives_while_nothing_computes = 0;
  /// Bytes copied between host and device memory that may overlap with compute in the same sense.
  std::int64_t copied_while_computing = 0;
  std::int64_t copies_while_computing = 0;
  std::int64_t copied_while_nothing_computes = 0;
  std::int64_t copies_while_nothing_computes = 0;
  /// The most gathered parameters that are in flight or in their first use; within GatherLimit.
  std::int64_t most_units_in_flight = 0;
  std::int64_t most_bytes_in_flight = 0;
  /// The most gathered parameters in memory, including those that stay after forward.
  std::int64_t most_units_gathered = 0;
  std::int64_t most_bytes_gathered = 0;
};

/// The share of the bytes sent, or copied, that may overlap with compute: in percent; 0 where there
/// are none.
double while_computing_percent(const OverlapBytes& overlap);
double copied_while_computing_percent(const OverlapBytes& overlap);

/// Elements of the flat parameters of all units.
struct Elements {
  std::int64_t parameters = 0;     ///< number without padding
  std::int64_t padded = 0;         ///< frozen and trained
  std::int64_t padded_frozen = 0;  ///< frozen alone
};
Elements count_elements(const StepPlan& plan);

/// The ExpertCapacity of the plan's units, which is the same in all; `rows` is 0 where ranks share
/// no experts.
ExpertCapacity expert_capacity(const StepPlan& plan);

/// A setting that a plan was made with: its key and value as the caller writes them.
struct Setting {
  std::string key;
  std::string value;
  bool has_effect = true;  ///< false: it was given, but changes nothing in combination with the
                           ///< others
};
/// The keys of settings that have no effect.
std::vector<std::string> without_effect(const std::vector<Setting>& strategy);

/// Memory that a rank needs in one space. Bytes of buffers include the alignment of the arena.
struct MemoryUse {
  std::int64_t arena_bytes = 0;
  std::int64_t lower_bound_bytes = 0;  ///< peak live bytes
  std::int64_t persistent_bytes = 0;
  /// Parameters, moments and summed gradients that a rank has before it updates: the state that
  /// sharding divides. 0 in plans that don't train.
  std::int64_t state_bytes = 0;
  std::string peak_action;  ///< as by describe_at
  CategoryBytes peak_by_category{};
  GradientBytes peak_gradients;         ///< the category gradients at the peak, by use
  std::vector<UnitBytes> peak_by_unit;  ///< in the order of the units, then "-"
};

/// Time of a step on a machine with these rates, estimated from streams and waits.
struct Estimate {
  Rates rates;
  Timing timing;
  double tokens_per_second = 0.0;  ///< all ranks together
  double mfu = 0.0;                ///< model_flops over the operations that the rank could compute
                                   ///< in that time
};

/// Figures of a rank in a stage of a pipeline.
struct StageSummary {
  std::string units;            ///< names, by chunk: "embedding to block.2, block.6 to head"
  std::int64_t parameters = 0;  ///< parameters of these units
  int stay_gathered = 0;        ///< units that stay gathered until their last use in the step
  std::int64_t deferred = 0, backwards = 0;  ///< backwards in a step: those that defer gradients,
                                             ///< and all
  std::int64_t arena_bytes = 0, host_arena_bytes = 0;
  std::int64_t bytes_sent = 0;  ///< bytes of messages to other stages in a step
  double flops = 0.0;
  double waiting = 0.0;  ///< share of the step's estimated time; 0 where none was estimated
};

/// The figures of a plan: memory, traffic, copies and operations of one rank in a step.
struct Report {
  // The caller fills these in: a plan doesn't know its settings.
  std::vector<std::pair<std::string, std::string>> model;  ///< rows about it: a name and a text
  std::vector<Setting> strategy;
  std::string
      computed_on;  ///< kind of processor that ranks compute on, by the names of math::KernelForm
  MemoryUse device;
  MemoryUse host;

  int nodes = 1;
  int ranks_per_node = 1;
  Traffic tensor, shard, replicate, kept;
  /// Bytes of the n - 1 messages of each collective, inside nodes and across them. The figures,
  /// here and in each Traffic, are those of the rank that sends the most across nodes; any rank if
  /// groups and nodes divide evenly. The step's sums, some kilobytes for all ranks together, are
  /// not counted.
  std::int64_t bytes_inside_nodes = 0;
  std::int64_t bytes_left_out_if_even = 0;  ///< part of both that exchanges which are empty with
                                            ///< even routing (experts) would send
  std::int64_t bytes_across_nodes = 0;
  std::int64_t bytes_to_device = 0;   ///< copied from host memory
  std::int64_t bytes_to_host = 0;     ///< copied from device memory
  std::int64_t bytes_on_host = 0;     ///< as bytes_on_host()
  std::int64_t checkpoint_bytes = 0;  ///< staging copy on the host of the data that is saved, or 0
  OverlapBytes overlap;

  std::vector<StageSummary> stages;  ///< filled in by the caller for a pipeline

  std::optional<Estimate> estimate;  ///< filled in by the caller, as a plan has no rates

  std::array<std::int64_t, kinds> actions{};  ///< number of actions of each kind
  std::array<double, kinds> flops{};
};

/// Summarizes a plan with its arenas; the caller sets `waiting`.
StageSummary summarize_stage(const StepPlan& plan, std::int64_t arena_bytes,
                             std::int64_t host_arena_bytes);

/// Whether a step updates parameters before it is known if its loss and gradient are finite.
bool updates_early(const StepPlan& plan);

/// Returns StepPlan::describe, and for actions that occur once per micro-batch the action before
/// them: "gather(block.3) after backward(block.5, micro-batch 2)".
std::string describe_at(const StepPlan& plan, int action);

/// The live bytes of one memory space at each action, persistent ones included.
std::vector<CategoryBytes> live_bytes(const StepPlan& plan, Space space = Space::device);

/// Makes the report. A node is `ranks_per_node` neighbouring ranks; 0: one node has them all.
/// `memory` and `host_memory` are the plan's, in device and in host memory.
Report make_report(const StepPlan& plan, const MemoryPlan& memory, const MemoryPlan& host_memory,
                   int ranks_per_node);

}  // namespace ostrakon::plan
