// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/trainer/diagnosis.hpp>
#include <ostrakon/trainer/expert_counts.hpp>
#include <ostrakon/trainer/handlers/step_context.hpp>
#include <ostrakon/trainer/state/shard_layout.hpp>
#include <ostrakon/trainer/step_guard.hpp>
#include <vector>

namespace ostrakon::train {

/// Handlers that add up: gradients over micro-batches, and a step's losses and squares of
/// gradients, by which the guard judges the step. Sums over ranks and the judgement are on the
/// host's stream: they touch host memory only.
class SumHandlers {
 public:
  /// `step_terms`: loss terms of a global batch. All other arguments must outlive it.
  SumHandlers(StepContext& context, const ShardLayout& layout, StepGuard& guard,
              Diagnosis& diagnosis, comm::Communicator& world, std::int64_t step_terms);
  /// Sets the handlers. This object must outlive the executor's runs.
  void install(runtime::Executor& executor);

 private:
  void begin(const runtime::ActionBuffers& buffers);
  void begin_on_host(const runtime::ActionBuffers& buffers);
  void accumulate(const runtime::ActionBuffers& buffers);
  void norm(const runtime::ActionBuffers& buffers);
  void clip(const runtime::ActionBuffers& buffers);
  void reduce_sums(const runtime::ActionBuffers& buffers);
  HostView<std::int64_t*> all_sums(const runtime::ActionBuffers& buffers) const;
  HostView<const std::int64_t*> add_sums(const runtime::ActionBuffers& buffers);
  void judge(const runtime::ActionBuffers& buffers);
  void judge(const StepSums& sums);
  void refuse_update();

  StepContext& context_;
  StepGuard& guard_;
  Diagnosis& diagnosis_;
  comm::Communicator& world_;
  std::int64_t step_terms_;
  bool has_targets_;   ///< whether some terms of the loss may not count
  bool are_of_pairs_;  ///< whether they are losses of pairs
  ExpertCounts counts_;
  std::int64_t further_terms_;                     ///< further losses that a step's mean is over
  std::vector<std::vector<ElementRange>> normed_;  // ShardLayout::normed_ranges, by unit
};

}  // namespace ostrakon::train
