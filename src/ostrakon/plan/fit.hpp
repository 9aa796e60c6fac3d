// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/plan/timing.hpp>
#include <vector>

namespace ostrakon::plan {

/// Memory that a rank has.
struct Room {
  std::int64_t device_bytes = 0;
  std::int64_t host_bytes = std::numeric_limits<std::int64_t>::max();
};

/// Settings to choose from: a policy, and the model as it is with them. With Policy::stages above 1
/// a pipeline, whose chunks are those of find_chunks.
struct Candidate {
  const ModelDescription* model = nullptr;  ///< of the caller
  Policy policy;
  /// Candidates of one family differ only in what one would not choose for its own sake, such as
  /// how much overlaps. Of each family one is chosen: the first that fits, but for later ones that
  /// are faster by more than `small_difference`. -1: a family of its own.
  int family = -1;
};

/// Settings whose figures differ by less, relatively, are taken as equal.
constexpr double small_difference = 0.01;

/// A candidate's figures, of one rank in a step. In a pipeline arenas are the largest of any
/// stage, and the time is that of all stages together; all else is of the stage with the largest
/// arena in training, the first of these.
struct Fit {
  int candidate = -1;
  std::int64_t arena_bytes = 0;  ///< of a run in device memory: training, evaluation and export
  std::int64_t host_arena_bytes = 0;    ///< the same in host memory
  double flops = 0.0;                   ///< with all that is computed twice
  std::int64_t bytes_inside_nodes = 0;  ///< as in Report
  std::int64_t bytes_across_nodes = 0;
  std::int64_t bytes_copied = 0;  ///< either way
  std::int64_t bytes_on_host = 0;
  double seconds = 0.0;                ///< of the step, as estimate_times says
  double exposed_communication = 0.0;  ///< of these seconds, as in Timing
  bool bits_of_one_rank = false;       ///< StepPlan::has_the_bits_of_one_rank() of the step
};

struct Fits {
  /// The fastest first, of those within a thousandth the smallest arenas first. Each needs less
  /// memory than each of those before it, on the device or on the host, by more than
  /// `small_difference`, or has the bits of one rank where that one loses them: what is slower has
  /// to save something.
  std::vector<Fit> best;
  /// Where none fits: of those that fit in host memory the one with the smallest arena; without a
  /// candidate where there is none.
  Fit smallest;
  bool is_smallest_of_all = true;  ///< false: of 200 pipelines, those with the least bounds
  // Where some fit, all candidates are in one of these.
  std::int64_t planned = 0;    ///< candidates of which a step was planned
  std::int64_t too_large = 0;  ///< that by their least arenas alone do not fit
  std::int64_t too_slow = 0;   ///< that by their least seconds alone take longer than the best
  std::int64_t unneeded = 0;   ///< that by their least seconds are no faster than their family's
  /// Pipelines, and candidates with experts over ranks, that by their least seconds and arenas have
  /// no reason to be in `best`.
  std::int64_t needless = 0;
  std::int64_t impossible = 0;  ///< that can't be planned
};

/// How long a step takes, of each stage.
using StepTimes = std::function<std::vector<Timing>(const std::vector<const StepPlan*>&)>;

/// A lower bound of a run's arena without planning a step: what persists from step to step, and
/// what must be there while each unit's backward of the last micro-batch runs. Takes time in
/// proportion to the number of units. Throws Error as build_step_plan.
std::int64_t least_arena_bytes(const ModelDescription& model, int ranks, const Policy& policy);

/// Finds, for each family of candidates on `ranks` ranks, those of all stages, that fits into
/// `room` (bytes), the one that Candidate::family says; returns of these the `most` fastest,
/// without those that differ from a faster one by no more than Fits::best says. Skips candidates
/// that can't be planned; throws the Error of the first where that is all of them.
///
/// Where a schedule takes the memory of another (zero_bubble as 1f1b) candidates are compared, and
/// the list is made, with that one; then its rows are planned with their own, and sorted again.
///
/// Each candidate is planned once at most, by the least time that it can take: the longest of what
/// it computes, sends, copies and does on the host, which is known before. Those are never planned
/// whose least arenas are too large, whose least time is above the last of the `most`, or not below
/// that of their family; and memory is laid out only where the step's time may still be listed.
///
/// Seconds are those of `times`, by default estimate_times at `rates`. At `rates` no step may take
/// longer than `times` says.
Fits find_fits(const std::vector<Candidate>& candidates, int ranks, int ranks_per_node,
               const Room& room, const Rates& rates, std::size_t most, StepTimes times = {});

}  // namespace ostrakon::plan
