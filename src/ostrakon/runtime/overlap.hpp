// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/runtime/executor.hpp>
#include <vector>

namespace ostrakon::runtime {

/// Where the time of a run of a program went, in seconds.
struct OverlapTimes {
  double all = 0.0;            ///< from the first action's begin to the last one's end
  double compute = 0.0;        ///< of actions on the compute stream
  double communication = 0.0;  ///< of collectives, each on its own
  double hidden = 0.0;         ///< of that, while the compute stream had an action to run
  double copying = 0.0;        ///< of copies between host and device memory, of what units have
  double copying_hidden = 0.0;
  double host = 0.0;  ///< of what the host computes: the actions of its stream that are of units
  double host_hidden = 0.0;
};

OverlapTimes measure_overlap(const Program& program, const std::vector<ActionTime>& times);

}  // namespace ostrakon::runtime
