// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <ostrakon/scaling/step_parts.hpp>
#include <string>
#include <vector>

namespace ostrakon::scaling {

/// A trace.json: what each rank did in some steps.
struct RunTrace {
  int ranks = 0;
  int hosts = 0;  ///< different ones that ranks ran on
  /// The actions of each rank, for each step.
  std::map<std::int64_t, std::vector<std::vector<TracedAction>>> steps;
};

/// Reads what runtime/trace.hpp writes. Throws Error, naming the file and what was expected, where
/// it is missing, is cut off, or has other events.
RunTrace read_trace(const std::string& file);

}  // namespace ostrakon::scaling
