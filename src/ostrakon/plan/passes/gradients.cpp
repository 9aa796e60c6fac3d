// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/gradients.hpp>

#include <algorithm>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <vector>

namespace ostrakon::plan {
namespace {

/// The uses of a gradient buffer in a step.
struct History {
  bool becomes_sum = false;    ///< whether it is to be the sum over all micro-batches
  bool is_sum = false;         ///< whether all addends are in it
  bool is_added_to = false;    ///< by an accumulation, a backward or a sum that continues
  int last_accumulation = -1;  ///< the last one that reads or adds to it
  int last_other_write = -1;   ///< the last other write before the update
};

std::vector<History> histories(const StepPlan& plan) {
  std::vector<History> all(plan.buffers.size());
  const auto of = [&](int buffer) -> History& { return all[static_cast<std::size_t>(buffer)]; };
  for (const PlannedUnit& unit : plan.units)
    if (unit.gradients >= 0) of(unit.gradients).becomes_sum = true;
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
    const Action& action = plan.actions[static_cast<std::size_t>(a)];
    const bool accumulates = action.kind == Kind::accumulate || action.continues_sum() ||
                             action.adds_to == AddsTo::partial_sum;
    const bool updates = is_update(action.kind);
    const bool hands_on = action.kind == Kind::gather_gradients || is_copy(action.kind);
    const bool from_sum =
        hands_on && std::any_of(action.uses.begin(), action.uses.end(), [&](const Use& use) {
          return use.access == Access::read && of(use.buffer).is_sum;
        });
    if (action.kind == Kind::norm) of(action.buffer(Role::gradient_shard)).is_sum = true;
    for (const Use& use : action.uses) {
      History& history = of(use.buffer);
      if (accumulates) history.last_accumulation = a;
      // A release counts as a write only to order it: the buffer's content does not change.
      if (use.access == Access::read || use.role == Role::released) continue;
      // The update of whole matrices replaces sums by directions.
      if (updates || (from_sum && history.becomes_sum)) continue;
      // A sum that was copied to the device to be added to is copied back.
      const bool comes_back = action.kind == Kind::copy_to_host && history.last_other_write >= 0;
      if (comes_back) history.last_accumulation = a;
      history.is_added_to = history.is_added_to || accumulates || comes_back;
      if (!accumulates && !comes_back) history.last_other_write = a;
      if (from_sum) history.becomes_sum = history.is_sum = true;
    }
  }
  return all;
}

}  // namespace

GradientBytes gradients_alive(const StepPlan& plan, Space space, int action) {
  GradientBytes bytes;
  const std::vector<History> all = histories(plan);
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    const bool is_alive = buffer.persistent || (buffer.first <= action && action <= buffer.last);
    if (buffer.category != Category::gradients || buffer.space != space || !is_alive) continue;
    const History& history = all[b];
    const bool is_written = history.last_other_write < action;
    const bool is_summed = is_written && history.becomes_sum && history.last_accumulation < action;
    const bool waits = is_written && history.is_added_to && history.last_accumulation >= action;
    (is_summed ? bytes.sums
     : waits   ? bytes.partial_sums
               : bytes.in_flight) +=
        (buffer.bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
  }
  return bytes;
}

}  // namespace ostrakon::plan
