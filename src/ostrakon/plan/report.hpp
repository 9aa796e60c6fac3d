// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <ostrakon/plan/gradients.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/plan/timing.hpp>
#include <ostrakon/plan/traffic.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

using CategoryBytes = std::array<std::int64_t, categories>;

/// Live bytes at the peak that belong to one unit.
struct UnitBytes {
  std::string unit;  ///< "-" for what belongs to no unit
  CategoryBytes by_category{};
  std::int64_t bytes = 0;
};

/// The sizes of what there are several of, in bytes.
struct Sizes {
  std::int64_t smallest = 0;
  std::int64_t median = 0;  ///< the lower one of two
  std::int64_t largest = 0;
};

/// What a rank sends over one span of ranks.
struct TrafficOfSpan {
  Span span;
  bool spans_nodes = false;
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_across_nodes = 0;
};

/// What a rank exchanges in collectives of one kind of group. A collective over an array of M bytes
/// among n ranks counts as n - 1 messages of M / n bytes, one to each of the others: that is an
/// all-to-all, and what an all-gather comes to, whichever way the bytes take.
struct Traffic {
  int ranks = 1;             ///< of a group; of groups kept after forward, the most
  bool spans_nodes = false;  ///< whether any group of this kind has ranks on more than one node
  std::int64_t collectives = 0;
  std::int64_t messages = 0;
  std::int64_t bytes_sent = 0;
  std::int64_t bytes_across_nodes = 0;  ///< of bytes_sent
  Sizes array;                          ///< M, of each collective
  Sizes message;                        ///< M / n, of each collective
  /// Where collectives are in two levels: what goes over the ranks of each. Else empty.
  std::vector<TrafficOfSpan> levels;
};

/// What may run at the same time, as far as streams and waits say: a plan has no times.
struct OverlapBytes {
  /// Bytes that a rank sends in collectives that may overlap with a forward, a backward or an
  /// update, on the device or on the host: one that happens neither before the collective nor after
  /// it.
  std::int64_t bytes_while_computing = 0;
  std::int64_t collectives_while_computing = 0;
  /// All others: the first gathers of a step, its last reduction, all that compute stalls for.
  std::int64_t bytes_while_nothing_computes = 0;
  std::int64_t collectives_while_nothing_computes = 0;
  /// What is copied between host and device memory while a rank computes.
  std::int64_t copied_while_computing = 0;
  std::int64_t copies_while_computing = 0;
  std::int64_t copied_while_nothing_computes = 0;
  std::int64_t copies_while_nothing_computes = 0;
  /// Most gathered parameters that are in flight or in their first use; within GatherLimit.
  std::int64_t most_units_in_flight = 0;
  std::int64_t most_bytes_in_flight = 0;
  /// Most gathered parameters that are there at all, with those that stay whole after forward.
  std::int64_t most_units_gathered = 0;
  std::int64_t most_bytes_gathered = 0;
};

/// The share of all bytes that are sent, and of all that are copied, that may be while a rank
/// computes: in percent, 0 where there are none.
double while_computing_percent(const OverlapBytes& overlap);
double copied_while_computing_percent(const OverlapBytes& overlap);

/// Elements of the flat parameters of all units.
struct Elements {
  std::int64_t parameters = 0;     ///< before padding
  std::int64_t padded = 0;         ///< frozen and trained
  std::int64_t padded_frozen = 0;  ///< of those that are frozen
};
Elements count_elements(const StepPlan& plan);

/// The room of the plan's experts, which are alike in all units; no rows where ranks share none.
ExpertRoom expert_room(const StepPlan& plan);

/// A setting that a plan was made with, as the caller names and writes it.
struct Setting {
  std::string key;
  std::string value;
  bool has_effect = true;  ///< false: it was given, but changes nothing with the others
};
/// The keys of those that have no effect.
std::vector<std::string> without_effect(const std::vector<Setting>& strategy);

/// What a rank needs of one memory space. Bytes of buffers include the alignment of the arena.
struct MemoryUse {
  std::int64_t arena_bytes = 0;
  std::int64_t lower_bound_bytes = 0;  ///< peak live bytes
  std::int64_t persistent_bytes = 0;
  /// Parameters, moments and summed gradients that a rank has before it updates: what sharding
  /// divides. 0 in plans that don't train.
  std::int64_t state_bytes = 0;
  std::string peak_action;  ///< as describe_at
  CategoryBytes peak_by_category{};
  GradientBytes peak_gradients;         ///< of the category gradients at the peak, apart
  std::vector<UnitBytes> peak_by_unit;  ///< in the order of the units, then "-"
};

/// How long a step takes on a machine of these rates, estimated from streams and waits.
struct Estimate {
  Rates rates;
  Timing timing;
  double tokens_per_second = 0.0;  ///< of all ranks
  double mfu = 0.0;                ///< model_flops over what the rank could compute in that time
};

/// What a rank of a pipeline's stage has and does.
struct StageSummary {
  std::string units;            ///< of each chunk: "embedding to block.2, block.6 to head"
  std::int64_t parameters = 0;  ///< of these
  int stay_gathered = 0;        ///< units, until their last use in the step
  std::int64_t deferred = 0, backwards = 0;  ///< in a step, those that defer gradients of all
  std::int64_t arena_bytes = 0, host_arena_bytes = 0;
  std::int64_t bytes_sent = 0;  ///< to other stages in a step
  double flops = 0.0;
  double waiting = 0.0;  ///< share of the step's estimated time, where it was estimated
};

/// The figures of a plan: what one rank needs, sends, copies and computes in a step.
struct Report {
  // For the caller to fill in: a plan doesn't know its settings.
  std::vector<Setting> strategy;
  std::string computed_on;  ///< what ranks compute on, by the names of math::KernelForm
  MemoryUse device;
  MemoryUse host;

  int nodes = 1;
  int ranks_per_node = 1;
  Traffic tensor, shard, replicate, kept;
  /// The bytes of those of the n - 1 messages of a collective that go to ranks on other nodes. The
  /// figures, here and in each Traffic, are those of the rank that sends the most across nodes;
  /// where groups and nodes divide evenly that is any of them. The step's sums, some kilobytes for
  /// all ranks together, count nowhere.
  std::int64_t bytes_inside_nodes = 0;
  std::int64_t bytes_left_out_if_even = 0;  ///< of both: what exchanges that are
                                            ///< empty with even routing (experts) would send
  std::int64_t bytes_across_nodes = 0;
  std::int64_t bytes_to_device = 0;   ///< copied from host memory
  std::int64_t bytes_to_host = 0;     ///< copied from device memory
  std::int64_t bytes_on_host = 0;     ///< as bytes_on_host()
  std::int64_t checkpoint_bytes = 0;  ///< of the copy on the host that is saved, or 0
  OverlapBytes overlap;

  std::vector<StageSummary> stages;  ///< of a pipeline, for the caller to fill in

  std::optional<Estimate> estimate;  ///< for the caller to fill in; a plan has no rates

  std::array<std::int64_t, kinds> actions{};  ///< of each kind
  std::array<double, kinds> flops{};
};

/// Summarizes a plan with its arenas; `waiting` is left to the caller.
StageSummary summarize_stage(const StepPlan& plan, std::int64_t arena_bytes,
                             std::int64_t host_arena_bytes);

/// Whether a step updates parameters before it is known whether its loss and gradient are finite.
bool updates_early(const StepPlan& plan);

/// StepPlan::describe, and for actions that a step has one of in each micro-batch what they come
/// after: "gather(block.3) after backward(block.5, micro-batch 2)".
std::string describe_at(const StepPlan& plan, int action);

/// The live bytes of one memory space at each action, persistent ones included.
std::vector<CategoryBytes> live_bytes(const StepPlan& plan, Space space = Space::device);

/// A node is `ranks_per_node` neighbouring ranks; 0: one node has them all. `memory` and
/// `host_memory` are the plan's, in device and in host memory.
Report make_report(const StepPlan& plan, const MemoryPlan& memory, const MemoryPlan& host_memory,
                   int ranks_per_node);

}  // namespace ostrakon::plan
