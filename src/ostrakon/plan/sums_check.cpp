// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/sums_check.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/communication_check.hpp>

namespace ostrakon::plan {

SumsCheck::SumsCheck(const StepPlan& plan) : plan_(plan), begun_(plan.units.size(), false) {
  for (const SpanSum& sum : span_sums(plan.sum_spans(), plan.layouts.sum_grain))
    if (sum.span.axis != Axis::micro_batch) sums_.push_back(sum);
}

std::string SumsCheck::wrong(const Action& action) {
  if (action.kind != Kind::reduce_scatter) return "";
  Spans before;
  for (const SpanSum& sum : sums_) {
    if (sum.span != action.span) {
      before.push(sum.span);
      continue;
    }
    if (plan_.buffers[action.buffer(Role::parameter_gradients)].divided != before)
      return of_collective(action, "the spans before it are not summed, or not these alone");
    return wrong_sum(action, sum);
  }
  return of_collective(action, "the order of sums has no such span");
}

std::string SumsCheck::wrong_sum(const Action& action, const SpanSum& sum) {
  const int tree = sum.tree < sum.span.ranks ? sum.tree : 0;
  const auto trees = [](int of) {
    return of > 0 ? text("trees over ", of, " ranks") : std::string("one tree over all ranks");
  };
  if (action.tree != tree)
    return of_collective(action, text("sums by ", trees(action.tree), ", expected ", trees(tree)));
  const bool continues = sum.continues && begun_[action.unit];
  if (sum.continues) begun_[action.unit] = true;
  const auto part = std::find_if(action.uses.begin(), action.uses.end(),
                                 [](const Use& use) { return use.role == Role::gradient_shard; });
  if (part->access == (continues ? Access::read_write : Access::write)) return "";
  return of_collective(action, continues ? "drops the sum over the micro-batches before"
                                         : "adds to a sum that has not begun");
}

}  // namespace ostrakon::plan
