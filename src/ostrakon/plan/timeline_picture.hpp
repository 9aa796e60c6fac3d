// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/picture_style.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/plan/timing.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// An action as it was measured, in seconds from the begin of its step.
struct MeasuredAction {
  Stream stream = Stream::compute;
  Kind kind = Kind::begin;
  double begin = 0.0, end = 0.0;
};

/// A step drawn for an SVG image, true in time: a lane for each stream with its actions as `timing`
/// says; where there are any, below each a lane of the `measured` ones in the same scale; and the
/// live bytes of device memory over time, by category. Neighbours that are too short to be seen are
/// one bar. What is no character in `title` is replaced.
Drawing draw_timeline(const StepPlan& plan, const Timing& timing,
                      const std::vector<MeasuredAction>& measured, const std::string& title);

}  // namespace ostrakon::plan
