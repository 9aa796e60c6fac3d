// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <ostrakon/base/names.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <vector>

namespace ostrakon::scaling {

/// What a rank does at a moment of a step: the first of these that applies.
enum class Part {
  compute,        ///< the compute stream runs an action
  communication,  ///< a collective or a send runs: exposed communication
  host,           ///< the host's stream runs: exposed work of the host
  copies,         ///< a copy between host and device memory runs: exposed copies
  waiting         ///< none of these: a bubble, a message of another stage, or between actions
};
constexpr int parts = 5;
constexpr Named<Part> part_names[] = {{Part::compute, "compute"},
                                      {Part::communication, "communication"},
                                      {Part::host, "host"},
                                      {Part::copies, "copies"},
                                      {Part::waiting, "waiting"}};
constexpr const char* name(Part part) { return name_in(part_names, part); }

/// Returns the part of an action. The step's sums, which all ranks add up on the host's stream, are
/// communication; receives from another stage are waiting, as a transfer and the wait for it can't
/// be separated.
Part part_of(plan::Kind kind, plan::Stream stream);

/// A traced action, in seconds of any clock of its rank.
struct TracedAction {
  plan::Kind kind = plan::Kind::forward;
  plan::Stream stream = plan::Stream::compute;
  double begin = 0.0, end = 0.0;
};

/// The parts of a step on one rank, in seconds: they add up to the step.
struct RankParts {
  std::array<double, parts> seconds{};
  /// The parts but waiting, by the stream that ran: the first one if several did.
  std::array<double, plan::streams> by_stream{};

  double of(Part part) const { return seconds[static_cast<std::size_t>(part)]; }
};

/// Divides a step of `step_seconds` into parts, by the actions of a rank, in any order. The rest of
/// the step's seconds is waiting; 0 if actions took longer.
RankParts divide_step(const std::vector<TracedAction>& actions, double step_seconds);

/// Returns the time from the first begin to the last end; 0 without actions.
double span_of(const std::vector<TracedAction>& actions);

}  // namespace ostrakon::scaling
