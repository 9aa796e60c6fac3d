// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/expert_rounds.hpp>
#include <ostrakon/model/expert_border.hpp>
#include <vector>

namespace ostrakon::model {

/// The room that the plan of such experts has, see ExpertUnit.
plan::ExpertRoom expert_room(const DecoderSettings& settings, const LeafShape& leaf);

/// The experts of a block where neighbouring ranks have an equal part of them each (expert
/// parallel): y = x + (shared + the sum over a token's experts e of weight_e mlp_e(n)). x, n, the
/// output of shared experts and the routes come from the block, see ExpertBorder. Ranks are those
/// of plan::Axis::tensor_shard: tensor ranks are the first neighbours, each with its own rows, and
/// have whole experts.
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
  using typename Unit<T>::RowRange;

  /// Throws Error where some experts are frozen in other ways than others.
  ExpertUnit(const DecoderSettings& settings, const LeafShape& leaf, std::int64_t index,
             const Frozen& frozen = {});

  const plan::UnitDescription& description() const override { return description_; }
  const std::vector<Parameter>& parameters() const override { return parameters_; }

  void forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const override;
  void backward(const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                bool gradients_opened) const override;

 private:
  using Compute = compute_t<T>;
  using Offsets = HostView<const std::int64_t*>;
  using RoundRows = math::ExpertRounds::Rows;

  enum class Pass { forward, backward };

  /// What one rank sends to another in a round, `capacity` rows: of forward x; of backward all.
  struct Sent {
    View<T**> x;             // (capacity, width)
    View<T**> dy;            // (capacity, width), gradient of the combined output
    View<Compute*> weights;  // (capacity)
    std::int64_t bytes;
  };
  /// What comes back: of forward the experts' output, of backward the gradient of x and of weights.
  struct Returned {
    View<T**> rows;           // (capacity, width)
    View<Compute*> dweights;  // (capacity)
    std::int64_t bytes;
  };

  /// In the workspace, from the first phase to the last.
  struct Workspace {
    View<std::int64_t*> offsets;  // (ranks, ExpertBorder::offsets())
    View<T**> returned;           // (assignments, width), by slot
    View<T**> up;                 // (capacity, up.outputs)
    View<T**> activated;          // (capacity, expert width)
    View<T*> padding;             // of products by row
    // backward
    View<Compute*> dweights;   // (assignments)
    View<T**> dactivated;      // (capacity, expert width)
    View<T**> weighted;        // (capacity, width), dy times weights
    View<Compute*> gradients;  // (ranks - 1, a rank's trained elements), of the rows of each rank
                               // but the first, whose are in the unit's gradients
    View<Compute*> leaves;     // (ranks, tree_slots - 1, an expert's), of leaves that wait
    std::int64_t bytes;
  };

  /// What follows y, or its gradient.
  template <class Element>
  auto behind_y(View<Element*> buffer) const {
    const auto bytes = view_as<std::byte>(buffer);
    return bytes.range(border_.template behind_y<T>(), bytes.size());
  }

  Sent sent_in(View<std::byte*> buffer, Pass pass) const;
  Returned returned_in(View<std::byte*> buffer, Pass pass) const;
  Workspace workspace_in(View<std::byte*> buffer, Pass pass) const;
  /// What rank `rank` has in a buffer with `bytes` for each.
  template <class Byte>
  static View<Byte*> block_of(View<Byte*> buffer, std::int64_t rank, std::int64_t bytes) {
    return buffer.range(rank * bytes, (rank + 1) * bytes);
  }
  /// The first row of each run that `from` sends to the experts of `to`, and the end of the last:
  /// slots of `from`.
  Offsets runs(Offsets all, std::int64_t to) const {
    const std::int64_t first = first_run(to);
    return all.range(first, first + own_ * border_.leaves + 1);
  }
  std::int64_t first_run(std::int64_t to) const { return part_of(to) * own_ * border_.leaves; }
  /// Of the equal parts of the experts, the one that rank `rank` of the exchange has: flat
  /// parameters are divided over tensor ranks first.
  std::int64_t part_of(std::int64_t rank) const {
    return rank % tensor_ranks_ * (ranks_ / tensor_ranks_) + rank / tensor_ranks_;
  }
  /// Offsets of rank `rank` from those of all.
  View<const std::int64_t*> offsets_of(const Workspace& work, std::int64_t rank) const {
    return work.offsets.range(rank * border_.offsets(), (rank + 1) * border_.offsets());
  }

  void phase(const Exec& exec, const UnitBuffers<T>& buffers, Pass pass) const;
  void send(const Exec& exec, const UnitBuffers<T>& buffers, const Workspace& work, Pass pass,
            std::int64_t round) const;
  void compute(const Exec& exec, const UnitBuffers<T>& buffers, const Workspace& work, Pass pass,
               std::int64_t round) const;
  void put(const Exec& exec, const UnitBuffers<T>& buffers, const Workspace& work, Pass pass,
           std::int64_t round) const;
  void finish(const Exec& exec, const UnitBuffers<T>& buffers, const Workspace& work,
              Pass pass) const;
  bool any_rows(const Exec& exec, const Workspace& work, std::int64_t round) const;

  /// The rows of a round that go to one expert: [begin, end) of the round's.
  struct ExpertRows {
    std::int64_t expert, begin, end;
  };
  template <class Function>
  void for_each_expert(Offsets runs, RoundRows rows, const Function& function) const;

  void multiply(const Exec& exec, const UnitBuffers<T>& buffers, const Workspace& work,
                Offsets runs, RoundRows rows, View<const T**> x, View<T**> y) const;
  void multiply_back(const Exec& exec, const UnitBuffers<T>& buffers, const Workspace& work,
                     std::int64_t rank, std::int64_t round, Offsets runs, const Sent& sent,
                     const Returned& back) const;
  void add_gradients(const Exec& exec, const UnitBuffers<T>& buffers, const Workspace& work,
                     std::int64_t rank, std::int64_t round, Offsets runs, View<const T**> x,
                     View<const T**> dup) const;
  void sum_ranks(const Exec& exec, const UnitBuffers<T>& buffers, const Workspace& work) const;

  /// Where a unit's flat parameter has a layer of an expert; an array that does not exist has no
  /// elements.
  struct Location {
    std::int64_t offset = 0, elements = 0;  // in its segment
    bool trained = false;
  };
  struct Layer {
    std::int64_t inputs = 0, outputs = 0;
    Location weight, bias;
  };
  struct Mlp {
    Layer up, down;
  };

  static View<const T*> array(const UnitBuffers<T>& buffers, const Location& at) {
    if (at.elements == 0) return {};
    return (at.trained ? buffers.parameters : buffers.frozen)
        .range(at.offset, at.offset + at.elements);
  }
  static View<Compute*> gradient_at(View<Compute*> gradients, const Location& at) {
    return gradients.range(at.offset, at.offset + at.elements);
  }
  static View<const T**> weight(const UnitBuffers<T>& buffers, const Layer& layer) {
    return array(buffers, layer.weight).matrix(layer.outputs, layer.inputs);
  }
  /// y = x W^T + b, for some rows: no row's bits depend on how many they are.
  static void multiply_rows(const Exec& exec, const UnitBuffers<T>& buffers, const Layer& layer,
                            View<const T**> x, View<T**> y, View<T*> padding);
  std::int64_t padding_of(const Layer& layer) const;
  Layer find_layer(const std::string& name) const;

  void add_parameters(const DecoderSettings& settings, const Frozen& frozen);
  void describe();

  ExpertBorder border_;
  std::int64_t ranks_, tensor_ranks_, own_;  // experts of each rank
  std::int64_t inner_, up_columns_;
  Activation activation_;
  math::KernelForm kernels_;
  math::ExpertRounds rounds_;

  std::vector<Parameter> parameters_;
  std::vector<Mlp> experts_;          // the first part's, and every rank's in its own
  std::vector<Location> trained_;     // arrays of the first expert that are trained
  std::int64_t expert_elements_ = 0;  // trained, of an expert
  plan::UnitDescription description_;
};

}  // namespace ostrakon::model
