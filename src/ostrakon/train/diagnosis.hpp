// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <string>

namespace ostrakon::train {

/// Finds out which unit's gradient is not finite, on which ranks and in which micro-batch. Sums
/// show only that some gradient is not; so the step is run once more, and each gradient is looked
/// at as backward leaves it.
class Diagnosis {
 public:
  /// `plan`: of this rank's stage; `model`: the whole; `rank`: number in plans. What it is given
  /// must outlive it.
  Diagnosis(const plan::StepPlan& plan, const plan::ModelDescription& model, int rank,
            comm::Communicator& world);

  /// Forgets what was found: before a step is run once more.
  void restart() { origin_.reset(); }
  /// Looks at what a backward has written of one micro-batch: its unit's own gradients (if it has
  /// any), and those of the unit that it is tied to.
  void inspect(const runtime::ActionBuffers& buffers, View<const float*> own,
               View<const float*> tied);
  /// Says which unit's gradient is not finite on which ranks: of several units the one nearest to
  /// the loss, as what backward makes of it reaches those before it. Where the gradients of all
  /// micro-batches are finite, their sums are looked at. Collective, once the step's backward is
  /// done.
  std::string name_origin(const runtime::ActionBuffers& buffers);

  // Early updates consume gradients before a diagnosis: what is known then was noted as their
  // squares were summed.

  /// Forgets what was noted: at the begin of a step.
  void restart_notes() { noted_ = {}; }
  /// Notes that summed gradients of a unit are not finite in the shard of this rank.
  void note_sum(int unit, std::int64_t elements);
  /// Says which unit's summed gradient was noted, on which ranks. Collective.
  std::string name_noted() { return name_sum(noted_); }

 private:
  /// Where on this rank the gradient of a micro-batch is not finite.
  struct Origin {
    int distance;  ///< from the loss: twice the units in between, one more for a unit that is tied
    std::int64_t micro_batch;
  };
  /// A unit of the model whose summed gradient is not finite in the shard of this rank; of several
  /// the last one.
  struct NonFiniteSum {
    int unit = -1;  ///< none
    std::int64_t elements = 0;
  };

  /// The distance of a unit of the plan from the loss of the whole model.
  int distance_of(int unit) const {
    return 2 * (static_cast<int>(model_.units.size()) - 1 - plan_.units[unit].number);
  }
  void inspect(const runtime::ActionBuffers& buffers, int unit, int distance,
               View<const float*> gradients);
  NonFiniteSum find_sum(const runtime::ActionBuffers& buffers) const;
  std::string name_sum(const NonFiniteSum& mine);

  const plan::StepPlan& plan_;
  const plan::ModelDescription& model_;
  int rank_;
  comm::Communicator& world_;
  std::optional<Origin> origin_;  ///< nearest to the loss
  NonFiniteSum noted_;
};

}  // namespace ostrakon::train
