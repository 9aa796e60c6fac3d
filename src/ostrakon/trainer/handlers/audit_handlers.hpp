// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/dtype.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/trainer/handlers/step_context.hpp>

namespace ostrakon::train {

/// Empties a table of digests where ranks have different ones, so that all do the same with it.
/// Collective.
void agree_on(AuditTable& table, comm::Communicator& world);

/// Handlers of an audited step: digests of what this rank has computed, and their comparison over
/// all ranks.
class AuditHandlers {
 public:
  /// `compute`: dtype of parameters that units compute with. All references must outlive it.
  AuditHandlers(StepContext& context, comm::Communicator& world, DType compute);
  /// Sets the handlers. This object must outlive the executor's runs.
  void install(runtime::Executor& executor);

 private:
  void digest(const runtime::ActionBuffers& buffers);
  void digest_parameters(const runtime::ActionBuffers& buffers, View<std::uint64_t*> sum);
  void digest_stored(const runtime::ActionBuffers& buffers, View<std::uint64_t*> sum);
  void audit(const runtime::ActionBuffers& buffers);

  StepContext& context_;
  comm::Communicator& world_;
  DType compute_;
};

}  // namespace ostrakon::train
