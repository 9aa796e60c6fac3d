// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/train/diagnosis.hpp>
#include <ostrakon/train/expert_counts.hpp>
#include <ostrakon/train/handovers.hpp>
#include <ostrakon/train/shard_layout.hpp>
#include <ostrakon/train/step_context.hpp>
#include <ostrakon/train/trainer_settings.hpp>
#include <vector>

namespace ostrakon::train {

/// What computes with a model's units: forward, recompute, backward and the losses; and what shows
/// their parameters.
class ComputeHandlers {
 public:
  /// What it is given, but the settings, must outlive it. `diagnosis`: null where no step is one.
  ComputeHandlers(const StepContext& context, const ShardLayout& layout,
                  const TrainerSettings& settings, const Handovers& handovers,
                  Diagnosis* diagnosis);
  /// Handles what computes. This object must outlive the executor's runs.
  void install(runtime::Executor& executor);

 private:
  void forward(const runtime::ActionBuffers& buffers);
  void backward(const runtime::ActionBuffers& buffers);
  void add_losses(const runtime::ActionBuffers& buffers);
  std::int64_t counted_terms(const plan::Action& action) const;
  void show(const runtime::ActionBuffers& buffers);
  model::UnitBuffers<void> buffers_of(const runtime::ActionBuffers& buffers) const;
  void clear_gaps(const Exec& exec, int unit, View<float*> gradients);

  const StepContext& context_;
  const model::Model& model_;
  const Handovers& handovers_;
  Diagnosis* diagnosis_;
  std::vector<std::vector<Gap>> gaps_;  ///< of each unit's trained flat parameter
  ExpertCounts counts_;
  std::int64_t output_terms_;  ///< of the loss
  std::int64_t step_terms_;
  std::int64_t samples_;  ///< of a leaf
  int parts_;             ///< of each sample, on neighbouring ranks
};

}  // namespace ostrakon::train
