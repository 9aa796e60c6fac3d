// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/math/cross_entropy/pair_losses.hpp>
#include <ostrakon/model/unit.hpp>
#include <stdexcept>
#include <vector>

namespace ostrakon::model {

/// What the loss of a leaf consists of.
struct LossTerms {
  std::int64_t samples = 1;     ///< of a leaf
  std::int64_t terms = 1;       ///< losses of a leaf, over which the loss is a mean
  const char* name = "tokens";  ///< what they are, for messages
  /// Losses behind these, of tokens further ahead, are reported by themselves: how many of them
  /// their mean is over. 0: there are none.
  std::int64_t further = 0;
  /// Where a leaf's batch, as int32, has the targets of these losses, in their order: one below 0
  /// does not count, neither in the mean nor in gradients. -1: all losses count.
  std::int64_t first_target = -1;
  /// Why all targets have to count in training, and with further losses in a validation, too, for
  /// messages; empty: they need not.
  const char* needs_all = "";
  /// Whether the last unit's output has a margin for each loss behind the losses, as
  /// LeafShape::tells_margins says.
  bool tells_margins = false;
  /// Whether losses are those of pairs, and the last unit's output has the arrays of
  /// math::PairOutput.
  bool are_of_pairs = false;

  static LossTerms of_pairs(std::int64_t pairs) {
    LossTerms terms = {pairs, pairs, "pairs"};
    terms.are_of_pairs = true;
    return terms;
  }
  /// Arrays of the last unit's output, of losses and of what it tells besides of each.
  std::int64_t arrays() const { return are_of_pairs ? math::pair_outputs : tells_margins ? 2 : 1; }
};

/// What a Trainer trains: a chain of units, each of which reads the output of the one before, and
/// the last of which computes the losses. The type of parameters and activations is known at run
/// time only; gradients of parameters and losses are float in any case. It holds no arrays.
class Model {
 public:
  virtual ~Model() = default;

  /// The dtype of parameters and activations.
  virtual DType dtype() const = 0;
  virtual int units() const = 0;
  /// The parameters of a unit, with their offsets in its flat parameter. The reference stays valid.
  virtual const std::vector<Parameter>& parameters(int unit) const = 0;
  /// Sizes, for plans.
  virtual plan::ModelDescription description() const = 0;
  virtual LossTerms loss_terms() const = 0;
  /// Neighbouring ranks that share the samples of a leaf, each with a part of every sample, and
  /// exchange activations. Sizes, and the terms of the loss, are for one part.
  virtual int context_ranks() const { return 1; }
  /// Neighbouring ranks that compute a leaf together, each with some of the pieces of each unit's
  /// parameters, and of what they exchange. The terms of the loss are for the leaf; each rank
  /// outputs its part of them.
  virtual int tensor_ranks() const { return 1; }
  /// How many pieces a part of a sample has, in whose order a rank has its rows; see
  /// data::SamplePart.
  virtual int pieces() const { return 1; }
  /// Leaves in what a rank computes at once, whose gradients its units sum by the tree of
  /// math/piece_tree.hpp.
  virtual std::int64_t leaves() const { return 1; }

  /// Whether units of equal sizes, with parameters of equal names and shapes, compute by the same
  /// code. Where nobody knows, each unit stands for itself.
  virtual bool is_known_by_sizes() const { return false; }

  /// A phase of a unit's forward, or of its backward: see Unit.
  virtual void forward(int unit, const Exec& exec, const UnitBuffers<void>& buffers) const = 0;
  virtual void backward(int unit, const Exec& exec, const UnitBuffers<void>& buffers,
                        float loss_scale, bool adds_gradients) const = 0;

  /// Where sequences are decoded: see Unit. Throws std::logic_error of models that do not decode.
  virtual void copy_sequence(int /*unit*/, const Exec& /*exec*/,
                             const UnitBuffers<void>& /*buffers*/, std::int64_t /*from*/,
                             std::int64_t /*to*/) const {
    throw std::logic_error("the model keeps nothing of decoded sequences");
  }

  /// Elements of all parameters, without padding or alignment.
  std::int64_t parameter_count() const {
    std::int64_t count = 0;
    for (int u = 0; u < units(); ++u)
      for (const Parameter& parameter : parameters(u)) count += parameter.elements();
    return count;
  }
};

}  // namespace ostrakon::model
