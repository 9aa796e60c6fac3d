// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/axes.hpp>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/plan/purpose.hpp>
#include <vector>

namespace ostrakon::plan {

/// What is to be done in a step, before it is known where anything is.
enum class Work {
  begin,     ///< of the step
  forward,   ///< of a unit, for a micro-batch
  backward,  ///< the same; that of the last unit computes the loss, too
  loss,      ///< add a micro-batch's losses to those of the step
  reduce,    ///< a unit's backward has left gradients of a micro-batch complete
  clip,      ///< all leaves are done: the norm, the clip coefficient
  update,    ///< of a unit's parameters
  show       ///< a unit's parameters to the caller
};

struct Task {
  Work work = Work::begin;
  int unit = -1;
  int micro_batch = -1;

  bool computes() const { return work == Work::forward || work == Work::backward; }
};

/// In the order in which it is computed.
using Tasks = std::vector<Task>;

/// The unit where backward ends: the first that has trained parameters, or that gets its input from
/// one that is trained. As many as there are units where no backward is needed.
int first_trained(const ModelDescription& model);

/// Units whose saved activations are not kept from forward to backward: their backward computes
/// them again before it begins. The unit that computes the loss has no forward of its own.
std::vector<bool> find_checkpointed(const ModelDescription& model, const Checkpointing& policy);

/// The tasks of a step for the ranks of a stage, whose units are those of `model`. Training
/// computes forwards and backwards of micro-batches as one_forward_one_backward says; the unit that
/// computes the loss has no forward of its own. Units are updated after all of that, or, with
/// `early_updates`, each as soon as its gradient is complete.
Tasks make_tasks(const ModelDescription& model, Purpose purpose, const Grid& grid, int stage,
                 LeafOrder order, bool early_updates);

}  // namespace ostrakon::plan
