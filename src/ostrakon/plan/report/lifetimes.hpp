// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// Why a buffer takes memory when it does: from the action that first uses it to the one that ends
/// it, and what it is still needed for while its space has the most live bytes.
struct Lifetime {
  int buffer = -1;
  std::int64_t offset = 0;  ///< bytes, in the arena of its space
  bool at_peak = false;     ///< whether it is live at the peak of its space
  /// The first action, from the peak on, that reads or writes it: -1 where it is not live at the
  /// peak, or nothing uses it from there on.
  int needed_by = -1;
  int last_use = -1;  ///< the last action that reads or writes it
  int ended_by = -1;  ///< the action after which its bytes are free; -1: persistent
};

/// The lifetimes of the buffers whose names contain `pattern`, or, where it is "peak", of all that
/// are live at the peak of the device or the host; the largest first, of equal ones in the order of
/// the plan. Throws Error where no name contains it.
std::vector<Lifetime> find_lifetimes(const StepPlan& plan, const MemoryPlan& memory,
                                     const MemoryPlan& host_memory, const std::string& pattern);

/// A paragraph for each of the first `most` lifetimes, and how many more there are.
std::string lifetimes_text(const StepPlan& plan, const MemoryPlan& memory,
                           const MemoryPlan& host_memory, const std::vector<Lifetime>& lifetimes,
                           std::size_t most);

/// An array with an object for each lifetime.
nlohmann::ordered_json lifetimes_json(const StepPlan& plan, const std::vector<Lifetime>& lifetimes);

}  // namespace ostrakon::plan
