// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/runtime/executor.hpp>
#include <string>
#include <vector>

namespace ostrakon::runtime {

/// Measured actions in the Trace Event Format that chrome://tracing and ui.perfetto.dev read: a
/// rank is a process, a stream a thread, an action a bar with its name in the plan.
///
/// A document is begin_trace() + the parts of ranks and steps, in any order + end_trace().
std::string begin_trace();

/// Names of the process `rank` and its threads.
std::string trace_rank(int rank, const std::string& host);

/// The actions of one run of a program that were not skipped, with the unit, the micro-batch, the
/// step, of communications the bytes that this rank sends to others, and of copies those copied.
/// Times are given relative to `origin`, in seconds of the clock that `times` are of.
std::string trace_step(const Program& program, const std::vector<ActionTime>& times, int rank,
                       std::int64_t step, double origin);

std::string end_trace();

}  // namespace ostrakon::runtime
