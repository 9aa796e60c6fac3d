// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/trainer/diagnosis.hpp>
#include <ostrakon/trainer/expert_counts.hpp>
#include <ostrakon/trainer/handlers/empty_exchanges.hpp>
#include <ostrakon/trainer/handlers/step_context.hpp>
#include <ostrakon/trainer/state/shard_layout.hpp>
#include <ostrakon/trainer/trainer_settings.hpp>
#include <vector>

namespace ostrakon::train {

/// Handlers that compute with a model's units: forward, recompute, backward and losses; and that
/// hand their parameters to the caller.
class ComputeHandlers {
 public:
  /// All arguments but the settings must outlive it. `diagnosis`: null if no step is diagnosed.
  ComputeHandlers(const StepContext& context, const ShardLayout& layout,
                  const StepSettings& settings, const EmptyExchanges& empty_exchanges,
                  Diagnosis* diagnosis);
  /// Sets the handlers. This object must outlive the executor's runs.
  void install(runtime::Executor& executor);

 private:
  void forward(const runtime::ActionBuffers& buffers);
  void backward(const runtime::ActionBuffers& buffers);
  void add_losses(const runtime::ActionBuffers& buffers);
  void keep_losses(const runtime::ActionBuffers& buffers) const;
  std::int64_t counted_terms(const plan::Action& action) const;
  void export_parameters(const runtime::ActionBuffers& buffers);
  model::UnitBuffers<void> buffers_of(const runtime::ActionBuffers& buffers) const;
  runtime::GraphInputs graph_inputs(const runtime::ActionBuffers& buffers) const;
  void clear_gaps(const Exec& exec, int unit, View<float*> gradients);

  const StepContext& context_;
  const model::Model& model_;
  const EmptyExchanges& empty_exchanges_;
  Diagnosis* diagnosis_;
  std::vector<std::vector<Gap>> gaps_;  ///< gaps in each unit's trained flat parameter
  std::vector<bool> depends_on_data_;   ///< for each unit of the model: whether its launches do
  ExpertCounts counts_;
  std::int64_t output_terms_;  ///< loss terms of a leaf on each tensor rank
  std::int64_t step_terms_;
  std::int64_t samples_;  ///< samples per leaf
  int parts_;             ///< parts of each sample, on neighbouring ranks
  bool tells_of_pairs_;   ///< whether an evaluation has further sums, too
};

}  // namespace ostrakon::train
