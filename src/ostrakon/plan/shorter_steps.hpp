// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <vector>

namespace ostrakon::plan {

/// How many layers, stages and micro-batches a step has.
struct StepLength {
  std::int64_t layers = 0;
  std::int64_t micro_batches = 1;
  int stages = 1;
  std::vector<int> chunk_units = {};  ///< as in Policy
};

/// Time and memory of a step.
struct StepCost {
  double seconds = 0.0;
  std::vector<std::int64_t> bytes;  ///< peak live bytes of each stage
};

/// Extrapolates the time and memory of a whole step from shorter steps, without planning it. Time
/// grows linearly with micro-batches; time and memory grow linearly with the layers of one stage
/// and with the stages of a pipeline. Shorter pipelines have as many micro-batches per stage, or
/// two; of the whole's stages they have the first, the last, the busiest, and some between.
class ShorterSteps {
 public:
  /// `model` and `policy` are those of the whole step. `has_like_layers`: whether the model with
  /// fewer layers has the same units, but fewer of them. `stages_at_a_time`: shorter pipelines have
  /// a multiple of it: the number of stages that share a node, or 1, so that stages lie on nodes as
  /// in the whole; 0: pipelines are not shortened. Throws Error where make_chunks does.
  ShorterSteps(const ModelDescription& model, const Policy& policy, const StepLength& whole,
               bool has_like_layers, int stages_at_a_time);

  /// The shorter steps, one to six; the whole step alone if they would not be shorter.
  const std::vector<StepLength>& lengths() const { return lengths_; }

  /// Time, and bytes on the stage with the most, of the whole step. `takes`: of each of lengths().
  double seconds(const std::vector<StepCost>& takes) const;
  std::int64_t bytes(const std::vector<StepCost>& takes) const;

 private:
  struct Form {
    bool is_deeper;        // whether it has more stages than others
    bool has_more_layers;  // whether each chunk has more layers
  };

  int know_chunks(const ModelDescription& model, const Policy& policy, int stages_at_a_time);
  StepLength take(int stages, int cut) const;
  void shorten(int cut, double share, bool has_more_layers);

  StepLength whole_;
  std::vector<int>
      chunk_units_;  // units per chunk of the whole; empty: one stage, or stages are not left out
  std::vector<double> work_;  // floating-point operations of each stage of the whole
  int stages_at_a_time_ = 0;
  std::vector<StepLength> lengths_;
  std::vector<Form> forms_;
  std::vector<double> of_seconds_;  // the time of the whole is the sum of those of lengths_, each
                                    // times this
  // Distance of the whole from the shortest step, in units of that of the step with more stages, or
  // layers. Memory is extrapolated with the same factors; more micro-batches are taken to need no
  // more memory, though a tree of sums has more levels.
  double more_stages_ = 0.0, more_layers_ = 0.0;
};

}  // namespace ostrakon::plan
