// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <ostrakon/plan/step_plan.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// Every buffer begins at a multiple of this many bytes.
constexpr std::int64_t buffer_alignment = 256;

/// Where each buffer of a StepPlan lies in the one arena.
struct MemoryPlan {
  std::vector<std::int64_t> offsets;  ///< of each buffer, in bytes
  std::int64_t arena_bytes = 0;
  std::int64_t persistent_bytes = 0;  ///< the arena's first part, the same in all plans of a run
  std::int64_t peak_live_bytes = 0;   ///< most bytes alive at one action: no layout needs less
  int peak_action = -1;
  std::array<std::int64_t, categories> peak_by_category{};  ///< alive at peak_action
};

/// Gives two buffers the same bytes only where the last use of one comes before the first use of
/// the other in plan order.
MemoryPlan plan_memory(const StepPlan& plan);

/// The proof that must stand before anything runs: uses lie within lifetimes, nothing is read
/// before it is written, no two buffers that are alive at one action share bytes, all lie in the
/// arena. Throws std::logic_error naming the buffers and the action.
void prove_memory(const StepPlan& plan, const MemoryPlan& memory);

/// A table for people: bytes by category at the peak, and which action that is.
std::string memory_table(const StepPlan& plan, const MemoryPlan& memory);

}  // namespace ostrakon::plan
