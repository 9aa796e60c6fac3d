// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <ostrakon/plan/fit.hpp>
#include <ostrakon/plan/fit_bounds.hpp>
#include <ostrakon/plan/fit_divisions.hpp>
#include <tuple>
#include <vector>

namespace ostrakon::plan {

/// What is known of the pipelines of a model before they are planned: of whichever of the divisions
/// that there may be.
class PipelineBounds {
 public:
  /// Throws Error where the model has no such divisions, or the micro-batches do not fit the
  /// schedule.
  PipelineBounds(const ModelDescription& model, const Policy& policy, std::int64_t micro_batches,
                 const Rates& rates);

  /// least_step_seconds of a step; 0 where there are too many divisions to look at.
  double seconds() const { return seconds_; }

  /// Bytes of the largest arena of a stage, for a candidate with such a pipeline.
  std::int64_t bytes(const Bounds& candidate) const;

 private:
  /// The chunks of a stage, and of how many micro-batches it keeps what forward left at a time.
  struct Stage {
    std::vector<UnitRange> chunks;
    std::int64_t in_flight = 1;
  };

  int stages_;
  std::vector<Stage> kinds_;                 // of stages, without equal ones
  std::vector<std::vector<int>> divisions_;  // the kind of each stage
  double seconds_ = 0.0;
};

/// Finds pipelines for many candidates, of which a few differ in it.
class PipelineCache {
 public:
  explicit PipelineCache(const Rates& rates) : rates_(rates) {}

  const PipelineBounds& of(const Candidate& candidate, std::int64_t micro_batches);

 private:
  using Key = std::tuple<const ModelDescription*, std::int64_t, int, int, ScheduleKind,
                         ZeroBubbleMemory, int, std::vector<int>>;
  const Rates rates_;
  std::map<Key, PipelineBounds> known_;
};

}  // namespace ostrakon::plan
