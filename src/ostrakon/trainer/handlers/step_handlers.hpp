// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/trainer/channels.hpp>
#include <ostrakon/trainer/diagnosis.hpp>
#include <ostrakon/trainer/handlers/audit_handlers.hpp>
#include <ostrakon/trainer/handlers/compute_handlers.hpp>
#include <ostrakon/trainer/handlers/load_handler.hpp>
#include <ostrakon/trainer/handlers/move_handlers.hpp>
#include <ostrakon/trainer/handlers/step_context.hpp>
#include <ostrakon/trainer/handlers/sum_handlers.hpp>
#include <ostrakon/trainer/handlers/update_handlers.hpp>
#include <ostrakon/trainer/programs.hpp>
#include <ostrakon/trainer/state/shard_layout.hpp>
#include <ostrakon/trainer/step_guard.hpp>
#include <ostrakon/trainer/trainer_settings.hpp>

namespace ostrakon::train {

/// Handlers of all kinds of actions in a run's programs.
class StepHandlers {
 public:
  /// The objects that handlers use; all must outlive them.
  struct Parts {
    StepContext& context;
    const Programs& programs;
    const ShardLayout& layout;
    const plan::ModelDescription& description;
    const StepSettings& settings;
    const Channels& channels;
    StepGuard& guard;
    comm::Communicator& world;
  };
  explicit StepHandlers(const Parts& parts)
      : diagnosis_(parts.programs.train.plan, parts.description, parts.context.rank, parts.world),
        empty_exchanges_(parts.programs),
        move_(parts.context, parts.channels, empty_exchanges_, parts.layout.model().dtype(),
              parts.settings.policy.reduce),
        load_(parts.context, parts.programs, parts.settings, parts.world),
        compute_(parts.context, parts.layout, parts.settings, empty_exchanges_, &diagnosis_),
        sum_(parts.context, parts.layout, parts.guard, diagnosis_, parts.world,
             parts.settings.step_terms()),
        update_(parts.context, parts.layout, parts.settings),
        audit_(parts.context, parts.world, parts.layout.model().dtype()) {}
  StepHandlers(const StepHandlers&) = delete;
  StepHandlers& operator=(const StepHandlers&) = delete;

  /// Sets the handlers of all kinds. This object must outlive the executor's runs. Throws Error for
  /// a kind without a handler.
  void install(runtime::Executor& executor) {
    move_.install(executor);
    load_.install(executor);
    compute_.install(executor);
    sum_.install(executor);
    update_.install(executor);
    audit_.install(executor);
    executor.require_handlers();
  }

  Diagnosis& diagnosis() { return diagnosis_; }

 private:
  Diagnosis diagnosis_;
  EmptyExchanges empty_exchanges_;
  MoveHandlers move_;
  LoadHandler load_;
  ComputeHandlers compute_;
  SumHandlers sum_;
  UpdateHandlers update_;
  AuditHandlers audit_;
};

}  // namespace ostrakon::train
