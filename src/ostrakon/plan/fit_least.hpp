// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/fit.hpp>
#include <ostrakon/plan/fit_bounds.hpp>
#include <ostrakon/plan/fit_pipelines.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/plan/timing.hpp>
#include <tuple>

namespace ostrakon::plan {

/// What a candidate takes at least, which is known before a step of it is planned: lower bounds of
/// what Fit has.
struct Least {
  std::int64_t device_bytes = 0;
  std::int64_t host_bytes = 0;
  double seconds = 0.0;
  bool bits_of_one_rank = false;  ///< an upper bound
};

/// The persistent state that candidates are planned with, which is the same for many of them.
class StateOfCandidate {
 public:
  /// Plans it, as one stage on `ranks` ranks, unless it is that of the candidate before. Throws
  /// Error where it can't be planned.
  void plan_for(const Candidate& candidate, int ranks);

  const StepPlan& plan() const { return plan_; }
  const MemoryPlan& memory() const { return memory_; }  ///< of the device
  const MemoryPlan& host_memory() const { return host_memory_; }

 private:
  using Key =
      std::tuple<const ModelDescription*, int, Sharding, int, OptimizerGroup, Accumulation, DType,
                 Offload, int, DType, bool, std::int64_t, std::int64_t, Summation, int>;

  StepPlan plan_;
  Key key_{};
  MemoryPlan memory_, host_memory_;
};

class LeastFinder {
 public:
  /// `ranks`: of all stages.
  LeastFinder(int ranks, int ranks_per_node, const Rates& rates)
      : ranks_(ranks), ranks_per_node_(ranks_per_node), rates_(rates), pipelines_(rates) {}

  /// Takes little time where candidates that follow each other are like each other. Throws Error
  /// where the candidate can't be planned; that it does not says nothing.
  Least of(const Candidate& candidate);

 private:
  /// What a rank does in a step, but for the order of it.
  struct Totals {
    double flops = 0.0;
    std::int64_t bytes_inside_nodes = 0, bytes_across_nodes = 0, bytes_copied = 0,
                 bytes_on_host = 0;
  };

  Least of_stage(const Bounds& bounds) const;
  Least of_pipeline(const Candidate& candidate, const Bounds& bounds);
  Totals totals_of(const Bounds& bounds) const;
  double seconds(const Totals& totals) const;

  const int ranks_, ranks_per_node_;
  const Rates rates_;
  StateOfCandidate state_;  // of the last candidate
  PipelineCache pipelines_;
};

}  // namespace ostrakon::plan
