// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <ostrakon/plan/pipeline/end_times.hpp>

#include "plan/random_plans.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

StepPlan plan_of(const std::vector<std::pair<Stream, std::vector<int>>>& steps) {
  StepPlan plan;
  for (const auto& [stream, waits] : steps) {
    Action action;
    action.stream = stream;
    action.waits = waits;
    plan.actions.push_back(action);
  }
  return plan;
}

TEST(EndTimes, ActionsBeginWhenStreamsAndWaitsLetThem) {
  const StepPlan plan = plan_of({{Stream::gather, {}},
                                 {Stream::compute, {0}},
                                 {Stream::gather, {}},
                                 {Stream::compute, {2}},
                                 {Stream::reduce, {1}},
                                 {Stream::compute, {4}}});
  EXPECT_EQ(end_times(plan, {2, 3, 4, 1, 5, 1}), (std::vector<double>{2, 5, 6, 7, 10, 11}));
  EXPECT_EQ(end_times(plan, {0, 3, 0, 1, 0, 1}), (std::vector<double>{0, 3, 0, 4, 3, 5}));
}

double last_end(const StepPlan& plan, const std::vector<double>& seconds) {
  const std::vector<double> ends = end_times(plan, seconds);
  return *std::max_element(ends.begin(), ends.end());
}

// A step takes as long as the compute stream at least, as long as everything one after the other at
// most, and that where nothing may overlap.
TEST(EndTimes, LieBetweenTheLongestStreamAndAllInSequence) {
  for (int depth = 0; depth <= 2; ++depth) {
    Policy policy;
    policy.leaves = 4;
    policy.forward_prefetch.depth = policy.backward_prefetch.depth = depth;
    policy.in_flight_reductions = depth;
    const StepPlan plan = build_step_plan(make_model(5, false, 1), 4, policy, Purpose::train);
    std::vector<double> seconds;
    double compute = 0.0;
    for (const Action& action : plan.actions) {
      // Without batches: the next is loaded, and the first copied, while something is gathered even
      // where nothing is prefetched. The sums are a moment of the host, where the last step ends.
      const bool works = action.kind != Kind::release && action.kind != Kind::load &&
                         action.kind != Kind::copy_to_device && action.kind != Kind::clip;
      seconds.push_back(communicates(action.kind) ? 0.5 : works ? 1.0 : 0.0);
      if (action.stream == Stream::compute) compute += seconds.back();
    }
    const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    if (depth == 0) {
      EXPECT_DOUBLE_EQ(last_end(plan, seconds), all);
    } else {
      // Nothing hides the first gather; little or nothing the last reduction.
      EXPECT_GE(last_end(plan, seconds), compute + 0.5);
      EXPECT_LE(last_end(plan, seconds), compute + 1.0);
    }
  }
}

}  // namespace
