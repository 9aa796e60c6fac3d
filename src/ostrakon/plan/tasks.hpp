// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/axes.hpp>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/layout.hpp>
#include <ostrakon/plan/pipeline_schedule.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/plan/purpose.hpp>
#include <vector>

namespace ostrakon::plan {

/// What is to be done in a step, before it is known where anything is.
enum class Work {
  begin,      ///< of the step
  forward,    ///< of a unit, for a micro-batch
  backward,   ///< the same; that of the last unit computes the loss, too
  gradients,  ///< of a unit's parameters for a micro-batch: the phases that backward deferred
  loss,       ///< add a micro-batch's losses to those of the step
  reduce,     ///< a unit's backward has left gradients of a micro-batch complete
  clip,       ///< all leaves are done: the norm, the clip coefficient
  update,     ///< of a unit's parameters
  verify,     ///< the update of a unit, made before `clip`
  share,      ///< a unit's updated parameters with the stage that has a copy
  show        ///< a unit's parameters to the caller
};

struct Task {
  Work work = Work::begin;
  int unit = -1;
  int micro_batch = -1;
  int turn = -1;  ///< of the schedule, of which it is a part; -1: none

  /// With parameters, in the order in which micro-batches pass through the units.
  bool computes() const { return work == Work::forward || work == Work::backward; }

  /// A step has each of them once, so that the turn need not be compared.
  friend bool operator==(const Task& a, const Task& b) {
    return a.work == b.work && a.unit == b.unit && a.micro_batch == b.micro_batch;
  }
};

/// In the order in which it is computed.
using Tasks = std::vector<Task>;

/// Units whose saved activations are not kept from forward to backward: their backward computes
/// them again before it begins. The unit that computes the loss has no forward of its own.
std::vector<bool> find_checkpointed(const ModelDescription& model, const Checkpointing& policy);

/// The tasks of a step for the ranks of a stage, whose units are those of `model`, in the order of
/// its turns. In training, the unit that computes the loss has no forward of its own. Units are
/// updated after `clip`, or, with layouts.updates_early, each as soon as its gradient is complete.
/// With layouts.updates_optimistically they are updated when all turns are done, those first whose
/// gradients are complete first, and verified after `clip`; but units with whole matrices, whose
/// update takes collectives, still after it.
Tasks make_tasks(const ModelDescription& model, Purpose purpose, const PipelineSchedule& turns,
                 const Layouts& layouts);

}  // namespace ostrakon::plan
