// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/graph/kernel.hpp>
#include <ostrakon/model/unit.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::model {

/// A unit whose program was derived from a graph of operations. It runs the calls of a phase one
/// after the other, and holds no arrays.
template <class T>
class GraphUnit final : public Unit<T> {
 public:
  using typename Unit<T>::RowRange;
  using ProgramPointer = std::shared_ptr<const graph::Program>;

  /// `parameters`: laid out, in segments of these sizes. `deferring`: the unit's program where it
  /// computes gradients of parameters in phases of their own, or none.
  GraphUnit(std::string name, std::vector<Parameter> parameters, const SegmentSizes& sizes,
            const LeafShape& leaf, ProgramPointer at_once, ProgramPointer deferring);

  /// What is not derived (counts) may be added.
  plan::UnitDescription& description() { return description_; }
  const plan::UnitDescription& description() const override { return description_; }
  const std::vector<Parameter>& parameters() const override { return parameters_; }

  void forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const override;
  void backward(const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                bool gradients_opened) const override;

 private:
  void run(const Exec& exec, const graph::Program& program, const graph::PlacedCall& call,
           const graph::Buffers& buffers, graph::Turn turn) const;
  void run_piece(const Exec& exec, const graph::Program& program, const graph::PlacedCall& call,
                 const graph::Buffers& buffers, std::int64_t piece) const;
  void run_phase(const Exec& exec, const graph::Program& program,
                 const std::vector<graph::PlacedCall>& calls, const graph::Buffers& buffers,
                 RowRange rows, bool only_saves) const;

  std::vector<Parameter> parameters_;
  LeafShape leaf_;
  ProgramPointer at_once_, deferring_;
  plan::UnitDescription description_;
};

/// The unit of a graph that never defers.
template <class T>
std::unique_ptr<GraphUnit<T>> make_graph_unit(std::string name, std::vector<Parameter> parameters,
                                              const SegmentSizes& sizes, const LeafShape& leaf,
                                              graph::Graph graph) {
  graph.setting.defers = false;
  return std::make_unique<GraphUnit<T>>(
      std::move(name), std::move(parameters), sizes, leaf,
      std::make_shared<const graph::Program>(graph::derive(std::move(graph))), nullptr);
}

}  // namespace ostrakon::model
