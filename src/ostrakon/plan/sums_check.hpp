// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/plan/sum_order.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

/// Follows the reduce-scatters of a plan: each must sum over one of the plan's spans, after those
/// before it, by the trees that span_sums says. Of sums that continue over micro-batches, a unit's
/// first one begins, and all others add to it.
class SumsCheck {
 public:
  explicit SumsCheck(const StepPlan& plan);

  /// The next action, which wrong_communication accepts. What is wrong with it, or "".
  std::string wrong(const Action& action);

 private:
  std::string wrong_sum(const Action& action, const SpanSum& sum);

  const StepPlan& plan_;
  std::vector<SpanSum> sums_;  // over ranks
  std::vector<bool> begun_;    // of each unit, the sum over micro-batches
};

}  // namespace ostrakon::plan
