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

/// A graph's program; and the one that computes gradients of parameters in phases of their own,
/// null where the graph doesn't.
struct Programs {
  std::shared_ptr<const graph::Program> at_once, deferring;
};

/// Both save the same from forward to backward.
Programs derive_programs(graph::Graph graph);

/// A unit whose program was derived from a graph of operations. It runs the calls of a phase one
/// after the other, and holds no arrays.
template <class T>
class GraphUnit final : public Unit<T> {
 public:
  /// `parameters`: laid out, in segments of these sizes.
  GraphUnit(std::string name, std::vector<Parameter> parameters, const SegmentSizes& sizes,
            const LeafShape& leaf, Programs programs);

  /// What is not derived (counts, ties) may be added.
  plan::UnitDescription& description() { return description_; }
  const plan::UnitDescription& description() const override { return description_; }
  const std::vector<Parameter>& parameters() const override { return parameters_; }

  void forward(const Exec& exec, const UnitBuffers<T>& buffers) const override;
  void backward(const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                bool adds_gradients) const override;
  void copy_sequence(const Exec& exec, const UnitBuffers<T>& buffers, std::int64_t from,
                     std::int64_t to) const override;

 private:
  void run(const Exec& exec, const graph::Program& program, const graph::PlacedCall& call,
           const graph::Buffers& buffers, graph::Turn turn) const;
  void run_piece(const Exec& exec, const graph::Program& program, const graph::PlacedCall& call,
                 const graph::Buffers& buffers, std::int64_t piece) const;
  void run_phase(const Exec& exec, const graph::Program& program,
                 const std::vector<graph::PlacedCall>& calls, const graph::Buffers& buffers,
                 bool only_saves) const;

  std::vector<Parameter> parameters_;
  LeafShape leaf_;
  std::shared_ptr<const graph::Program> at_once_, deferring_;
  plan::UnitDescription description_;
};

}  // namespace ostrakon::model
