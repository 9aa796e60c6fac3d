// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/picture_style.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <string>

namespace ostrakon::plan {

/// Most actions in one picture.
constexpr int most_drawn_actions = 3000;

/// The plan drawn for an SVG image: streams as lanes with the actions as bars in
/// plan order (all actions equally wide: a plan has no times), in short plans with a line to each
/// action from those that it waits for; below them the live bytes of device memory at each action
/// by category, with the peak marked. Of plans of more than most_drawn_actions it shows the first
/// micro-batch, that with the peak and the last, or where they are long their beginnings and ends.
/// What is no character in `title` is replaced.
Drawing draw_plan(const StepPlan& plan, const MemoryPlan& memory, const std::string& title);
/// An image of it alone.
std::string picture_svg(const StepPlan& plan, const MemoryPlan& memory, const std::string& title);

}  // namespace ostrakon::plan
