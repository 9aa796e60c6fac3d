// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/proof/happens_before.hpp>

#include <algorithm>
#include <stdexcept>

namespace ostrakon::plan {

HappensBefore::HappensBefore(const StepPlan& plan) {
  const std::size_t actions = plan.actions.size();
  stream_.reserve(actions);
  position_.reserve(actions);
  done_.reserve(actions);
  std::array<std::array<int, streams>, streams> last{};  // per stream: the clock when its last
                                                         // action has ended
  for (std::size_t a = 0; a < actions; ++a) {
    const Action& action = plan.actions[a];
    std::array<int, streams>& clock = last[static_cast<std::size_t>(action.stream)];
    for (int waited : action.waits) {
      if (waited < 0 || waited >= static_cast<int>(a))
        throw std::logic_error("the plan is wrong: " + plan.describe(action) +
                               " waits for what does not come before it");
      const auto earlier = static_cast<std::size_t>(waited);
      for (std::size_t s = 0; s < streams; ++s) clock[s] = std::max(clock[s], done_[earlier][s]);
      int& of_stream = clock[static_cast<std::size_t>(stream_[earlier])];
      of_stream = std::max(of_stream, position_[earlier] + 1);
    }
    int& own = clock[static_cast<std::size_t>(action.stream)];
    stream_.push_back(action.stream);
    position_.push_back(own);
    done_.push_back(clock);
    ++own;
  }
}

}  // namespace ostrakon::plan
