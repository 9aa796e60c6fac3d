// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <string>

namespace ostrakon::train {

/// Finds which unit's gradient is not finite, on which ranks and in which micro-batch. Sums show
/// only that some gradient is not; so the step is run once more, and each gradient is checked after
/// its backward.
class Diagnosis {
 public:
  /// `plan`: of this rank's stage; `model`: the whole; `rank`: number in plans. All references must
  /// outlive it.
  Diagnosis(const plan::StepPlan& plan, const plan::ModelDescription& model, int rank,
            comm::Communicator& world);

  /// Forgets earlier results, before a step is run once more.
  void restart() { origin_.reset(); }
  /// Checks the gradients that a backward has written for one micro-batch: its unit's own (if it
  /// has any), and those of the unit that it is tied to.
  void inspect(const runtime::ActionBuffers& buffers, View<const float*> own,
               View<const float*> tied);
  /// Returns which unit's gradient is not finite on which ranks: of several units the one nearest
  /// to the loss, as backward carries nonfinite values to the units before it. If the gradients of
  /// all micro-batches are finite, their sums are checked. Collective, after the step's backward.
  std::string name_origin(const runtime::ActionBuffers& buffers);

  // Early updates consume gradients before a diagnosis, so nonfinite sums are noted when their
  // squares are added.

  /// Forgets earlier notes, at the begin of a step.
  void restart_notes() { noted_ = {}; }
  /// Notes that summed gradients of a unit are not finite in the shard of this rank.
  void note_sum(int unit, std::int64_t elements);
  /// Returns which unit's summed gradient was noted, on which ranks. Collective.
  std::string name_noted() { return name_sum(noted_); }

 private:
  /// The place at which the gradient of a micro-batch is not finite on this rank.
  struct Origin {
    int distance;  ///< distance from the loss: twice the units in between, and one more for a tied
                   ///< unit
    std::int64_t micro_batch;
    bool is_sum;  ///< over micro-batches up to that one, to which backward adds
  };
  /// A unit of the model whose summed gradient is not finite in the shard of this rank; the last
  /// one of several.
  struct NonFiniteSum {
    int unit = -1;  ///< -1: none
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
  std::optional<Origin> origin_;  ///< the one nearest to the loss
  NonFiniteSum noted_;
};

}  // namespace ostrakon::train
