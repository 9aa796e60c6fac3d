// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/picture_style.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/plan/timing.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// The stages of a pipeline drawn for an SVG image: a lane for each, with what the device computes
/// in a step, true in time as `timings` of estimate_times say. Where a lane is empty the stage
/// waits, for others or for what it gathers, reduces or copies. Forward, backward, gradients of
/// parameters that were deferred, and the rest have colors of their own; bars of a micro-batch that
/// touch are one. What is no character in `title` is replaced.
Drawing draw_stages(const std::vector<const StepPlan*>& stages, const std::vector<Timing>& timings,
                    const std::string& title);

}  // namespace ostrakon::plan
