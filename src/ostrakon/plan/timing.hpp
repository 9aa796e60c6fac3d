// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/plan/traffic.hpp>
#include <vector>

namespace ostrakon::plan {

/// What one rank computes, sends and copies in a second.
struct Rates {
  double flops = 1e14;
  double bytes_inside_nodes = 250e9;
  double bytes_across_nodes = 25e9;
  double bytes_copied = 25e9;   ///< between host and device memory, each way
  double bytes_on_host = 12e9;  ///< arrays that the host processes, each counted once
};

/// When each action of a step runs, in seconds from the begin of the step.
struct Timing {
  std::vector<double> begins, ends;  ///< of each action
  double seconds = 0.0;              ///< of the step: the last end
  // The step in parts, each moment in the first of these that holds:
  double computing = 0.0;              ///< the device computes
  double exposed_communication = 0.0;  ///< a collective runs
  double exposed_host = 0.0;           ///< the host computes
  double exposed_copies = 0.0;         ///< copies run
  double waiting = 0.0;                ///< for other stages: its part of the bubble
};

/// A list schedule: each action begins as soon as its stream is free and all that it waits for has
/// ended, and takes as long as its floating-point operations, the bytes that it sends inside and
/// across nodes, copies, or processes on the host, one after the other, need at `rates`. Those that
/// run at the same time share a link between ranks equally. All else takes no time. Throws
/// std::logic_error where an action waits for what can't come before it. Time in proportion to the
/// number of actions and waits.
Timing estimate_times(const StepPlan& plan, const Links& links, const Rates& rates);

/// The same for stages of a pipeline, a plan each, which run together: a message begins when both
/// of its stages are there, and the step's sums are made when all are.
std::vector<Timing> estimate_times(const std::vector<const StepPlan*>& stages, int ranks_per_node,
                                   const Rates& rates);

}  // namespace ostrakon::plan
