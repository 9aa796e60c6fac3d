// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numeric>
#include <ostrakon/plan/phase.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// A matrix in the part of a unit's flat parameter that is trained, or a piece of one that comes in
/// pieces.
struct WholeMatrix {
  std::int64_t offset = 0;  ///< of its first element, a multiple of 64
  std::int64_t elements = 0;
  double flops = 0.0;  ///< to orthogonalize it; of a piece its share

  std::int64_t end() const { return offset + elements; }
};

/// How tokens travel to experts that ranks share: in rounds of so many rows at most.
struct ExpertRoom {
  std::int64_t ranks = 1;           ///< that share them, neighbours in a shard group
  std::int64_t rows = 0;            ///< from each rank to each of them; 0: none travel
  std::int64_t rounds_if_even = 0;  ///< where all experts get equally many tokens of each leaf
  std::int64_t most_rounds = 0;     ///< whatever the routing: as many are planned
};

/// All that a plan knows about a unit, the parameters that are gathered and released together.
/// Sizes are for one leaf: one micro-batch on one rank.
struct UnitDescription {
  std::string name;
  int number = -1;  ///< of a stage's unit: among those of the whole model; set by make_stages
  std::int64_t parameter_elements = 0;  ///< of the flat parameter, before padding to equal shards
  /// Those of the elements that are never updated: no gradient, no moments. The unit's backward
  /// writes no gradients at all where they are all frozen.
  std::int64_t frozen_elements = 0;
  std::int64_t trained_elements() const { return parameter_elements - frozen_elements; }
  std::int64_t frozen_count = 0;  ///< of frozen_elements, those that are not there for alignment
  std::int64_t output_bytes = 0;
  std::int64_t saved_bytes = 0;  ///< written by forward, read and used up by backward. What a phase
                                 ///< keeps for a later one is in it, too
  Phases forward{1};
  Phases backward{1};           ///< with all that backward computes again
  double gradient_flops = 0.0;  ///< of backward, without that
  /// The last phases of backward that may run later, after those of other units and micro-batches:
  /// they compute gradients of parameters alone, and no other phase does. They read the unit's
  /// input, and what the other phases leave in `saved` and `deferred`, but no parameters, and of
  /// the exchanges before them none. 0: backward is one.
  int deferred_phases = 0;
  std::int64_t deferred_bytes = 0;
  Phases backward_at_once = {};  ///< where these are not deferred; without `deferred`
  /// The first phase of backward that writes gradients of parameters.
  int first_of_gradients() const {
    return deferred_phases > 0 ? static_cast<int>(backward.size()) - deferred_phases : 0;
  }
  /// In training's forward, not where it is computed again, the unit counts, and adds to so many of
  /// the step's sums, those of all units one after the other. In groups, one for each layer of
  /// experts: the assignments to each of them. Empty: it counts nothing.
  std::vector<std::int64_t> counts;
  /// Behind these, it counts how often each of `room.most_rounds` rounds was needed.
  ExpertRoom room;
  bool recomputes = false;  ///< whether a forward that writes `saved` and no output has anything
                            ///< to do: whether it saves
  /// Whether forward or backward read the batch. A stage without such units loads none.
  bool reads_batch = true;
  /// False where backward needs no parameters (an embedding), so that none are gathered for it.
  bool backward_reads_parameters = true;
  /// Above 1: as many neighbours of a shard group have an equal part of its parameters each, which
  /// no other of them computes with (experts). What they compute is exchanged, and their backward
  /// leaves gradients that are summed over the leaves of all of them. With tensor ranks the flat
  /// parameter is divided over these first, then into the parts.
  int parts = 1;
  /// Whether each tensor rank has a piece of every matrix; else it has some of the matrices
  /// (experts), and with `parts` a part of these.
  bool cuts_matrices = true;
  /// The unit before this one whose parameters it computes with besides its own (tied weights), or
  /// -1.
  int tied_to = -1;
  bool tied_gradients = true;  ///< whether backward writes gradients of those, too
  /// Whether these are summed over all leaves apart from those that the other unit's backward
  /// writes, and the two sums added last; else the two are added leaf by leaf.
  bool sums_tied_apart = false;
  // make_stages sets these, for the units of a stage.
  /// The stage whose parameters these are: this one has a copy, for a unit of its own that is tied
  /// to them, and computes nothing else with it. -1: they are its own.
  int borrowed_from = -1;
  int lent_to = -1;                ///< the stage that has such a copy; -1: none
  bool lent_has_gradient = false;  ///< and a part of their gradient
  /// Matrices whose update takes all of their elements (Muon), in the order of their offsets.
  std::vector<WholeMatrix> whole_matrices;
  std::int64_t orthogonalize_workspace_bytes = 0;  ///< enough for each of them
};

/// The unit where it defers nothing.
UnitDescription at_once(UnitDescription unit);

/// How many numbers a unit's forward counts.
inline std::int64_t counted(const UnitDescription& unit) {
  return std::accumulate(unit.counts.begin(), unit.counts.end(), unit.room.most_rounds);
}

/// Neighbouring units of a model: [first, end).
struct UnitRange {
  int first = 0;
  int end = 0;

  bool has(int unit) const { return first <= unit && unit < end; }
};

/// Units that a stage of a pipeline computes one after the other. A micro-batch's forward goes
/// through the chunks of all stages in the order of their numbers, its backward the other way.
struct Chunk {
  UnitRange units;                  ///< of the stage
  int number = 0;                   ///< of all chunks of all stages, from 0
  std::int64_t input_bytes = 0;     ///< that come from the chunk before; 0: it is the first
  bool input_has_gradient = false;  ///< whether a chunk before trains something
};

/// The model as a plan sees it: units in forward order, each reading the output of the one before.
/// The last unit computes the loss; its backward computes the loss too, so that a training step has
/// no separate forward for it. Or a part of a model, the units of a stage of a pipeline, in chunks.
struct ModelDescription {
  std::vector<UnitDescription> units;
  std::int64_t batch_bytes = 0;     ///< tokens and targets of one leaf
  std::int64_t leaves_at_once = 1;  ///< leaves of a micro-batch, summed by the units by one tree
  std::int64_t sample_grain = 1;    ///< leaves of each sample, whichever ranks have them
  /// Pieces of a unit's parameters whose terms are summed by one tree, whichever tensor ranks have
  /// them.
  std::int64_t tensor_grain = 1;
  std::int64_t tensor_chunks = 1;   ///< of rows, which tensor ranks multiply one after the other
  int tensor_ranks = 1;             ///< Policy::tensor_ranks, for which sizes are
  std::int64_t gradient_bytes = 0;  ///< the gradient passed backward from unit to unit
  std::int64_t element_bytes = 4;   ///< of parameters as they are computed with
  std::int64_t master_bytes = 4;    ///< of parameters as they are updated, and of their gradients
  std::int64_t sums_bytes = 0;  ///< the step's sums over tokens and gradients (loss, norm, counts)
  // These describe a stage:
  std::vector<Chunk> chunks;  ///< as they follow each other; empty: one, of all units. What is
                              ///< borrowed is in none
  bool has_loss = true;       ///< whether its last unit is the model's
  /// Whether gradients of tied parameters are summed apart because units of two stages use them.
  bool splits_ties = false;
};

/// The chunks of a stage; of a whole model one.
std::vector<Chunk> chunks_of(const ModelDescription& model);

/// Whether a unit's backward is computed: whether it, or one before it, has trained parameters.
bool has_backward(const ModelDescription& model, int unit);

/// Floating-point operations of one leaf that count for MFU: three forwards, whatever is
/// recomputed, without the gradients of what is frozen, or comes before all that is trained.
inline double model_flops(const ModelDescription& model) {
  double flops = 0.0;
  for (int u = 0; u < static_cast<int>(model.units.size()); ++u)
    flops += plan::flops(model.units[u].forward) +
             (has_backward(model, u) ? model.units[u].gradient_flops : 0.0);
  return flops;
}

}  // namespace ostrakon::plan
