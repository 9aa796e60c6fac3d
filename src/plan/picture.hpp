// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <string>

namespace ostrakon::plan {

/// The plan as an SVG image that needs no other file: streams as lanes with the actions as bars in
/// plan order (every action as wide as every other: a plan knows no time), and below them the bytes
/// alive at each action by category, with the peak marked. Of plans of more than some thousand
/// actions it shows the first micro-batch, that with the peak and the last.
std::string picture_svg(const StepPlan& plan, const MemoryPlan& memory, const std::string& title);

}  // namespace ostrakon::plan
