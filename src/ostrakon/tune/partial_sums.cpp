// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/tune/partial_sums.hpp>

#include <ostrakon/plan/ir/reduction_tree.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <ostrakon/plan/passes/gradients.hpp>

namespace ostrakon::tune {
namespace {

using plan::Axis;

/// How many sums of each unit wait for the last of so many micro-batches.
std::int64_t sums_before_last(const plan::StepPlan& plan, std::int64_t micro_batches) {
  std::vector<plan::Span> spans = plan.sum_spans();
  for (plan::Span& span : spans)
    if (span.axis == Axis::micro_batch) span.ranks = static_cast<int>(micro_batches);
  std::int64_t tree = 0;
  for (const plan::SpanSum& sum :
       plan::span_sums(spans, plan.layouts.sum_grain, 1, plan.layouts.summation)) {
    if (sum.continues) return 1;
    if (sum.span.axis == Axis::micro_batch) tree = sum.tree;
  }
  std::int64_t count = 0;
  for (plan::TreeNode node{micro_batches - 1, 1}; node.leaves < micro_batches;) {
    const auto [parent, sibling] = plan::parent_and_sibling(node, micro_batches, tree);
    if (sibling.begin < micro_batches - 1) ++count;
    node = parent;
  }
  return count;
}

/// The last action that computes backward for the last unit: about where most is live.
int last_loss(const plan::StepPlan& plan) {
  int last = 0;
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
    const plan::Action& action = plan.actions[a];
    if (action.kind == plan::Kind::backward &&
        action.unit + 1 == static_cast<int>(plan.units.size()))
      last = a;
  }
  return last;
}

}  // namespace

Memory more_partial_sums(const plan::StepPlan& plan, std::int64_t micro_batches) {
  const std::int64_t fewer = plan.grid.micro_batches();
  if (fewer < 2 || fewer >= micro_batches) return {};
  const std::int64_t before = sums_before_last(plan, fewer);
  const std::int64_t more = sums_before_last(plan, micro_batches) - before;
  const int at = last_loss(plan);
  const auto added = [&](plan::Space space) {
    return gradients_alive(plan, space, at).partial_sums / before * more;
  };
  return {added(plan::Space::device), added(plan::Space::host)};
}

}  // namespace ostrakon::tune
