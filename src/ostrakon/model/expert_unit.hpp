// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/experts/expert_rounds.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/moe_dispatch_layout.hpp>
#include <vector>

namespace ostrakon::model {

/// The room that the plan of such experts has, see ExpertUnit.
plan::ExpertCapacity expert_capacity(const DecoderSettings& settings, const LeafShape& leaf);

/// The experts of a block where neighbouring ranks have an equal part of them each (expert
/// parallel): y = x + (shared + the sum over a token's experts e of weight_e mlp_e(n)), or this sum
/// and x side by side, where a unit behind norms the sum before it is added. x, n, the output of
/// shared experts and the routes come from the block, see MoeDispatchLayout. Ranks are
/// those of plan::Axis::tensor_shard: tensor ranks are the first neighbours, each with its own
/// rows, and have whole experts.
///
/// Tokens go to the ranks that have their experts, and what these make of them comes back to its
/// slots: a row's result depends on no other row, so its bits are those of one rank. The plan has
/// room for a number of rows, `capacity`, from each rank to each other one at a time. What exceeds
/// it goes in further rounds, of which the plan has as many as the worst routing takes; those that
/// no rank needs exchange nothing. Nothing is saved for backward, which sends the rows again, with
/// the gradients of the output, and multiplies them once more.
///
/// Phases of forward: offsets of all ranks are gathered; rows of the first round are sent; then for
/// each round: experts compute, and send back; results are put in their slots, and rows of the next
/// round are sent. After the last round y is computed. Backward has the same phases.
///
/// A rank's gradients are of the experts that it has and of the rows of all ranks: those of each
/// leaf by themselves, leaves of a rank by the tree of math/piece_tree.hpp, ranks by one over them.
template <class T>
class ExpertUnit final : public Unit<T> {
 public:
  /// `passed`: how many values like y the block hands over in front of it, which go on to the unit
  /// behind. Throws Error where some experts are frozen in other ways than others.
  ExpertUnit(const DecoderSettings& settings, const LeafShape& leaf, std::int64_t index,
             const Frozen& frozen = {}, std::int64_t passed = 0);

  const plan::UnitDescription& description() const override { return description_; }
  const std::vector<Parameter>& parameters() const override { return parameters_; }

  void forward(const Exec& exec, const UnitBuffers<T>& buffers) const override;
  void backward(const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                bool adds_gradients) const override;

 private:
  using Compute = compute_t<T>;

  // Defined with what they do: a phase, and what lies in the buffers.
  enum class Pass { forward, backward };
  class Phase;
  struct Sent;
  struct Returned;
  struct Workspace;

  /// Where the first expert has an array, in its segment: those of others follow, expert by expert.
  /// An array that does not exist has no elements.
  struct Location {
    std::int64_t offset = 0, elements = 0;
    bool trained = false;
  };
  struct Layer {
    std::int64_t inputs = 0, outputs = 0;
    Location weight, bias;
  };
  Layer find_layer(const std::string& name) const;

  void add_parameters(const Frozen& frozen);
  void describe();
  void describe_work();

  MoeDispatchLayout dispatch_;
  std::int64_t passed_;                      // elements in front of y, and of its gradient
  std::int64_t ranks_, tensor_ranks_, own_;  // experts of each rank
  std::int64_t inner_;
  Activation activation_;
  math::KernelForm kernels_;
  math::ExpertRounds rounds_;

  std::vector<Parameter> parameters_;
  Layer up_, down_;
  std::vector<Location> trained_;                            // arrays that are trained
  std::int64_t trained_elements_ = 0, frozen_elements_ = 0;  // of an expert
  plan::UnitDescription description_;
};

}  // namespace ostrakon::model
