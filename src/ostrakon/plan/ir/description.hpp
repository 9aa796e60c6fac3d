// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numeric>
#include <ostrakon/plan/ir/phase.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// A matrix in the trained flat parameter of a unit, or a piece of one that is divided into pieces.
struct WholeMatrix {
  std::int64_t offset = 0;  ///< position of its first element, a multiple of 64
  std::int64_t elements = 0;
  double flops = 0.0;  ///< operations to orthogonalize it; a piece has its share

  std::int64_t end() const { return offset + elements; }
};

/// Weights in a flat parameter of a unit, or a piece of them, that are gathered in 8 bits.
struct QuantizedWeights {
  bool trained = true;  ///< whether they are in the trained flat parameter, or in the frozen one
  std::int64_t offset = 0;  ///< position of the first element there, a multiple of 64
  std::int64_t elements = 0;
};

/// Capacity of the dispatch of tokens to experts on other ranks: in rounds of `rows` at most.
struct ExpertCapacity {
  std::int64_t ranks = 1;           ///< how many neighbours in a shard group share the experts
  std::int64_t rows = 0;            ///< rows from each rank to each other one in a round; 0: no
                                    ///< dispatch
  std::int64_t rounds_if_even = 0;  ///< rounds needed if all experts get equally many tokens of
                                    ///< each leaf
  std::int64_t most_rounds = 0;     ///< rounds needed for any routing: as many are planned
};

/// What of a unit's backward may run later, after that of other units and micro-batches: the last
/// phases, which compute all gradients of parameters, and nothing else. They read the unit's input,
/// `saved` and `deferred`, but no parameters and no exchanges of earlier phases.
struct Deferral {
  int phases = 0;                ///< how many; 0: backward is not divided
  std::int64_t bytes = 0;        ///< of `deferred`, which the phases before leave for them
  Phases backward_at_once = {};  ///< phases of a backward that defers nothing, without `deferred`
};

/// How a stage shares a unit's parameters with a stage whose unit is tied to them.
struct TiedStages {
  /// The stage that owns the parameters: this stage has a copy, only for a unit of its own that is
  /// tied to them. -1: they are its own.
  int source = -1;
  int replica = -1;  ///< the stage that has such a copy of this stage's parameters; -1: none
  bool replica_has_gradient = false;  ///< whether that stage has a part of their gradient
};

/// All that a plan knows about a unit, whose parameters are gathered and released together. Sizes
/// are for one leaf: one micro-batch on one rank.
struct UnitDescription {
  std::string name;
  int number = -1;  ///< index in the whole model, for a unit of a stage; set by make_stages
  std::int64_t parameter_elements = 0;  ///< size of the flat parameter before padding to equal
                                        ///< shards
  /// Number of elements that are never updated: they have no gradient and no moments. If all are
  /// frozen, the unit's backward writes no gradients.
  std::int64_t frozen_elements = 0;
  std::int64_t trained_elements() const { return parameter_elements - frozen_elements; }
  std::int64_t frozen_count = 0;  ///< frozen_elements without those that are there for alignment
  std::int64_t alignment_elements = 0;  ///< of parameter_elements, those that are no parameter's
  std::int64_t output_bytes = 0;
  std::int64_t saved_bytes = 0;  ///< written by forward, read and used up by backward; includes
                                 ///< data that a phase keeps for a later one
  Phases forward{1};
  Phases backward{1};           ///< including recomputation within backward
  double gradient_flops = 0.0;  ///< operations of backward without recomputation
  Deferral deferral;
  /// The first phase of backward that writes gradients of parameters.
  int first_gradient_phase() const {
    return deferral.phases > 0 ? static_cast<int>(backward.size()) - deferral.phases : 0;
  }
  /// Sizes of the groups of counters that a forward in training (not a recompute) adds to in the
  /// step's sums, after those of the units before. There is a group for each layer of experts: the
  /// assignments to each expert. Empty: the unit counts nothing.
  std::vector<std::int64_t> counts;
  /// After `counts`, the unit counts how often each of `capacity.most_rounds` rounds was needed.
  ExpertCapacity capacity;
  bool recomputes = false;  ///< whether a recompute, a forward that writes `saved` and no output,
                            ///< has anything to do
  /// Whether forward or backward reads the batch. A stage without such units loads none.
  bool reads_batch = true;
  /// False where backward needs no parameters (an embedding), so that none are gathered for it.
  bool backward_reads_parameters = true;
  /// Above 1: this many neighbours of a shard group have an equal part of its parameters each,
  /// which no other of them computes with (experts). They exchange activations, and their backward
  /// leaves gradients that are summed over the leaves of all of them. With tensor ranks the flat
  /// parameter is divided over these first, then into the parts.
  int expert_ranks = 1;
  /// Whether each tensor rank has a piece of every matrix; otherwise it has some of the matrices
  /// (experts), and with `expert_ranks` a part of these.
  bool cuts_matrices = true;
  /// An earlier unit whose parameters this one computes with besides its own (tied weights), or -1.
  int tied_to = -1;
  bool tied_gradients = true;  ///< whether backward writes gradients of the tied parameters, too
  bool backward_reads_tied = true;  ///< whether backward reads the tied parameters
  /// Whether the gradients of tied parameters are summed over all leaves apart from those that the
  /// other unit's backward writes, and the two sums added last; otherwise they are added leaf by
  /// leaf.
  bool sums_tied_apart = false;
  /// Whether backward can add a micro-batch's gradients to a sum, each as a finished number, so
  /// that the sum has the bits that it has where they are written first and then added.
  bool can_add_gradients = false;
  TiedStages tied_stages;  ///< set by make_stages, for the units of a stage
  /// Matrices whose update takes all of their elements (Muon), in the order of their offsets.
  std::vector<WholeMatrix> whole_matrices;
  std::int64_t orthogonalize_workspace_bytes = 0;  ///< enough for the largest matrix
  /// Weights that are gathered in 8 bits, in the order of their offsets. The compute dtype has 16
  /// bits then, and masters 32.
  std::vector<QuantizedWeights> quantized;
};

/// Returns the unit with a backward that defers nothing.
UnitDescription at_once(UnitDescription unit);

/// The number of counters that a unit's forward adds to.
inline std::int64_t counted(const UnitDescription& unit) {
  return std::accumulate(unit.counts.begin(), unit.counts.end(), unit.capacity.most_rounds);
}

/// Neighbouring units of a model: [first, end).
struct UnitRange {
  int first = 0;
  int end = 0;

  bool has(int unit) const { return first <= unit && unit < end; }
};

/// Units that a stage of a pipeline computes one after the other. A micro-batch's forward goes
/// through the chunks of all stages in the order of their numbers, its backward in reverse order.
struct Chunk {
  UnitRange units;                  ///< indices in the stage
  int number = 0;                   ///< index among all chunks of all stages
  std::int64_t input_bytes = 0;     ///< input from the chunk before; 0: it is the first
  bool input_has_gradient = false;  ///< whether a chunk before has trained parameters
};

/// The model as a plan sees it: units in forward order, each reading the output of the one before.
/// The last unit computes the loss; its backward computes the loss too, so that a training step has
/// no separate forward for it. A ModelDescription may also be a stage of a pipeline: some of the
/// units, in chunks.
struct ModelDescription {
  std::vector<UnitDescription> units;
  std::int64_t batch_bytes = 0;     ///< tokens and targets of one leaf
  std::int64_t leaves_at_once = 1;  ///< number of leaves of a micro-batch; units sum them by one
                                    ///< tree
  std::int64_t sample_grain = 1;    ///< number of leaves of each sample, on whichever ranks
  /// Number of pieces of a unit's parameters whose terms are summed by one tree, on whichever
  /// tensor ranks they are.
  std::int64_t tensor_grain = 1;
  std::int64_t tensor_chunks = 1;   ///< number of chunks of rows that tensor ranks multiply one
                                    ///< after the other
  int tensor_ranks = 1;             ///< Policy::tensor_ranks that all sizes are for
  std::int64_t gradient_bytes = 0;  ///< gradient of activations, passed backward from unit to unit
  std::int64_t element_bytes = 4;   ///< bytes of a parameter in the compute dtype
  std::int64_t master_bytes = 4;    ///< bytes of a master or a gradient
  std::int64_t sums_bytes = 0;  ///< the step's sums over tokens and gradients (loss, norm, counts)
  // The members below describe a stage:
  std::vector<Chunk> chunks;  ///< in the order of their numbers; empty: one chunk with all units.
                              ///< Borrowed parameters are in none
  bool has_loss = true;       ///< whether its last unit is the model's last
  /// Whether gradients of tied parameters are summed apart because units of two stages use them.
  bool splits_ties = false;
};

/// The chunks of a stage; a whole model has one.
std::vector<Chunk> chunks_of(const ModelDescription& model);

/// Whether a unit is the last of the whole model: it has no forward of its own in a training step,
/// as its backward computes the loss, too.
bool computes_loss(const ModelDescription& model, int unit);

/// Whether a unit's backward is computed: whether it, or one before it, has trained parameters.
bool has_backward(const ModelDescription& model, int unit);

/// Floating-point operations of one leaf that count for MFU: forward and backward without
/// recomputation, and without gradients of frozen parameters or of units before all trained ones.
inline double model_flops(const ModelDescription& model) {
  double flops = 0.0;
  for (int u = 0; u < static_cast<int>(model.units.size()); ++u)
    flops += plan::flops(model.units[u].forward) +
             (has_backward(model, u) ? model.units[u].gradient_flops : 0.0);
  return flops;
}

}  // namespace ostrakon::plan
