// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/dtype.hpp>
#include <ostrakon/math/work_items.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/trainer/handlers/step_context.hpp>
#include <ostrakon/trainer/state/shard_layout.hpp>
#include <ostrakon/trainer/trainer_settings.hpp>
#include <vector>

namespace ostrakon::train {

/// Handlers that update the parameters of each unit which this rank updates.
class UpdateHandlers {
 public:
  /// All arguments must outlive it.
  UpdateHandlers(StepContext& context, const ShardLayout& layout, const TrainerSettings& settings);
  /// Sets the handlers. This object must outlive the executor's runs.
  void install(runtime::Executor& executor);

 private:
  void direction(const runtime::ActionBuffers& buffers);
  void orthogonalize(const runtime::ActionBuffers& buffers);
  void orthogonalize(const runtime::ActionBuffers& buffers, const model::Parameter& parameter);
  View<float*> join_pieces(const runtime::ActionBuffers& buffers, const model::Parameter& parameter,
                           View<float*> whole) const;
  void split_pieces(const runtime::ActionBuffers& buffers, const model::Parameter& parameter,
                    View<float*> matrix, View<float*> whole) const;
  void optimize(const runtime::ActionBuffers& buffers);
  void verify(const runtime::ActionBuffers& buffers);
  template <class Copy>
  void for_each_replaced(const runtime::ActionBuffers& buffers, const Copy& copy) const;
  void update_unit(const runtime::ActionBuffers& buffers);
  /// The spans that divide the part of the action's unit which this rank updates.
  const plan::Spans& updated_part(const runtime::ActionBuffers& buffers) const;
  const StepDecision& verdict_for(const runtime::ActionBuffers& buffers) const;
  optim::UpdateStep update_step(const UpdateRange& range, const StepDecision& verdict) const;
  template <class Moment, class Space>
  void update(const runtime::ActionBuffers& buffers, const math::ExecutorFor<Space>& where);
  void convert_updated(const runtime::ActionBuffers& buffers);

  StepContext& context_;
  const ShardLayout& layout_;
  const TrainerSettings& settings_;
  DType compute_;                                 ///< dtype of parameters that units compute with
  std::vector<std::vector<UpdateRange>> ranges_;  ///< one list per unit
};

}  // namespace ostrakon::train
