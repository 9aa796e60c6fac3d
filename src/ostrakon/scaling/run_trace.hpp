// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <ostrakon/scaling/step_parts.hpp>
#include <string>
#include <vector>

namespace ostrakon::scaling {

/// The content of trace.json: the actions of each rank in some steps.
struct RunTrace {
  int ranks = 0;
  int hosts = 0;  ///< number of different hosts of the ranks
  /// For each step, the actions of each rank.
  std::map<std::int64_t, std::vector<std::vector<TracedAction>>> steps;
};

/// Reads a file of runtime/trace.hpp. Throws Error, naming the file and what was expected, where it
/// is missing, is cut off, or has other events.
RunTrace read_trace(const std::string& file);

}  // namespace ostrakon::scaling
