// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/ir/step_plan.hpp>

namespace ostrakon::plan {

/// Bytes of live gradients by use, with the alignment of the arena.
struct GradientBytes {
  /// Gradients of units whose backward runs, or that are being reduced, copied or added to a sum.
  std::int64_t in_flight = 0;
  /// Sums over some of a rank's micro-batches, or of one of several addends, which wait to be added
  /// to others.
  std::int64_t partial_sums = 0;
  /// Sums over all micro-batches, which wait for the update, and copies of them made for it.
  std::int64_t sums = 0;
};

/// The bytes of the buffers of Category::gradients in `space` that are live while `action` runs.
GradientBytes gradients_alive(const StepPlan& plan, Space space, int action);

}  // namespace ostrakon::plan
