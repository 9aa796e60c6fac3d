// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/optim/optimizer.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <vector>

namespace ostrakon::train {

/// Elements of a parameter that are neighbours in an array.
struct ParameterSlice {
  const model::Parameter* parameter;
  model::ElementRuns elements;
  /// The first of them in the order in which checkpoints have the parameter's elements: row by row,
  /// or those of pieces that are cut by columns one piece after the other.
  std::int64_t first;
  std::int64_t offset;  ///< element within the array
  std::int64_t count;
};

/// Elements of a trained flat parameter that one call of an optimizer updates: of one parameter, or
/// of several that lie next to each other and are updated alike.
struct UpdateRange {
  const model::Parameter* parameter;  ///< that it begins in
  model::ElementRuns elements;        ///< of it; of ranges that are merged, of the first
  optim::OptimizerKind rule;
  optim::Treatment treatment;
  std::int64_t first;          ///< as ParameterSlice::first
  std::int64_t offset;         ///< element within the part that this rank updates
  std::int64_t second_offset;  ///< element within the rank's second moments, which are packed
  std::int64_t count;
  std::uint64_t rounding_key;  ///< optim::UpdateStep::rounding_key
};

/// Elements [begin, end) of a rank's part of a flat parameter.
struct ElementRange {
  std::int64_t begin, end;
};
/// Elements that belong to no parameter.
using Gap = ElementRange;

/// Says which elements of a model's parameters a rank has, and where its buffers have them. It is a
/// pure function of the plans of all stages, the model's parameters, the optimizer and the rank's
/// number in plans: it can be asked about any rank, on any rank. The first three must outlive it.
/// Units are those of the rank's stage.
///
/// Offsets are in elements. Buffers of second moments are packed: matrices that are updated as a
/// whole (Muon) have none, and take no space.
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

  /// What the rank's part of a flat parameter has of each parameter, in the order of their offsets.
  /// `divided`: into which parts. Offsets count from the begin of the part.
  std::vector<ParameterSlice> slices_of_part(int flat, const plan::Spans& divided) const;

  /// Returns the slices of a buffer of state (masters, working copies, moments), flat parameter by
  /// flat parameter. `divided`: as the buffer, or into smaller parts. Offsets count from the begin
  /// of the buffer. None for buffer -1.
  std::vector<ParameterSlice> slices_in_buffer(int buffer, const plan::Spans& divided) const;

  /// Where the rank's part of a flat parameter begins in a buffer that is not packed.
  std::int64_t offset_in(int buffer, int flat, const plan::Spans& divided) const {
    return plan_.offset_in(plan_.buffers[buffer], flat, divided, rank_);
  }

  /// What the rank updates of a unit, in the order of offsets; none where nothing is trained.
  /// `moments`: parameters whose moments have 16 bits are rounded with random numbers of their own
  /// (of `seed`), and not merged.
  std::vector<UpdateRange> update_ranges(int unit, DType moments, std::uint64_t seed) const;

  /// What of a unit's gradients, as the rank keeps them, is part of the norm: all but parameters
  /// with a sign_rate. Each begins at a multiple of math::norm_block elements, as all would.
  std::vector<ElementRange> normed_ranges(int unit) const;

  /// Alignment and padding of what a unit computes with of its trained flat parameter.
  std::vector<Gap> gaps(int unit) const;

  /// Whether a buffer lacks elements: second moments of a unit with whole matrices.
  bool is_packed(int buffer) const;

  /// Whether a parameter is in one piece, and that in one part of its flat parameter.
  bool is_in_one_run(int flat, const model::Parameter& parameter) const;

  /// Where a piece of a parameter begins in the whole flat parameter, padding counted.
  std::int64_t first_of_piece(int flat, const model::Parameter& parameter,
                              std::int64_t piece) const;

 private:
  /// Parts that those compute with that compute together.
  std::int64_t parts_of_unit(int unit) const;
  std::int64_t whole_matrices_before(int unit, std::int64_t offset) const;

  const std::vector<plan::StepPlan>& stages_;
  const plan::StepPlan& plan_;
  const model::Model& model_;
  const optim::OptimizerSettings& optimizer_;
  int rank_;
};

}  // namespace ostrakon::train
