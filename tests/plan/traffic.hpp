// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a rank sends in a plan, by which ranks it goes to.

#include <algorithm>
#include <cstdint>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <vector>

namespace ostrakon::tests {

/// The ranks of a group, in its order, with `rank` among them: by looking at all ranks.
inline std::vector<int> ranks_of_group(const plan::StepPlan& plan, const plan::Span& span,
                                       int rank) {
  const int shard = plan.grid.shard();
  const bool replicates = span.axis == plan::Axis::replicate;
  const auto along = [&](int r) { return replicates ? r / shard : r % shard; };
  const auto across = [&](int r) { return replicates ? r % shard : r / shard; };
  std::vector<int> group;
  for (int other = 0; other < plan.grid.ranks(); ++other)
    if (across(other) == across(rank) && along(other) % span.stride == along(rank) % span.stride &&
        along(other) / (span.stride * span.ranks) == along(rank) / (span.stride * span.ranks))
      group.push_back(other);
  return group;
}

/// Whether an action gathers, at last or on the way, from what was kept after forward: that is on
/// neighbours along a part of the shard axis.
inline bool is_of_kept(const plan::StepPlan& plan, const plan::Action& action) {
  const plan::Action* gather = &action;
  while (gather->kind == plan::Kind::gather) {
    const int part = gather->buffer(plan::Role::shard);
    // In place, its source is what the first gather into it has left.
    const int source = part >= 0 ? part : gather->buffer(plan::Role::parameters);
    const plan::Buffer& buffer = plan.buffers[static_cast<std::size_t>(source)];
    if (buffer.persistent) return false;
    const plan::Action& maker = plan.actions[static_cast<std::size_t>(buffer.first)];
    if (maker.kind == plan::Kind::keep || &maker == gather) return maker.kind == plan::Kind::keep;
    gather = &maker;
  }
  return false;
}

/// The spans over which is gathered what was kept after forward.
inline std::vector<plan::Span> kept_spans(const plan::StepPlan& plan) {
  std::vector<plan::Span> spans;
  for (const plan::Action& action : plan.actions)
    if (plan::communicates(action.kind) && is_of_kept(plan, action) &&
        std::find(spans.begin(), spans.end(), action.span) == spans.end())
      spans.push_back(action.span);
  return spans;
}

/// The spans over which ranks of a stage send anything, each once.
inline std::vector<plan::Span> spans_of_messages(const plan::StepPlan& plan) {
  std::vector<plan::Span> spans;
  for (const plan::Action& action : plan.actions)
    if (plan::communicates(action.kind) &&
        std::find(spans.begin(), spans.end(), action.span) == spans.end())
      spans.push_back(action.span);
  return spans;
}

/// In bytes, over these ranks alone.
inline std::int64_t bytes_sent(const plan::StepPlan& plan, const plan::Span& span) {
  std::int64_t bytes = 0;
  for (const plan::Action& action : plan.actions)
    if (action.span == span) bytes += plan.bytes_sent(action);
  return bytes;
}

/// The bytes of that which are activations.
inline std::int64_t exchanged(const plan::StepPlan& plan, const plan::Span& span) {
  std::int64_t bytes = 0;
  for (const plan::Action& action : plan.actions)
    if (action.span == span && action.kind == plan::Kind::exchange)
      bytes += plan.bytes_sent(action);
  return bytes;
}

/// Over all ranks of an axis, in one level or in two, without what goes over parts of it.
inline std::int64_t bytes_sent(const plan::StepPlan& plan, plan::Axis axis) {
  std::int64_t bytes = 0;
  for (const plan::Span& span : plan.grid.levels(axis)) bytes += bytes_sent(plan, span);
  return bytes;
}

}  // namespace ostrakon::tests
