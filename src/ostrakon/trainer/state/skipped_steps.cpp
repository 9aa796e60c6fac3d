// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/state/skipped_steps.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>

namespace ostrakon::train {

void SkippedSteps::restore(std::int64_t in_a_row, bool overflowed) {
  in_a_row_ = in_a_row;
  not_overflowed_ = overflowed ? 0 : in_a_row;
  why_.clear();
}

void SkippedSteps::add(const std::string& why, bool overflowed) {
  ++in_a_row_;
  not_overflowed_ = overflowed ? 0 : not_overflowed_ + 1;
  why_ = why;
}

void SkippedSteps::require_updates(std::int64_t step) const {
  if (in_a_row_ < most) return;
  throw CollectiveError(text("step ", step, ": ", in_a_row_,
                             " consecutive steps were skipped, the last one: ", why_));
}

std::string SkippedSteps::problem(std::int64_t last) const {
  if (not_overflowed_ == 0 || not_overflowed_ < std::min(least_ruined, last)) return "";
  return text("the last ", not_overflowed_ == 1 ? "step was" : text(not_overflowed_, " steps were"),
              " skipped", why_.empty() ? "" : ": " + why_);
}

}  // namespace ostrakon::train
