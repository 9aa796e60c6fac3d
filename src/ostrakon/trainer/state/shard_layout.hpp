// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/optim/optimizer.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <vector>

namespace ostrakon::train {

/// Consecutive elements of a parameter in an array.
struct ParameterSlice {
  const model::Parameter* parameter;
  model::ElementRuns elements;
  /// Index of the first one in the order of elements in checkpoints: row by row; or, for pieces
  /// that are cut by columns, piece after piece.
  std::int64_t first;
  std::int64_t offset;  ///< element index within the array
  std::int64_t count;
};

/// Elements of a trained flat parameter that one call of an optimizer updates: of one parameter, or
/// of several adjacent ones with the same parameter group.
struct UpdateRange {
  const model::Parameter* parameter;  ///< parameter in which the range begins
  model::ElementRuns elements;        ///< runs of its elements; for merged ranges, of the first
  optim::OptimizerKind rule;
  optim::ParamGroup param_group;
  std::int64_t first;          ///< as in ParameterSlice
  std::int64_t offset;         ///< element index within the part that this rank updates
  std::int64_t second_offset;  ///< element index within the rank's second moments, which are packed
  std::int64_t count;
  std::uint64_t rounding_key;  ///< optim::UpdateStep::rounding_key
};

/// Elements [begin, end) of a rank's part of a flat parameter.
struct ElementRange {
  std::int64_t begin, end;
};
/// Elements that belong to no parameter.
using Gap = ElementRange;

/// Finds which elements of a model's parameters a rank has, and at which offsets in its buffers. It
/// is a pure function of the plans of all stages, the model's parameters, the optimizer and the
/// rank's number in plans: it can be computed for any rank, on any rank. The first three must
/// outlive it. Units are those of the rank's stage. Offsets are in elements. Buffers of second
/// moments are packed: matrices that are updated as a whole (Muon) have none, and take no space.
class ShardLayout {
 public:
  ShardLayout(const std::vector<plan::StepPlan>& stages, const model::Model& model,
              const optim::OptimizerSettings& optimizer, int rank);

  const std::vector<plan::StepPlan>& stages() const { return stages_; }
  /// The plan and the model of the rank's stage.
  const plan::StepPlan& plan() const { return plan_; }
  const model::Model& model() const { return model_; }
  int units() const { return static_cast<int>(plan_.units.size()); }
  const std::vector<model::Parameter>& parameters(int unit) const {
    return model_.parameters(plan_.units[unit].number);
  }
  int rank() const { return rank_; }
  ShardLayout of_rank(int rank) const { return {stages_, model_, optimizer_, rank}; }

  /// Returns the elements of each parameter in the rank's part of a flat parameter, in the order of
  /// their offsets. `divided`: the spans that the flat parameter is divided over. Offsets count
  /// from the begin of the part.
  std::vector<ParameterSlice> slices_of_part(int flat, const plan::Spans& divided) const;

  /// Returns the slices of a buffer of state (masters, compute copies, moments), flat parameter by
  /// flat parameter. `divided`: as for the buffer, or into smaller parts. Offsets count from the
  /// begin of the buffer. Empty for buffer -1.
  std::vector<ParameterSlice> slices_in_buffer(int buffer, const plan::Spans& divided) const;

  /// The offset of the rank's part of a flat parameter in a buffer that is not packed.
  std::int64_t offset_in(int buffer, int flat, const plan::Spans& divided) const {
    return plan_.offset_in(plan_.buffers[buffer], flat, divided, rank_);
  }

  /// Returns the ranges of a unit that the rank updates, in the order of offsets; none if nothing
  /// is trained. Parameters with 16-bit `moments` are rounded with random numbers of their own
  /// (from `seed`), and not merged.
  std::vector<UpdateRange> update_ranges(int unit, DType moments, std::uint64_t seed) const;

  /// Returns the ranges of the rank's part of a unit's gradients that count in the norm: all but
  /// parameters with a sign_rate. Each begins at a multiple of math::norm_block elements, as the
  /// whole part does.
  std::vector<ElementRange> normed_ranges(int unit) const;

  /// The alignment and padding in the trained flat parameter that a unit computes with.
  std::vector<Gap> gaps(int unit) const;

  /// Whether a buffer lacks elements: second moments of a unit with whole matrices.
  bool is_packed(int buffer) const;

  /// Whether a parameter is one piece, which lies in one part of its flat parameter.
  bool is_in_one_run(int flat, const model::Parameter& parameter) const;

  /// The offset of a piece of a parameter in the whole flat parameter, padding included.
  std::int64_t first_of_piece(int flat, const model::Parameter& parameter,
                              std::int64_t piece) const;

 private:
  /// The number of parts into which the ranks that compute together divide a unit.
  std::int64_t parts_of_unit(int unit) const;
  std::int64_t whole_matrices_before(int unit, std::int64_t offset) const;

  const std::vector<plan::StepPlan>& stages_;
  const plan::StepPlan& plan_;
  const model::Model& model_;
  const optim::OptimizerSettings& optimizer_;
  int rank_;
};

}  // namespace ostrakon::train
