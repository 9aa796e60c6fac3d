// SPDX-License-Identifier: Apache-2.0

// Times of a plan against a slow simulation, and cases by hand.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <ostrakon/plan/timing/timing.hpp>
#include <random>
#include <vector>

#include "naive_timing.hpp"
#include "random_plans.hpp"

namespace ostrakon::tests {
namespace {

using namespace ostrakon::plan;

/// So that no part of a step drowns the others; then copies slower, then the host.
constexpr Rates rates = {1e3, 1e6, 1e5, 4e5, 2e6};
constexpr Rates mixed[] = {rates, {1e5, 1e8, 1e7, 1e5, 2e6}, {1e5, 1e8, 1e7, 4e6, 1e4}};

Action make_action(Kind kind, Stream stream, std::vector<int> waits) {
  Action action;
  action.kind = kind;
  action.stream = stream;
  action.waits = std::move(waits);
  return action;
}
Action compute(double flops, std::vector<int> waits = {}) {
  Action action = make_action(Kind::forward, Stream::compute, std::move(waits));
  action.flops = flops;
  return action;
}
/// Each of four ranks sends three times as many bytes.
Action collective(Kind kind, std::int64_t message, std::vector<int> waits = {}) {
  Action action =
      make_action(kind, kind == Kind::gather ? Stream::gather : Stream::reduce, std::move(waits));
  action.span = {Axis::shard, 4};
  action.elements = 4 * message;
  action.element_bytes = 1;
  return action;
}

StepPlan make_plan(std::vector<Action> actions) {
  StepPlan plan;
  plan.grid = Grid(1, 4, 1);
  plan.actions = std::move(actions);
  return plan;
}

Timing time_plan(const StepPlan& plan, int ranks_per_node, const Rates& at) {
  return estimate_times(plan, Links(plan, ranks_per_node), at);
}

TEST(Timing, ActionsTakeTheirWorkOverItsRate) {
  // 10 flops a second, 2 and 1 bytes a second, 4 and 8 bytes a second.
  const Rates slow = {10.0, 2.0, 1.0, 4.0, 8.0};
  Action up = make_action(Kind::copy_to_device, Stream::upload, {});
  up.elements = 6;
  up.element_bytes = 2;
  Action update = make_action(Kind::optimize, Stream::host, {});
  update.elements = 3;
  update.uses = {{Role::shard, 0, Access::read_write}, {Role::first_moment, 0, Access::read_write}};
  StepPlan plan = make_plan({compute(40.0), collective(Kind::gather, 6), up, update});
  plan.buffers.resize(1);
  plan.buffers[0].bytes = 20;
  const Timing timing = time_plan(plan, 2, slow);
  // One partner on the rank's own node, two on another: 6 / 2 + 12 / 1. The host: 3 x 4 + 20 bytes.
  EXPECT_EQ(timing.ends, (std::vector<double>{4.0, 15.0, 3.0, 4.0}));
  EXPECT_EQ(timing.begins, (std::vector<double>{0.0, 0.0, 0.0, 0.0}));
  EXPECT_EQ(timing.seconds, 15.0);
  EXPECT_EQ(timing.computing, 4.0);
  EXPECT_EQ(timing.exposed_communication, 11.0);
  EXPECT_EQ(timing.exposed_host, 0.0);
  EXPECT_EQ(timing.exposed_copies, 0.0);
}

TEST(Timing, ActionsBeginWhenStreamsAndWaitsLetThem) {
  // A gather of 9 bytes a second takes as many seconds as its message has bytes / 3.
  const Rates one = {1.0, 9.0, 9.0, 1.0, 1.0};
  const StepPlan plan =
      make_plan({collective(Kind::gather, 6), compute(3.0, {0}), collective(Kind::gather, 12),
                 compute(1.0, {2}), collective(Kind::reduce_scatter, 15, {1}), compute(1.0, {4})});
  const Timing timing = time_plan(plan, 4, one);
  // The second gather runs alone from 2 to 5, when it has 1 second left, which takes 2 beside the
  // reduction; that has 4 left at 7.
  EXPECT_EQ(timing.ends, (std::vector<double>{2, 5, 7, 8, 11, 12}));
  EXPECT_EQ(timing.begins, (std::vector<double>{0, 2, 2, 7, 5, 11}));
  EXPECT_EQ(timing.computing, 3 + 1 + 1);
  EXPECT_EQ(timing.exposed_communication, 2 + 2 + 3);
}

TEST(Timing, CollectivesShareALinkAndNoMore) {
  const Rates one = {1.0, 3.0, 3.0, 1.0, 1.0};
  // Inside a node and across nodes are two links: here all partners are on one or the other.
  const StepPlan both =
      make_plan({collective(Kind::gather, 5), collective(Kind::reduce_scatter, 5)});
  EXPECT_EQ(time_plan(both, 4, one).seconds, 10.0);
  EXPECT_EQ(time_plan(both, 1, one).seconds, 10.0);
  StepPlan apart = both;
  apart.grid = Grid(1, 4, 4);
  apart.actions[1].span.axis = Axis::replicate;
  EXPECT_EQ(time_plan(apart, 4, one).seconds, 5.0);
  // Up and down do not share a link.
  StepPlan copies = make_plan({make_action(Kind::copy_to_device, Stream::upload, {}),
                               make_action(Kind::copy_to_host, Stream::download, {})});
  for (Action& action : copies.actions) action.elements = action.element_bytes = 3;
  EXPECT_EQ(time_plan(copies, 4, one).seconds, 9.0);
}

TEST(Timing, PartsOfAStepAreAllOfIt) {
  const Timing nothing = time_plan(StepPlan(), 1, rates);
  EXPECT_EQ(nothing.seconds, 0.0);
  StepPlan wrong = make_plan({compute(1.0, {1}), collective(Kind::gather, 1, {0})});
  EXPECT_THROW(time_plan(wrong, 1, rates), std::logic_error);
}

TEST(Timing, IsThatOfASlowSimulation) {
  constexpr int ranks = 4;
  std::array<int, 4> longest{};  // plans of which most is computing, communication, host, copies
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    ModelDescription model = make_model(1 + static_cast<int>(seed % 6), seed % 2 == 1, seed);
    vary(random, model);
    Policy policy = random_policy(random, model, ranks, ranks * (1 + random() % 5));
    vary(random, model, policy);
    if (seed % 3 == 0) add_grain(random, ranks, policy);
    for (Purpose purpose : purposes) {
      const StepPlan plan = build_step_plan(model, ranks, policy, purpose);
      for (int ranks_per_node : {1, 2, 3, 4}) {
        const Rates& at = mixed[(seed + static_cast<std::uint64_t>(ranks_per_node)) % 3];
        const Timing timing = time_plan(plan, ranks_per_node, at);
        const Timing expected = naive_timing(plan, ranks_per_node, at);
        const double small = 1e-9 * expected.seconds;
        ASSERT_EQ(timing.ends.size(), plan.actions.size());
        for (std::size_t a = 0; a < plan.actions.size(); ++a) {
          ASSERT_NEAR(timing.begins[a], expected.begins[a], small)
              << seed << plan.describe(plan.actions[a]);
          ASSERT_NEAR(timing.ends[a], expected.ends[a], small)
              << seed << plan.describe(plan.actions[a]);
        }
        ASSERT_NEAR(timing.seconds, expected.seconds, small);
        const std::array<double, 4> parts = {timing.computing, timing.exposed_communication,
                                             timing.exposed_host, timing.exposed_copies};
        ASSERT_NEAR(parts[0], expected.computing, small);
        ASSERT_NEAR(parts[1], expected.exposed_communication, small);
        ASSERT_NEAR(parts[2], expected.exposed_host, small);
        ASSERT_NEAR(parts[3], expected.exposed_copies, small);
        ASSERT_NEAR(parts[0] + parts[1] + parts[2] + parts[3], timing.seconds, small);
        ++longest[static_cast<std::size_t>(std::max_element(parts.begin(), parts.end()) -
                                           parts.begin())];
      }
    }
  }
  EXPECT_GT(*std::min_element(longest.begin(), longest.end()), 0);
}

}  // namespace
}  // namespace ostrakon::tests
