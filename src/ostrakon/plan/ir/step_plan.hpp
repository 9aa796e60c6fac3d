// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/short_vector.hpp>
#include <ostrakon/plan/ir/axes.hpp>
#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/ir/kernel_work.hpp>
#include <ostrakon/plan/ir/kinds.hpp>
#include <ostrakon/plan/ir/layout.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/plan/ir/quantized_flat.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// Shards begin at multiples of this many elements of the flat parameter: a multiple of the block
/// in which norms are summed, so that the blocks don't depend on the number of shards.
constexpr std::int64_t shard_alignment = 64;

/// Roles of the results of the exchanges that a phase reads, in the order of Phase::reads.
constexpr Role recv_roles[most_reads] = {Role::recv_buffer, Role::second_recv_buffer};

/// A range of StepPlan::flats: all flat parameters of a unit, or some of them.
struct FlatRange {
  int first = 0;
  int end = 0;

  bool empty() const { return first == end; }
  int size() const { return end - first; }
  friend bool operator==(FlatRange a, FlatRange b) { return a.first == b.first && a.end == b.end; }
};

/// Parameters of a unit that are divided over ranks as one array, padded to equal parts. A unit has
/// a flat parameter of its frozen parameters, one of its trained ones, or both in this order; an
/// array of both holds a rank's part of the first, then its part of the second.
struct FlatParameter {
  int unit = -1;
  bool trained = true;
  std::int64_t elements = 0;  ///< number without padding
  std::int64_t padded = 0;
  QuantizedFlat quantized;  ///< how it is gathered in 8 bits; empty: in the compute dtype
};

struct Buffer {
  std::string name;
  std::int64_t bytes = 0;
  Category category = Category::other;
  Space space = Space::device;
  bool persistent = false;  ///< kept from step to step
  int first = -1;           ///< first and last action that use it
  int last = -1;
  // Only buffers of parameters, gradients and moments set the next two members.
  FlatRange flats;         ///< flat parameters that it holds, one after the other
  Spans divided;           ///< spans that each of them is divided over
  bool quantized = false;  ///< whether it holds them as QuantizedFlat says, part after part
};

struct Use {
  Role role = Role::batch;
  Access access = Access::read;
  int buffer = -1;

  Use() = default;
  Use(Role role_of_it, int index, Access how) : role(role_of_it), access(how), buffer(index) {}
};

struct Action {  // Members are ordered to leave few gaps: a plan has some hundred thousand actions.
  Kind kind = Kind::begin;
  Stream stream = Stream::compute;
  ExchangeKind exchange = ExchangeKind::gather;  ///< exchange: its kind
  bool converts = false;  ///< gather: the shard has masters, which are converted to the dtype that
                          ///< is sent, or quantized
  AddsTo adds_to = AddsTo::nothing;  ///< backward: what it adds its gradients of parameters to
  bool may_be_empty = false;         ///< exchange: Exchange::may_be_empty
  bool empty_if_even = false;        ///< exchange: Exchange::empty_if_even
  int unit = -1;
  int micro_batch = -1;
  int phase = -1;   ///< phase, where the unit has several; exchange: the phase before it
  int peer = -1;    ///< send, receive: the other stage
  int digest = -1;  ///< digest: which of StepPlan::digests it computes
  Span span;        ///< communication: its ranks; keep: as many parts as it has ranks
  /// reduce_scatter: the number of neighbouring ranks whose gradients are summed by one tree; the
  /// trees' sums are accumulated in order; 0: one tree over all.
  int tree = 0;
  std::int64_t elements = 0;       ///< how many are gathered or scattered over the span, or read
  std::int64_t element_bytes = 0;  ///< bytes of each element, as sent
  double flops = 0.0;
  KernelWork work;  ///< forward, recompute, backward: Phase::work
  /// gather: the one flat parameter that is gathered; if the gathered part is less than the buffer
  /// will hold, `divided` says what it is divided over: see StepPlan::gathered. A gather without a
  /// buffer for a rank's own part is in place. Copies and `optimize`: the flat parameter of which
  /// they take the part that `divided` says, wherever source and target hold it. A copy that names
  /// none copies a whole buffer to another of the same layout, `elements` of `element_bytes`.
  FlatRange flats;
  Spans divided;
  ShortVector<Use, 3> uses;
  /// Actions on other streams, earlier in the plan, that must have ended before this one begins.
  /// Waits that follow from others, or from earlier actions of this stream, are left out.
  ShortVector<int, 2> waits;

  /// Index of the buffer in this role, or -1.
  int buffer(Role role) const {
    for (const Use& used : uses)
      if (used.role == role) return used.buffer;
    return -1;
  }
  /// For a backward: whether it adds its gradients of parameters instead of writing them.
  bool adds_gradients() const { return adds_to != AddsTo::nothing; }
  /// For a reduce_scatter: whether it adds to what its gradient_shard holds.
  bool continues_sum() const;
};

/// What an audited step computes a digest of. Digests of parts of an array add up to that of the
/// whole, and are equal on all ranks for equal bits. Where they are of one micro-batch, plans have
/// the action for each, and ranks compute that of the one which is audited.
struct Digest {
  enum class What : std::uint8_t {
    stored,        ///< the parameters of Layouts::compute, as they are gathered, before the step
    stored_after,  ///< those again, before the update
    read,          ///< parameters that a forward or backward has read
    gradient       ///< of a leaf, which backward has completed
  };
  What what = What::stored;
  int unit = -1;          ///< whose parameters, or gradients of them
  bool again = false;     ///< of the other rank's leaf, which is computed again
  int computed = -1;      ///< read: the unit that has read them; gradient: the addend
  Kind by = Kind::begin;  ///< read: forward or backward
};

/// What a plan knows of a unit: its parameters, and where its persistent state is. Members that are
/// called as in UnitDescription are as there. Buffers are -1 where a plan has none: units without
/// trained parameters have no moments, no averages and no gradients.
struct PlannedUnit {
  std::string name;
  int number = -1;   ///< among all units of the model
  int tied_to = -1;  ///< the unit whose parameters it reads besides its own
  TiedStages tied_stages;
  FlatRange flats;                          ///< all of its flat parameters
  std::int64_t parameter_elements = 0;      ///< number of parameters, without alignment and padding
  std::vector<WholeMatrix> whole_matrices;  ///< matrices among its trained parameters, padding
                                            ///< counted
  Layouts layouts;                          ///< layouts of its flat parameters
  ExpertCapacity capacity;
  Phases forward, backward;
  std::vector<int> recompute_phases;  ///< phases of forward that a recompute runs
  int first_gradient_phase = 0;
  bool can_add_gradients = false;  ///< UnitDescription::can_add_gradients
  bool stays_gathered = false;     ///< whether parameters stay gathered until they are used last
  int masters = -1;       ///< master parameters, of those that have any; -1 also where they
                          ///< are borrowed
  int compute_copy = -1;  ///< parameters to compute with; -1: the masters are used
  int first_moments = -1;
  /// Second moments, laid out as the first ones but without whole_matrices, whose update rule has
  /// only one moment. The size is that of the rank with the most; other ranks pack theirs at the
  /// front.
  int second_moments = -1;
  int averages = -1;   ///< averages over steps of what this rank updates: Policy::averages
  int gradients = -1;  ///< gradients summed over micro-batches and ranks: live from norm to update

  /// The buffer that units compute with, or gather from.
  int compute() const { return compute_copy >= 0 ? compute_copy : masters; }
};
/// The actions of one step in plan order, the same on every rank of a stage, and the buffers
/// that they use.
///
/// Plan order is one order in which the step may run. Others follow from streams and waits: an
/// action *happens before* another if it is earlier on the same stream, or waited for, or happens
/// before one that does. Plan order is also the order of memory: a buffer begins, in whatever
/// stream, after the compute action that stands before it in the plan, and ends with a compute
/// action that has waited for all of its uses. So buffers whose lifetimes in the plan are disjoint
/// are so in any order that the waits allow; prove_memory shows it for each plan.
struct StepPlan {
  Purpose purpose = Purpose::train;
  Grid grid;
  int stage = 0;  ///< stage of the pipeline that runs this plan
  ScheduleKind schedule = ScheduleKind::one_forward_one_backward;  ///< schedule of the pipeline
  Layouts layouts;  ///< layouts of units with parts = 1; PlannedUnit has each unit's own
  std::vector<FlatParameter> flats;
  std::vector<PlannedUnit> units;
  std::int64_t frozen_count = 0;  ///< parameters that are frozen, without padding
  std::vector<Buffer> buffers;
  std::vector<Action> actions;
  int sums = -1;
  /// What the device's library of products works in; -1: nothing. Every phase of a unit may
  /// multiply, and so uses it, one after the other.
  int product_workspace = -1;
  int checkpoint = -1;  ///< copy of all that this rank saves (Policy::checkpoint_staging); -1: none
  std::vector<Digest> digests;  ///< Purpose::audit: those that ranks compare

  /// The trained, or the frozen, flat parameter of a unit; empty where there is none.
  FlatRange trained(int unit) const;
  FlatRange frozen(int unit) const;

  /// The unit whose parameters, or gradients or moments of them, a buffer holds; -1: none.
  int owner(const Buffer& buffer) const {
    return buffer.flats.empty() ? -1 : flats[buffer.flats.first].unit;
  }
  /// The layouts of that unit; of a buffer without one, those of the step.
  const Layouts& layouts_of(const Buffer& buffer) const {
    return buffer.flats.empty() ? layouts : units[owner(buffer)].layouts;
  }

  /// Elements of flat parameters that a rank has where each is divided over `divided`.
  std::int64_t elements(FlatRange range, const Spans& divided) const;
  std::int64_t padded(FlatRange range) const { return elements(range, {}); }
  /// Elements of the parts that `divided` says as `buffer` holds them; bytes if it is quantized.
  std::int64_t size_in(const Buffer& buffer, FlatRange range, const Spans& divided) const {
    return buffer.quantized ? quantized_bytes(range, divided) : elements(range, divided);
  }
  /// Bytes of quantized flat parameters that a rank has where each is divided over `divided`.
  std::int64_t quantized_bytes(FlatRange range, const Spans& divided) const;
  /// Whether a unit's parameters are gathered in 8 bits.
  bool quantizes(FlatRange range) const;
  /// The first element of a rank's part, counted from the begin of the flat parameter.
  std::int64_t first_element(int flat, const Spans& divided, int rank) const;
  /// Offset of a rank's part of a flat parameter in `buffer`, which holds at least that part: in
  /// elements, or in bytes if it is quantized.
  std::int64_t offset_in(const Buffer& buffer, int flat, const Spans& divided, int rank) const;

  /// The spans that the result of a gather, in the buffer in `role`, is divided over: those that
  /// the action names, or else those of the buffer.
  const Spans& gathered(const Action& action, Role role) const {
    return action.divided.empty() ? buffers[action.buffer(role)].divided : action.divided;
  }

  /// The spans over which gradients are summed, one after the other: spans of ranks, and the
  /// micro-batches of a rank. See sum_order.hpp.
  std::vector<Span> sum_spans() const;
  /// The number of neighbouring leaves that are summed last: see sum_order.hpp.
  std::int64_t leaves_apart() const;
  /// Returns the spans over which the gradients of a unit's backward are summed, and how.
  std::vector<SpanSum> span_sums(int unit) const;

  /// The leaf of the global batch that a rank works on as its `micro_batch`, as leaf_spans in
  /// sum_order.hpp numbers them.
  std::int64_t leaf(int rank, std::int64_t micro_batch) const;
  /// Whether an action works on the leaf of another rank, which is computed again: its micro-batch
  /// is numbered after all others.
  bool is_again(const Action& action) const {
    return purpose == Purpose::audit && action.micro_batch == grid.micro_batches();
  }

  /// Bytes of the values that an update of a unit replaces: a rank's part of the masters, then its
  /// moments.
  std::int64_t replaced_bytes(int unit) const;

  /// Returns "gather(block.3)" or "backward(head, micro-batch 2)".
  std::string describe(const Action& action) const;

  /// Bytes that a rank sends in an action, or in the whole plan: M (n - 1) / n for each collective
  /// over M bytes in a group of n ranks, and all M of a message to another stage. `audit` gathers
  /// the digests of all ranks; sums over all ranks, of some hundred bytes, are not counted.
  std::int64_t bytes_sent(const Action& action) const;
  std::int64_t bytes_sent() const;
  /// How many of bytes_sent() are not sent where experts get equally many tokens:
  /// Exchange::empty_if_even.
  std::int64_t bytes_left_out_if_even() const;
  double flops() const;

  /// Whether sums over leaves are the same additions on any number of ranks (sums_as_one_rank in
  /// sum_order.hpp), and none is rounded to be sent.
  bool sums_in_one_order() const;
  /// The number of ranks that exchange activations to compute the same samples, if another number
  /// would give other bits; else 1.
  int ranks_of_sample() const;
  /// Whether sums are bit for bit those of one rank: they are made in one order, no sample is
  /// shared by ranks, and one rank cuts matrix products as tensor ranks do.
  bool has_the_bits_of_one_rank() const {
    return sums_in_one_order() && ranks_of_sample() == 1 && grid.tensor() <= layouts.tensor_grain;
  }

  /// Hash of the actions and buffers, on which ranks have to agree.
  std::uint64_t hash() const;
};

/// Writes the plan of one step for `ranks` ranks. A pure function of its arguments.
///
/// Flat parameters are padded so that they divide into equal parts of a multiple of 64 elements.
/// policy.leaves must be a multiple of `ranks`, and `ranks` of policy.shard_group. A unit may be
/// tied to one before it, and no two to the same. Throws Error where that does not hold, where a
/// rule for units names none of the model's, and where a limit of gathers is below what one action
/// needs.
///
/// A *visit* is a forward or a backward that needs gathered parameters. Before it, its own gather
/// is written first if it is not there yet, then those of later visits as Prefetch says and
/// GatherLimit allows; they wait for the compute action before the visit, so that they run while it
/// computes, and no earlier. With in_flight_reductions = n, the reduction of a unit's gradients
/// runs while the next n units compute.
StepPlan build_step_plan(const ModelDescription& model, int ranks, const Policy& policy,
                         Purpose purpose);

/// Whether an action computes deferred phases of backward: gradients of parameters.
bool is_deferred(const StepPlan& plan, const Action& action);

}  // namespace ostrakon::plan
