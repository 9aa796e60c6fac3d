// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/axes.hpp>
#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/ir/kinds.hpp>
#include <ostrakon/plan/ir/layout.hpp>
#include <ostrakon/plan/ir/pipeline_schedule.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <vector>

namespace ostrakon::plan {

/// A kind of work in a step, before buffers and streams are chosen for it.
enum class Work {
  begin,      ///< begin the step
  forward,    ///< forward of a unit for a micro-batch
  backward,   ///< backward of a unit for a micro-batch; the last unit's computes the loss, too
  gradients,  ///< gradients of a unit's parameters for a micro-batch: the deferred phases of
              ///< backward
  loss,       ///< add a micro-batch's losses to those of the step
  reduce,     ///< sum a unit's gradients of a micro-batch, which backward has completed
  clip,       ///< the gradient norm and the clip coefficient, once all leaves are done
  update,     ///< update a unit's parameters
  verify,     ///< verify the update of a unit, made before `clip`
  share,      ///< send a unit's updated parameters to the stage that has a copy
  digest,     ///< compute digests of a unit's gradients of the leaf that is computed again
  audit,      ///< compare digests, before the update
  export_parameters  ///< hand a unit's parameters to the caller
};

struct Task {
  Work work = Work::begin;
  int unit = -1;
  int micro_batch = -1;
  int turn = -1;  ///< turn of the schedule that this task is a part of; -1: none

  /// Whether the task computes with parameters, in the order in which micro-batches pass through
  /// the units.
  bool computes() const { return work == Work::forward || work == Work::backward; }

  /// Does not compare turns, as a step has each task only once.
  friend bool operator==(const Task& a, const Task& b) {
    return a.work == b.work && a.unit == b.unit && a.micro_batch == b.micro_batch;
  }
};

/// Tasks in the order in which they are computed.
using Tasks = std::vector<Task>;

/// Returns, for each unit, whether its saved activations are recomputed before backward instead of
/// being kept. The unit that computes the loss has no forward of its own.
std::vector<bool> find_checkpointed(const ModelDescription& model,
                                    const ActivationCheckpointing& policy);

/// The tasks of a step for the ranks of a stage, whose units are those of `model`, in the order of
/// its turns. In training, the unit that computes the loss has no forward of its own. Units are
/// updated after `clip`, or, with layouts.updates_early, each as soon as its gradient is complete.
/// With layouts.updates_optimistically they are updated when all turns are done, in the order in
/// which gradients become complete, and verified after `clip`; units with whole matrices, whose
/// update takes collectives, are still updated after it. An audited step has one micro-batch more
/// when all turns are done, whose gradients are not summed.
Tasks make_tasks(const ModelDescription& model, Purpose purpose, const PipelineSchedule& turns,
                 const Layouts& layouts);

}  // namespace ostrakon::plan
