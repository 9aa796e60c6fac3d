// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/policy.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// Shards begin at multiples of this many elements of the flat parameter: a multiple of the block
/// in which norms are summed, so that the blocks don't depend on the number of shards.
constexpr std::int64_t shard_alignment = 64;

/// What an action does. `unit` and `micro_batch` of the action say to what.
enum class Kind {
  begin,   ///< clear the step's sums
  load,    ///< tokens and targets of a micro-batch
  gather,  ///< all-gather a unit's parameters from their shards
  forward,
  recompute,  ///< forward again, for what backward reads
  backward,
  keep,              ///< copy the part of gathered parameters that stays after forward
  release,           ///< buffers end here: what used them on other streams is waited for
  loss,              ///< add a micro-batch's losses to the step's sums
  reduce_scatter,    ///< sum a unit's gradients over ranks, keep this rank's part
  accumulate,        ///< add one partial sum over micro-batches to another
  norm,              ///< add the squares of a unit's gradient to the step's sums
  clip,              ///< sum the sums over ranks; the loss, the norm, the clip coefficient
  gather_gradients,  ///< all-gather summed gradients where a rank updates more than its own part;
                     ///< or directions, of which orthogonalize needs whole matrices
  direction,         ///< momentum of whole matrices, which replaces their gradients
  orthogonalize,     ///< those whole matrices that this rank updates some of
  optimize,          ///< update a unit's parameters
  gather_updates,    ///< all-gather updated parameters, in place, where a rank updates less than it
                     ///< has
  copy_to_device,    ///< between host and device memory: see Action::segment
  copy_to_host,
  visit  ///< show a unit's parameters to the caller (export)
};
constexpr int kinds = static_cast<int>(Kind::visit) + 1;
const char* name(Kind kind);
/// Whether it is a collective over parameters or gradients.
bool communicates(Kind kind);

/// The queue that an action belongs to. Actions of one stream run one after the other, in plan
/// order; those of different streams run at the same time unless one waits for the other.
enum class Stream {
  compute,
  gather,
  reduce,
  upload,    ///< copies from host to device
  download,  ///< copies from device to host
  host       ///< what the host computes: sums, norms and updates of what is in its memory
};
const char* name(Stream stream);
constexpr int streams = 6;

/// What a buffer is to an action.
enum class Role {
  batch,
  parameters,  ///< as computed with: gathered, or the shard itself where it is the whole
  lender_parameters,
  shard,  ///< this rank's master parameters, or the part that it kept after forward
  first_moment,
  second_moment,
  input,
  output,
  saved,
  workspace,
  gradient,  ///< of activations, travelling backward
  parameter_gradients,
  lender_gradients,
  gradient_shard,  ///< summed over ranks, this rank's part
  packed,          ///< gradients as they travel
  source,          ///< of an accumulation or a copy
  target,          ///< of a copy
  staging,
  sums,
  ended,       ///< of a release
  host_batch,  ///< as read from files, on the host
  host_sums    ///< as exchanged between ranks, on the host
};

/// How much of a unit's flat parameter: all; the part of one rank of a shard group; or that part
/// divided once more, over the replicas, so that all ranks have different ones.
enum class Part { whole, group, rank };

/// A unit's flat parameter is two, one after the other: first what is frozen, then what is trained.
/// Each is padded and divided over ranks by itself, and each part has its piece of both.
enum class Segment { frozen, trained, both };

/// Which ranks take part in a communication: the shard group; the ranks with the same place in
/// other shard groups; or the neighbours within the shard group over which a copy kept after
/// forward is divided.
enum class Group { shard, replicate, kept };
constexpr int groups = 3;
const char* name(Group group);

enum class Access { read, write, read_write };

/// What bytes are for, as reported to people.
enum class Category {
  parameters,
  optimizer,
  gathered,
  gradients,
  activations,
  workspace,
  staging,
  other
};
const char* name(Category category);
constexpr int categories = 8;

/// The memory that bytes are in. Each has an arena of its own; on a build without devices both are
/// host memory.
enum class Space { device, host };
constexpr int spaces = 2;
const char* name(Space space);

struct Buffer {
  std::string name;
  Category category = Category::other;
  Space space = Space::device;
  std::int64_t bytes = 0;
  bool persistent = false;  ///< lives from step to step
  int first = -1;           ///< first and last action that use it
  int last = -1;
  // Of parameters, gradients and moments: what it holds of a unit's flat parameter.
  Part part = Part::whole;
  Segment segment = Segment::both;  ///< both or trained
};

struct Use {
  Role role = Role::batch;
  int buffer = -1;
  Access access = Access::read;
};

struct Action {
  Kind kind = Kind::begin;
  Stream stream = Stream::compute;
  int unit = -1;
  int micro_batch = -1;
  Group group = Group::shard;  ///< of a communication
  int group_ranks = 1;         ///< its ranks; of `keep`, into how many parts
  std::int64_t elements = 0;   ///< that it is about: gathered or scattered over the group, or read
  std::int64_t element_bytes = 0;  ///< of those, as they travel
  bool converts = false;  ///< gather: its shard are masters, which travel in another format
  /// Gather: of the segment, which both its buffers hold. Copies and `optimize`: of this segment
  /// the `part`, wherever source and target hold it. Copies with `both` copy all of a buffer to
  /// another of the same form, `elements` of `element_bytes`.
  Segment segment = Segment::trained;
  Part part = Part::whole;
  double flops = 0.0;
  bool gradients_opened = false;  ///< backward of a lender after its borrower's
  std::vector<Use> uses;
  /// Actions on other streams, earlier in the plan, that must be done before this one begins. As
  /// few as are needed: none that the others, or earlier actions of this stream, wait for already.
  std::vector<int> waits;

  /// Index of the buffer in this role, or -1.
  int buffer(Role role) const;
};

/// What a plan is for. All plans of a run share one arena and its persistent buffers.
enum class Purpose {
  train,              ///< one optimizer step
  evaluate,           ///< losses of one global batch, nothing else
  export_parameters,  ///< every unit's parameters, whole, one unit after the other
  decode              ///< forward of one sequence, keeping what later rows need (one rank)
};

/// The actions of one step in program order, the same on every rank, and the buffers that they use.
///
/// Program order is one order in which the step may run. Others follow from streams and waits: an
/// action *happens before* another if it is earlier on the same stream, or waited for, or happens
/// before one that does. Program order is also the order of memory: a buffer begins, in whatever
/// stream, after the compute action that stands before it in the plan, and ends with a compute
/// action that has waited for all of its uses. So buffers whose lifetimes in the plan don't meet
/// never meet in any order that the waits allow; prove_memory shows it for each plan.
struct StepPlan {
  Purpose purpose = Purpose::train;
  int ranks = 1;
  int group_ranks = 1;            ///< ranks of a shard group
  Part stored = Part::whole;      ///< masters that a rank keeps from step to step
  Part optimized = Part::whole;   ///< parameters that a rank updates: moments are of these
  Space updates = Space::device;  ///< where parameters are updated: moments and gradients are there
  Accumulation accumulation = Accumulation::reduce_last;  ///< never automatic
  std::int64_t micro_batches = 1;                         ///< leaves of one rank
  std::int64_t element_bytes = 4;  ///< of parameters as they are computed with
  std::int64_t master_bytes = 4;   ///< of parameters as they are updated, and of gradients
  std::vector<std::string> unit_names;
  std::vector<std::int64_t> parameter_elements;  ///< of each unit's flat parameter, before padding
  std::vector<std::int64_t> padded_elements;     ///< of each unit's trained segment
  std::vector<std::int64_t> padded_frozen;       ///< of each unit's frozen segment
  std::int64_t frozen_count = 0;                 ///< parameters that are frozen, without padding
  std::vector<std::vector<WholeMatrix>> whole_matrices;  ///< of each unit
  std::vector<Buffer> buffers;
  std::vector<Action> actions;

  // Where state that lives from step to step is: of each unit; moments and sums only where a plan
  // has them. Units without trained parameters have no moments and no gradients: -1.
  std::vector<int> parameters;  ///< masters, of both segments
  std::vector<int> working;     ///< copies to compute with, where they are not the masters
  std::vector<int> first_moments;
  /// As the first, but without what is in whole_matrices, whose rule has only one: as many bytes as
  /// the rank with the most has, those of the others packed at the front.
  std::vector<int> second_moments;
  std::vector<int> gradients;  ///< summed over micro-batches and ranks: alive from norm to update
  int sums = -1;
  int checkpoint = -1;  ///< a copy of what this rank saves, where Policy::checkpoint_staging

  int replicas() const { return ranks / group_ranks; }

  /// Elements of a unit that a part of its flat parameter has, and the first of those of a rank.
  /// Of the trained segment, unless another is named.
  std::int64_t elements(int unit, Part part, Segment segment = Segment::trained) const {
    const std::int64_t whole = (segment != Segment::trained ? padded_frozen[unit] : 0) +
                               (segment != Segment::frozen ? padded_elements[unit] : 0);
    return whole / (part == Part::whole ? 1 : part == Part::group ? group_ranks : ranks);
  }
  /// Counted from the begin of the segment, frozen or trained.
  std::int64_t first_element(int unit, Part part, int replica, int group_rank,
                             Segment segment = Segment::trained) const {
    if (part == Part::whole) return 0;
    const std::int64_t first = group_rank * elements(unit, Part::group, segment);
    return part == Part::group ? first : first + replica * elements(unit, Part::rank, segment);
  }
  /// Where this rank's `part` of a segment, frozen or trained, begins in `buffer`, which holds that
  /// part or more of the unit: in elements.
  std::int64_t offset_in(const Buffer& buffer, int unit, Part part, int replica, int group_rank,
                         Segment segment = Segment::trained) const {
    const bool after_frozen = segment == Segment::trained && buffer.segment == Segment::both;
    return (after_frozen ? elements(unit, buffer.part, Segment::frozen) : 0) +
           first_element(unit, part, replica, group_rank, segment) -
           first_element(unit, buffer.part, replica, group_rank, segment);
  }

  /// The leaf of the global batch that a rank, given by its replica and its place in the shard
  /// group, works on as its `micro_batch`. Neighbouring leaves go to whoever is summed first: the
  /// micro-batches of a rank, the ranks of a shard group, or all ranks. In each case the sums are
  /// nodes of the same tree.
  std::int64_t leaf(int replica, int group_rank, std::int64_t micro_batch) const;

  /// "gather(block.3)", "backward(head, micro-batch 2)".
  std::string describe(const Action& action) const;

  /// Bytes that a rank sends in this plan: M (n - 1) / n for each collective over M bytes in a
  /// group of n. Of one kind of group, or of all.
  std::int64_t bytes_sent(Group group) const;
  std::int64_t bytes_sent() const;
  std::int64_t bytes_sent(const Action& action) const;
  double flops() const;

  /// Whether sums over leaves are bit for bit those of one rank. Micro-batches, ranks of a group
  /// and replicas are summed one after the other, in the order that `accumulation` says: all but
  /// the last of them that are more than one must be powers of two, and none may be rounded to
  /// travel.
  bool has_the_bits_of_one_rank() const;

  /// Hash of the actions and buffers, which ranks have to agree on.
  std::uint64_t hash() const;
};

/// Writes the plan of one step for `ranks` ranks. A pure function of its arguments.
///
/// Parameters, gradients and moments of a unit are one flat array each, padded so that it divides
/// into equal parts of a multiple of 64 elements. policy.leaves must be a multiple of `ranks`, and
/// `ranks` of policy.shard_group. Only the last unit may borrow parameters. Throws Error where that
/// does not hold, where a rule for units names none of the model's, and where a limit of gathers
/// leaves no room for what one action needs.
///
/// A *visit* is a forward or a backward that needs gathered parameters. When it comes up, its own
/// gather is written first if it is not there yet, then those of later visits as Prefetch says and
/// GatherLimit allows; they wait for the compute action before the visit, so that they run while it
/// computes, and no earlier. With in_flight_reductions = n, the reduction of a unit's gradients
/// runs while the next n units compute.
StepPlan build_step_plan(const ModelDescription& model, int ranks, const Policy& policy,
                         Purpose purpose);

}  // namespace ostrakon::plan
