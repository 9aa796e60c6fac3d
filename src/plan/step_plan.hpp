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
  backward,
  release,           ///< the gathered parameters end here
  loss,              ///< add a micro-batch's losses to the step's sums
  reduce_scatter,    ///< sum a unit's gradients over ranks, keep this rank's part
  accumulate,        ///< add one partial sum over micro-batches to another
  norm,              ///< add the squares of a unit's gradient to the step's sums
  clip,              ///< sum the sums over ranks; the loss, the norm, the clip coefficient
  gather_gradients,  ///< all-gather summed gradients where every rank updates all parameters
  optimize,          ///< update a unit's parameters
  visit              ///< show a unit's parameters to the caller (export)
};
constexpr int kinds = static_cast<int>(Kind::visit) + 1;
const char* name(Kind kind);

/// The queue that an action belongs to. Today's executor runs all queues inline, in plan order.
enum class Stream { compute, gather, reduce };
const char* name(Stream stream);

/// What a buffer is to an action.
enum class Role {
  batch,
  parameters,  ///< as computed with: gathered, or the shard itself where it is the whole
  lender_parameters,
  shard,  ///< this rank's master parameters
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
  source,          ///< of an accumulation
  staging,
  sums
};

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

struct Buffer {
  std::string name;
  Category category = Category::other;
  std::int64_t bytes = 0;
  bool persistent = false;  ///< lives from step to step
  int first = -1;           ///< first and last action that use it
  int last = -1;
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
  std::int64_t elements = 0;  ///< of the unit's padded flat parameter (communication), or of this
                              ///< rank's part (norm, accumulate, optimize)
  double flops = 0.0;
  bool gradients_opened = false;  ///< backward of a lender after its borrower's
  std::vector<Use> uses;

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
struct StepPlan {
  Purpose purpose = Purpose::train;
  int ranks = 1;
  int shards = 1;                  ///< ranks that share one copy of the parameters
  bool strided = false;            ///< how leaves are dealt to ranks, see leaf()
  std::int64_t micro_batches = 1;  ///< leaves of one rank
  std::vector<std::string> unit_names;
  std::vector<std::int64_t> padded_elements;  ///< of each unit's flat parameter
  std::vector<Buffer> buffers;
  std::vector<Action> actions;

  // Where state that lives from step to step is: of each unit; moments and sums only where a plan
  // has them.
  std::vector<int> parameters;
  std::vector<int> first_moments;
  std::vector<int> second_moments;
  int sums = -1;

  /// The leaf of the global batch that `rank` works on as its `micro_batch`. Runs of neighbours
  /// where a rank sums its leaves first, strided where ranks are summed first: either way the sums
  /// are nodes of the same tree.
  std::int64_t leaf(int rank, std::int64_t micro_batch) const {
    return strided ? micro_batch * ranks + rank : rank * micro_batches + micro_batch;
  }

  /// "gather(block.3)", "backward(head, micro-batch 2)".
  std::string describe(const Action& action) const;

  /// Bytes that a rank sends in this plan: M (ranks - 1) / ranks for each collective over M bytes.
  std::int64_t bytes_sent() const;
  double flops() const;

  /// Whether sums over leaves are bit for bit those of one rank: where ranks are summed first, if
  /// the ranks are a power of two; where a rank's leaves are summed first, if these are.
  bool has_the_bits_of_one_rank() const;

  /// Hash of the actions and buffers, which ranks have to agree on.
  std::uint64_t hash() const;
};

/// Writes the plan of one step for `ranks` ranks. A pure function of its arguments.
///
/// Parameters, gradients and moments of a unit are one flat array each, padded so that it divides
/// into equal parts of a multiple of 64 elements. policy.leaves must be a multiple of `ranks`.
/// Only the last unit may borrow parameters. Throws Error where that does not hold.
StepPlan build_step_plan(const ModelDescription& model, int ranks, const Policy& policy,
                         Purpose purpose);

}  // namespace ostrakon::plan
