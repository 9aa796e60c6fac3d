// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/ir/pipeline_schedule.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/plan/ir/tasks.hpp>
#include <vector>

namespace ostrakon::plan {

/// Returns the stage, with units that defer gradients of parameters only if that is of use: if a
/// turn for these comes later than that of backward. Units that recompute activations, or keep them
/// in host memory, do not defer: their activations would stay on the device from then on, for
/// several micro-batches.
ModelDescription with_deferral(const ModelDescription& stage, const Policy& policy,
                               const PipelineSchedule& turns);

/// The peak of the bytes that wait for deferred phases, left there by the forwards and backwards of
/// units that defer.
std::int64_t waiting_bytes(const ModelDescription& stage, const Tasks& tasks);

/// Returns the tasks, with deferred phases moved to earlier places where needed: they run before
/// more than `most` bytes wait for them, as far as that is possible.
Tasks limit_deferred_bytes(const ModelDescription& stage, const Tasks& tasks, std::int64_t most);

/// Searches the largest number of bytes that may wait for deferred phases, up to those of `tasks`.
/// `has_room` writes the plan for a given number and says whether it fits. It is called for some
/// numbers; the last call that fits has the largest number that does.
void find_most_waiting(const ModelDescription& stage, const Tasks& tasks,
                       const std::function<bool(std::int64_t most)>& has_room);

/// Estimates which part of zero_bubble's deferred work these stages can defer in the memory of
/// 1f1b: the activations of each stage may grow to those of the stage where 1f1b keeps most.
double part_deferred(const std::vector<ModelDescription>& stages, int micro_batches);

}  // namespace ostrakon::plan
