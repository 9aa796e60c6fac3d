// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <vector>

namespace ostrakon::plan {

/// The happens-before relation of a plan's actions, which holds in whatever order streams run: by
/// vector clocks, after L. Lamport (1978) and F. Mattern (1989). Takes time and memory in
/// proportion to actions and waits.
class HappensBefore {
 public:
  /// Throws std::logic_error where an action waits for itself or a later one.
  explicit HappensBefore(const StepPlan& plan);

  /// Whether action `a` has always ended before action `b` begins.
  bool before(int a, int b) const { return position_[a] < done_[b][static_cast<int>(stream_[a])]; }

  /// Position of an action among those of its stream, from 0.
  int position(int action) const { return position_[action]; }

 private:
  std::vector<Stream> stream_;
  std::vector<int> position_;
  std::vector<std::array<int, streams>> done_;  // per action and stream: how many actions have
                                                // ended by then
};

}  // namespace ostrakon::plan
