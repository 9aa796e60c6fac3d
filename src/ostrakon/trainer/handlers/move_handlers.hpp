// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/dtype.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/trainer/channels.hpp>
#include <ostrakon/trainer/handlers/empty_exchanges.hpp>
#include <ostrakon/trainer/handlers/step_context.hpp>

namespace ostrakon::train {

/// Handlers that move parameters, gradients and activations: between ranks, between host and
/// device, and into the part that stays after forward.
class MoveHandlers {
 public:
  /// `compute`: dtype of parameters that units compute with; `reduce`: dtype of gradients sent
  /// within a shard group. All references must outlive it.
  MoveHandlers(const StepContext& context, const Channels& channels,
               const EmptyExchanges& empty_exchanges, DType compute, DType reduce);
  /// Sets the handlers. This object must outlive the executor's runs.
  void install(runtime::Executor& executor);

 private:
  void gather(const runtime::ActionBuffers& buffers);
  void gather_quantized(const runtime::ActionBuffers& buffers);
  void dequantize(const runtime::ActionBuffers& buffers);
  void keep(const runtime::ActionBuffers& buffers);
  void copy(const runtime::ActionBuffers& buffers);
  void reduce_scatter(const runtime::ActionBuffers& buffers);
  void gather_gradients(const runtime::ActionBuffers& buffers);
  void gather_updates(const runtime::ActionBuffers& buffers);
  void exchange(const runtime::ActionBuffers& buffers);
  void send(const runtime::ActionBuffers& buffers);
  void receive(const runtime::ActionBuffers& buffers);

  const StepContext& context_;
  const Channels& channels_;
  const EmptyExchanges& empty_exchanges_;
  DType compute_, reduce_;
};

}  // namespace ostrakon::train
