// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/runtime/executor.hpp>
#include <string>
#include <vector>

namespace ostrakon::runtime {

/// Writes measured actions in the Trace Event Format that chrome://tracing and ui.perfetto.dev
/// read: a rank is a process, a stream a thread, an action a bar with its name in the plan.
///
/// A document consists of begin_trace(), the parts of ranks and steps in any order, and
/// end_trace().
std::string begin_trace();

/// Returns the names of the process `rank` and its threads.
std::string trace_rank(int rank, const std::string& host);

/// Returns the actions of one run of a program that were not skipped, each with unit, micro-batch
/// and step; communications also with the bytes that this rank sends to others, and copies with the
/// bytes copied. Times are relative to `origin`, in seconds of the clock of `times`.
std::string trace_step(const Program& program, const std::vector<ActionTime>& times, int rank,
                       std::int64_t step, double origin);

std::string end_trace();

}  // namespace ostrakon::runtime
