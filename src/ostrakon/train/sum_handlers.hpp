// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/train/diagnosis.hpp>
#include <ostrakon/train/expert_counts.hpp>
#include <ostrakon/train/shard_layout.hpp>
#include <ostrakon/train/step_context.hpp>
#include <ostrakon/train/step_guard.hpp>
#include <vector>

namespace ostrakon::train {

/// What adds up: gradients over micro-batches, and a step's losses and squares of gradients, from
/// which the guard judges it. Sums over ranks and the judgement are of the host's stream: they
/// touch host memory only.
class SumHandlers {
 public:
  /// `step_terms`: of the loss of a global batch. The others must outlive it.
  SumHandlers(StepContext& context, const ShardLayout& layout, StepGuard& guard,
              Diagnosis& diagnosis, comm::Communicator& world, std::int64_t step_terms);
  /// Handles what adds up. This object must outlive the executor's runs.
  void install(runtime::Executor& executor);

 private:
  void begin(const runtime::ActionBuffers& buffers);
  void begin_on_host(const runtime::ActionBuffers& buffers);
  void accumulate(const runtime::ActionBuffers& buffers);
  void norm(const runtime::ActionBuffers& buffers);
  void clip(const runtime::ActionBuffers& buffers);
  void reduce_sums(const runtime::ActionBuffers& buffers);
  HostView<const std::int64_t*> add_sums(const runtime::ActionBuffers& buffers);
  void judge(const runtime::ActionBuffers& buffers);
  void judge(const StepSums& sums);

  StepContext& context_;
  StepGuard& guard_;
  Diagnosis& diagnosis_;
  comm::Communicator& world_;
  std::int64_t step_terms_;
  ExpertCounts counts_;
  std::vector<std::vector<ElementRange>> normed_;  // ShardLayout::normed_ranges, by unit
};

}  // namespace ostrakon::train
