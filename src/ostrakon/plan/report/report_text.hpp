// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/plan/report/report.hpp>
#include <ostrakon/plan/timing/timing.hpp>
#include <string>

namespace ostrakon::plan {

/// Returns a line for each stage of a pipeline; "" where there are none. `is_estimated`: with how
/// long each waits. `shown`: the plan of the stage that the report's other figures are for.
std::string stages_text(const std::vector<StageSummary>& stages, bool is_estimated,
                        const StepPlan& shown);

/// Returns the report as tables.
std::string report_text(const StepPlan& plan, const Report& report);

/// Returns "at 100000 GFLOP/s, 250 GB/s inside a node, 25 GB/s across nodes", and with copies also
/// "25 GB/s between host and device, 12 GB/s where the host updates".
std::string rates_text(const Rates& rates, bool with_copies, bool with_host);

/// Returns floating-point operations in GFLOP, or in the next unit that keeps the number below
/// 100,000: "12.5 GFLOP", "3443.53 TFLOP".
std::string format_flops(double flops);

/// Returns "inside nodes of 4 ranks, and across nodes" if collectives have two levels
/// (Grid::has_levels); else "".
std::string collectives_text(const Grid& grid, int ranks_per_node);

/// Text for plans with updates_early().
constexpr const char* early_updates =
    "begin overlapped with backward: a failed step has changed parameters";
/// Text for plans that update optimistically.
constexpr const char* optimistic_updates =
    "before the norm of all is known: undone and repeated where it clips";
/// Describes how tokens are dispatched to experts on other ranks; "" where ranks share none.
std::string experts_text(const StepPlan& plan, int ranks_per_node);
/// Returns the text above that holds for the plan, or "".
std::string updates_text(const StepPlan& plan);

}  // namespace ostrakon::plan
