// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/runtime/executor.hpp>
#include <vector>

namespace ostrakon::runtime {

/// How the time of a run of a program was used, in seconds.
struct OverlapTimes {
  double all = 0.0;            ///< from the first action's begin to the last one's end
  double compute = 0.0;        ///< actions on the compute stream
  double communication = 0.0;  ///< sum of all collectives
  double hidden = 0.0;         ///< part of it during which the compute stream had an action to run
  double copying = 0.0;        ///< copies between host and device memory, of buffers of units
  double copying_hidden = 0.0;
  double host = 0.0;  ///< compute on the host: actions of its stream that belong to units
  double host_hidden = 0.0;
};

OverlapTimes measure_overlap(const Program& program, const std::vector<ActionTime>& times);

}  // namespace ostrakon::runtime
