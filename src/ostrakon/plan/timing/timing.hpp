// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/plan/timing/traffic.hpp>
#include <vector>

namespace ostrakon::plan {

/// What one rank computes, sends and copies per second.
struct Rates {
  double flops_per_second = 1e14;
  double inside_node_bytes_per_second = 250e9;
  double across_node_bytes_per_second = 25e9;
  double copy_bytes_per_second = 25e9;  ///< between host and device memory, each way
  /// Bytes of arrays that the host processes, each counted once.
  double host_bytes_per_second = 12e9;
};

/// Resources that actions take time of. Actions that use the same one at the same time share it
/// equally, except `latency`, which is not shared.
enum class Resource { device, latency, inside_nodes, across_nodes, uploads, downloads, host };
constexpr int resources = 7;

/// Seconds of each resource that an action takes, one after the other, if it runs alone.
class ResourceSeconds {
 public:
  double& operator[](Resource resource) { return seconds_[static_cast<std::size_t>(resource)]; }
  double operator[](Resource resource) const {
    return seconds_[static_cast<std::size_t>(resource)];
  }

 private:
  std::array<double, resources> seconds_{};
};

/// Models how long actions take on a machine.
class Costs {
 public:
  virtual ~Costs() = default;

  /// `stage`: the index of the plan that has the action, among those that are simulated.
  virtual ResourceSeconds seconds(int stage, const Action& action) const = 0;

  /// How much slower the device computes while a collective or a message of the rank runs: 0.1 is
  /// 10 % longer.
  virtual double slowdown() const { return 0.0; }

  /// Whether a rank runs one action at a time, in plan order (runtime.streams: inline).
  virtual bool is_inline() const { return false; }
};

/// Begin and end of each action of a step, in seconds from the begin of the step.
struct Timing {
  std::vector<double> begins, ends;  ///< one per action
  double seconds = 0.0;              ///< duration of the step: the last end
  // Each moment of the step counts in the first of these that holds:
  double computing = 0.0;              ///< the device computes
  double exposed_communication = 0.0;  ///< a collective runs
  double exposed_host = 0.0;           ///< the host computes
  double exposed_copies = 0.0;         ///< copies run
  double waiting = 0.0;                ///< waiting for other stages: its part of the bubble
};

/// The stream in whose order an action runs. With is_inline there is one stream for all but
/// messages, which overlap with compute.
constexpr Stream order_of(Stream stream, bool is_inline) {
  const bool is_apart = !is_inline || stream == Stream::send || stream == Stream::receive;
  return is_apart ? stream : Stream::compute;
}

/// The kind of the action that adds up the step's sums over all ranks of all stages.
Kind global_sum_kind(const StepPlan& plan);

/// Simulates a list schedule of the stages of a pipeline, one plan per stage. Each action begins as
/// soon as its stream is free and all that it waits for has ended; a message when both of its
/// stages are there, and the step's sums when all are. Throws std::logic_error where an action
/// waits for one that can't come before it. Takes time in proportion to the number of actions and
/// waits.
std::vector<Timing> simulate_times(const std::vector<const StepPlan*>& stages, const Costs& costs);

/// What an action takes at `rates`: as long as its floating-point operations, the bytes that it
/// sends inside and across nodes, copies, or processes on the host, one after the other, need. All
/// else takes no time.
ResourceSeconds seconds_at(const Rates& rates, const StepPlan& plan, const Links& links,
                           const Action& action);

/// Estimates times with seconds_at.
Timing estimate_times(const StepPlan& plan, const Links& links, const Rates& rates);
std::vector<Timing> estimate_times(const std::vector<const StepPlan*>& stages, int ranks_per_node,
                                   const Rates& rates);

}  // namespace ostrakon::plan
