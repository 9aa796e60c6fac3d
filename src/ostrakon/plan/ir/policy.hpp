// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/base/names.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// The state that is divided over the ranks of a shard group.
enum class Sharding {
  none,       ///< nothing: every rank holds all parameters, gradients and moments (DDP)
  optimizer,  ///< optimizer state (ZeRO-1)
  gradients,  ///< gradients and optimizer state (ZeRO-2)
  full        ///< parameters, gradients and optimizer state (ZeRO-3, FSDP's FULL_SHARD)
};
constexpr Named<Sharding> sharding_names[] = {{Sharding::none, "none"},
                                              {Sharding::optimizer, "optimizer"},
                                              {Sharding::gradients, "gradients"},
                                              {Sharding::full, "full"}};
constexpr const char* name(Sharding sharding) { return name_in(sharding_names, sharding); }

/// The ranks over which optimizer state is divided, if it is.
enum class OptimizerGroup {
  shard_group,  ///< the shard group: replicas hold the same state
  world         ///< the replicas, too, which then exchange updated parameters
};
constexpr Named<OptimizerGroup> optimizer_group_names[] = {
    {OptimizerGroup::shard_group, "shard_group"}, {OptimizerGroup::world, "world"}};
constexpr const char* name(OptimizerGroup group) { return name_in(optimizer_group_names, group); }

enum class Accumulation {
  automatic,    ///< see accumulation_of in sum_order.hpp
  reduce_each,  ///< reduce every micro-batch's gradients over all ranks, accumulate the shards
  shard_each,   ///< reduce every micro-batch's gradients over the shard group, and once over the
                ///< replicas
  reduce_last   ///< accumulate whole gradients on the rank, reduce once
};
constexpr Named<Accumulation> accumulation_names[] = {{Accumulation::automatic, "auto"},
                                                      {Accumulation::reduce_each, "reduce_each"},
                                                      {Accumulation::shard_each, "shard_each"},
                                                      {Accumulation::reduce_last, "reduce_last"}};
constexpr const char* name(Accumulation accumulation) {
  return name_in(accumulation_names, accumulation);
}

/// The implementation of reduce-scatters of gradients.
enum class Summation {
  ordered,  ///< this program: an all-to-all, and the tree of sum_order.hpp
  library   ///< NCCL's or MPI's reduce-scatter: in its own order, in the dtype that is sent
};
constexpr Named<Summation> summation_names[] = {{Summation::ordered, "ordered"},
                                                {Summation::library, "library"}};
constexpr const char* name(Summation summation) { return name_in(summation_names, summation); }

/// Whether ranks of a node gather and reduce by reading each other's memory, instead of messages.
/// It changes no bit of the result; sums inside a node need no staging then.
enum class NodeWindows {
  automatic,  ///< the caller decides by the machine; in a plan itself: never
  always,
  never
};
constexpr Named<NodeWindows> node_windows_names[] = {{NodeWindows::automatic, "auto"},
                                                     {NodeWindows::always, "always"},
                                                     {NodeWindows::never, "never"}};
constexpr const char* name(NodeWindows windows) { return name_in(node_windows_names, windows); }

/// The order in which a rank computes its leaves. It changes no bit of the result.
enum class LeafOrder { ascending, descending, shuffled };
constexpr Named<LeafOrder> leaf_order_names[] = {{LeafOrder::ascending, "ascending"},
                                                 {LeafOrder::descending, "descending"},
                                                 {LeafOrder::shuffled, "shuffled"}};
constexpr const char* name(LeafOrder order) { return name_in(leaf_order_names, order); }

/// The part of a unit's gathered parameters that stays between its forward and its backward. In a
/// pipeline, `automatic` also stands for end_of_step for units of each stage that has memory for
/// it, see build_stage_plans.
struct Reshard {
  enum Kind {
    automatic,   ///< nothing stays, except where the gather for backward would follow at once
    always,      ///< nothing stays
    never,       ///< all stay: backward gathers nothing
    partly,      ///< one part in `ranks` stays on each rank: backward gathers over that many
                 ///< neighbours
    end_of_step  ///< all stay until their last use in the step: gathered once for all micro-batches
  };
  Kind kind = automatic;
  int ranks = 0;  ///< with `partly`, at least 2. In shard groups of so many ranks or fewer:
                  ///< `always`

  bool operator==(const Reshard& other) const { return kind == other.kind && ranks == other.ranks; }
};

/// Names the gathers that begin when a unit begins to compute, besides its own: those of the units
/// that compute next, or of units by name.
struct Prefetch {
  int depth = 1;
  std::vector<std::string> units;  ///< if not empty, these instead of the next `depth` units

  bool operator==(const Prefetch& other) const {
    return depth == other.depth && units == other.units;
  }
};

/// Bound on gathered parameters that are not yet used, or in use, in units and in bytes; 0: no
/// bound. Parameters that stay after forward (Reshard) do not count.
struct GatherLimit {
  std::int64_t units = 0;
  std::int64_t bytes = 0;

  bool operator==(const GatherLimit& other) const {
    return units == other.units && bytes == other.bytes;
  }
};

/// Whether collectives of groups that span nodes have two levels, inside the nodes and across them:
/// then a node sends as much as one rank would, instead of as much as all of its ranks.
struct Hierarchical {
  enum Kind {
    by_size,  ///< if the largest unit has at least `bytes` of gathered parameters
    never,
    always
  };
  static constexpr std::int64_t default_bytes = std::int64_t{4} << 20;
  Kind kind = by_size;
  std::int64_t bytes = default_bytes;

  bool operator==(const Hierarchical& other) const {
    return kind == other.kind && bytes == other.bytes;
  }
};

/// Settings for units whose name matches a pattern, in which * stands for any text. If several
/// rules that match set the same, the last one applies.
struct UnitRule {
  std::string pattern;
  std::optional<Reshard> reshard_after_forward;
  std::optional<Prefetch> forward_prefetch;
  std::optional<Prefetch> backward_prefetch;
};

/// Whether `name` matches `pattern`, in which each * stands for any text, also none.
bool matches(const std::string& pattern, const std::string& name);

/// Says which units recompute their saved activations in backward instead of keeping them.
struct ActivationCheckpointing {
  int every = 0;  ///< every n-th of the units that allow it, from the first; 1: all; 0: none

  bool operator==(const ActivationCheckpointing& other) const { return every == other.every; }
};

/// The optimizer state of each trained parameter.
struct Moments {
  DType dtype = DType::fp32;
};

/// The state that is kept in host memory from step to step, instead of in device memory.
enum class Offload {
  none,
  optimizer,   ///< masters, moments and gradients, which the host updates; a copy of the parameters
               ///< to compute with stays on the device, sharded like them
  parameters,  ///< masters, and copies to compute with: copied to the device for each gather and
               ///< for each update, which the device does
  all          ///< both: the device holds only gathered parameters, their gradients, and
               ///< activations
};
constexpr Named<Offload> offload_names[] = {{Offload::none, "none"},
                                            {Offload::optimizer, "optimizer"},
                                            {Offload::parameters, "parameters"},
                                            {Offload::all, "all"}};
constexpr const char* name(Offload offload) { return name_in(offload_names, offload); }

/// Whether `part`, optimizer or parameters, is in host memory. If the optimizer state is, the host
/// updates.
constexpr bool offloads(Offload offload, Offload part) {
  return offload == part || offload == Offload::all;
}

/// When units are updated on the device. It changes no bit of the result.
enum class Updates {
  after_clip,  ///< when the step's sums are known
  optimistic   ///< earlier, as if these neither clip nor skip; if they do, the update is undone,
               ///< and repeated as they say
};
constexpr Named<Updates> updates_names[] = {{Updates::after_clip, "careful"},
                                            {Updates::optimistic, "optimistic"}};
constexpr const char* name(Updates updates) { return name_in(updates_names, updates); }

/// Says which ranks are neighbours.
enum class RankOrder {
  tensor_in_node,  ///< tensor ranks, all on one node; else the run is refused
  tensor_first,    ///< tensor ranks, which may span nodes
  shard_first      ///< ranks of a shard group with the same pieces; tensor ranks are farther apart
};
constexpr Named<RankOrder> rank_order_names[] = {{RankOrder::tensor_in_node, "tensor_in_node"},
                                                 {RankOrder::tensor_first, "tensor_first"},
                                                 {RankOrder::shard_first, "shard_first"}};
constexpr const char* name(RankOrder order) { return name_in(rank_order_names, order); }

/// The order in which the stages of a pipeline compute.
enum class ScheduleKind {
  one_forward_one_backward,  ///< each stage has one chunk
  interleaved,  ///< each stage has several chunks, to shorten the time until all compute
  zero_bubble   ///< each stage has one chunk; gradients of parameters are deferred to fill the
                ///< bubble
};
constexpr Named<ScheduleKind> schedule_kind_names[] = {
    {ScheduleKind::one_forward_one_backward, "1f1b"},
    {ScheduleKind::interleaved, "interleaved"},
    {ScheduleKind::zero_bubble, "zero_bubble"}};
constexpr const char* name(ScheduleKind kind) { return name_in(schedule_kind_names, kind); }

/// Memory that zero_bubble may use for deferred gradients.
enum class ZeroBubbleMemory {
  as_1f1b,   ///< the largest arena of the same stages with 1f1b
  unlimited  ///< as much as the schedule asks for
};
constexpr Named<ZeroBubbleMemory> zero_bubble_memory_names[] = {
    {ZeroBubbleMemory::as_1f1b, "as_1f1b"}, {ZeroBubbleMemory::unlimited, "unlimited"}};
constexpr const char* name(ZeroBubbleMemory memory) {
  return name_in(zero_bubble_memory_names, memory);
}

/// How ranks share the work, as a user chooses it: in a deck or in TrainerSettings.
struct PolicyChoices {
  Sharding sharding = Sharding::full;
  RankOrder rank_order = RankOrder::tensor_in_node;
  ScheduleKind schedule = ScheduleKind::one_forward_one_backward;
  ZeroBubbleMemory zero_bubble_memory = ZeroBubbleMemory::as_1f1b;
  int chunks = 1;                ///< per stage, interleaved
  std::vector<int> chunk_units;  ///< number of units of each chunk of all stages; empty: see
                                 ///< divide_units
  OptimizerGroup shard_optimizer_over = OptimizerGroup::shard_group;
  Accumulation accumulation = Accumulation::automatic;
  Summation summation = Summation::ordered;
  LeafOrder leaf_order = LeafOrder::ascending;
  Reshard reshard_after_forward;
  Prefetch forward_prefetch;
  Prefetch backward_prefetch;
  GatherLimit in_flight_gathers;
  int in_flight_reductions = 1;  ///< units whose gradients are reduced while the next compute
  NodeWindows node_windows = NodeWindows::automatic;
  Hierarchical hierarchical;
  std::vector<UnitRule> units;
  DType reduce = DType::fp32;  ///< dtype in which gradients are sent within a shard group
  ActivationCheckpointing activation_checkpointing;
  Moments moments;
  Offload offload = Offload::none;
  /// Whether frozen parameters are kept in the dtype alone in which they are computed with, without
  /// masters.
  bool frozen_without_masters = false;
  /// Whether activations wait in host memory for backward, except those of the last units, whose
  /// backward follows at once.
  bool offload_activations = false;
  /// Speculative updates are only possible if nothing is in host memory (offload).
  Updates updates = Updates::after_clip;
};

/// What plans are made by: choices, and what follows for a model and its ranks from these and all
/// other settings. config::policy_of and train::resolve make it; it is not changed from then on.
struct Policy : PolicyChoices {
  Policy() = default;
  explicit Policy(const PolicyChoices& choices) : PolicyChoices(choices) {}

  int shard_group = 0;   ///< number of neighbours that share one copy; 0: all ranks. Divides the
                         ///< ranks
  int tensor_ranks = 1;  ///< number of neighbours that divide each unit's parameters. Divides
                         ///< shard_group
  int stages = 1;        ///< stages of the pipeline, each of as many ranks
  /// The number of ranks per node, neighbours, if all nodes have equally many; 0: one node, or they
  /// don't.
  int ranks_per_node = 0;
  int moment_count = 2;   ///< moments of each trained parameter, 0 to 2
  bool averages = false;  ///< whether an average of each trained parameter over steps is kept
  /// Whether the host may begin to update a unit as soon as its gradient is summed, overlapped with
  /// the backward of the units before it. No gradient can be clipped then, nor a step skipped.
  bool early_updates = false;
  /// Whether host memory has a staging copy of all that a rank saves, from which a checkpoint is
  /// written while training continues.
  bool checkpoint_staging = false;
  std::int64_t leaves = 1;  ///< leaves of the global batch: the unit of work that ranks compute at
                            ///< once
  /// The number of neighbours in a shard group that compute the parts of the same samples, each
  /// part a leaf. They exchange activations.
  int context_ranks = 1;
  /// The number of neighbours along shard that have some of the experts each
  /// (UnitDescription::expert_ranks), besides tensor ranks.
  int expert_ranks = 1;
  /// Bytes that a device's library of products works in, in products of one stream; 0: none.
  std::int64_t product_workspace_bytes = 0;
  /// The number of leaves, a power of two, whose gradients are summed by one tree; the trees' sums
  /// are accumulated in order; 0: one tree over all. It determines the bits of the sums.
  std::int64_t sum_grain = 0;
};

}  // namespace ostrakon::plan
