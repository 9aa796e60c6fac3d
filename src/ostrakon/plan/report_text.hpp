// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/report.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/plan/timing.hpp>
#include <string>

namespace ostrakon::plan {

/// A line for each stage of a pipeline; empty where there are none. `is_estimated`: with how long
/// each waits. `shown`: the stage that other figures are of.
std::string stages_text(const std::vector<StageSummary>& stages, bool is_estimated,
                        const StepPlan& shown);

/// The figures of a plan as tables for people.
std::string report_text(const StepPlan& plan, const Report& report);

/// "at 100000 GFLOP/s, 250 GB/s inside a node, 25 GB/s across nodes", and with copies also "25 GB/s
/// between host and device, 12 GB/s where the host updates".
std::string rates_text(const Rates& rates, bool with_copies, bool with_host);

/// Floating-point operations in GFLOP, or in the next unit that keeps the number below 100,000:
/// "12.5 GFLOP", "3443.53 TFLOP".
std::string format_flops(double flops);

/// How collectives that span nodes go where they are in two levels, Grid::has_levels: "inside nodes
/// of 4 ranks, and across nodes"; else nothing.
std::string collectives_text(const Grid& grid, int ranks_per_node);

/// What to say of a plan that updates_early().
constexpr const char* early_updates =
    "begin overlapped with backward: a failed step has changed parameters";
/// And of one that updates optimistically.
constexpr const char* optimistic_updates =
    "before the norm of all is known: undone and repeated where it clips";
/// How tokens travel to experts that ranks share; "" where none do.
std::string experts_text(const StepPlan& plan, int ranks_per_node);
/// Says which of these holds, or "".
std::string updates_text(const StepPlan& plan);

}  // namespace ostrakon::plan
