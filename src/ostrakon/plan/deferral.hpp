// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/pipeline_schedule.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/plan/tasks.hpp>
#include <vector>

namespace ostrakon::plan {

/// A stage whose units defer gradients of parameters only where that is of use: where a turn for
/// these comes later than that of backward. Not where backward computes again what forward left, or
/// brings it back from the host: it would be on the device from then on, of several micro-batches.
ModelDescription with_deferral(const ModelDescription& stage, const Policy& policy,
                               const PipelineSchedule& turns);

/// The most bytes that forwards and backwards of units that defer have left at a time for their
/// deferred phases.
std::int64_t waiting_bytes(const ModelDescription& stage, const Tasks& tasks);

/// Returns the tasks, with those that compute deferred phases where they are, or earlier: before
/// more than `most` bytes wait for them, as far as that is possible.
Tasks compute_in_time(const ModelDescription& stage, const Tasks& tasks, std::int64_t most);

/// Looks for the most bytes that may wait for deferred phases, of those that `tasks` have wait:
/// `has_room` writes the plan with a number of bytes and says whether that has room, for some
/// numbers, of which the largest that had room is the last that had.
void find_most_waiting(const ModelDescription& stage, const Tasks& tasks,
                       const std::function<bool(std::int64_t most)>& has_room);

/// Estimates which part of what zero_bubble says these stages defer in the memory of 1f1b: what
/// forwards leave is as much in all of them as it is in the one where 1f1b leaves most.
double part_deferred(const std::vector<ModelDescription>& stages, int micro_batches);

}  // namespace ostrakon::plan
