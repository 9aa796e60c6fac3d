// SPDX-License-Identifier: Apache-2.0

// Times of a plan against a slow simulation, and cases by hand.

#include <array>
#include <ostrakon/plan/pipeline/end_times.hpp>

#include "plan/naive_timing.hpp"
#include "plan/random_plans.hpp"

namespace ostrakon::tests {
namespace {

/// So that no part of a step drowns the others; then copies slower, then the host.
constexpr Rates rates = {1e3, 1e6, 1e5, 4e5, 2e6};
constexpr Rates mixed[] = {rates, {1e5, 1e8, 1e7, 1e5, 2e6}, {1e5, 1e8, 1e7, 4e6, 1e4}};

Action act(Kind kind, Stream stream, std::vector<int> waits) {
  Action action;
  action.kind = kind;
  action.stream = stream;
  action.waits = std::move(waits);
  return action;
}
Action compute(double flops, std::vector<int> waits = {}) {
  Action action = act(Kind::forward, Stream::compute, std::move(waits));
  action.flops = flops;
  return action;
}
/// Each of four ranks sends three times as many bytes.
Action collective(Kind kind, std::int64_t message, std::vector<int> waits = {}) {
  Action action =
      act(kind, kind == Kind::gather ? Stream::gather : Stream::reduce, std::move(waits));
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
  Action up = act(Kind::copy_to_device, Stream::upload, {});
  up.elements = 6;
  up.element_bytes = 2;
  Action update = act(Kind::optimize, Stream::host, {});
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

TEST(EndTimes, AreThoseOfStreamsAndWaits) {
  const StepPlan plan =
      make_plan({collective(Kind::gather, 1), compute(1.0, {0}), collective(Kind::gather, 1),
                 compute(1.0, {2}), collective(Kind::reduce_scatter, 1, {1}), compute(1.0, {4})});
  EXPECT_EQ(end_times(plan, {2, 3, 4, 1, 5, 1}), (std::vector<double>{2, 5, 6, 7, 10, 11}));
  EXPECT_EQ(end_times(plan, {0, 3, 0, 1, 0, 1}), (std::vector<double>{0, 3, 0, 4, 3, 5}));
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
  StepPlan copies = make_plan({act(Kind::copy_to_device, Stream::upload, {}),
                               act(Kind::copy_to_host, Stream::download, {})});
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
  std::array<int, 4> longest{};  // plans of which most is computing, communication, host, copies
  Random random(60);
  for (int trial = 0; trial < 150; ++trial) {
    const RandomPlan made = random_plan(random, 6, 4, 5);
    const StepPlan& plan = made.plan;
    SCOPED_TRACE(made.described);
    for (int ranks_per_node : {1, 2, 3, 4}) {
      const Rates& at = mixed[(trial + ranks_per_node) % 3];
      const Timing timing = time_plan(plan, ranks_per_node, at);
      const Timing expected = naive_timing(plan, ranks_per_node, at);
      const double small = 1e-9 * expected.seconds;
      ASSERT_EQ(timing.ends.size(), plan.actions.size());
      for (std::size_t a = 0; a < plan.actions.size(); ++a) {
        ASSERT_NEAR(timing.begins[a], expected.begins[a], small) << plan.describe(plan.actions[a]);
        ASSERT_NEAR(timing.ends[a], expected.ends[a], small) << plan.describe(plan.actions[a]);
      }
      const auto parts = [](const Timing& of) {
        return std::array{of.computing, of.exposed_communication, of.exposed_host,
                          of.exposed_copies};
      };
      const auto found = parts(timing), wanted = parts(expected);
      for (std::size_t p = 0; p < found.size(); ++p) ASSERT_NEAR(found[p], wanted[p], small);
      ASSERT_NEAR(timing.seconds, expected.seconds, small);
      ASSERT_NEAR(found[0] + found[1] + found[2] + found[3], timing.seconds, small);
      ++longest[std::max_element(found.begin(), found.end()) - found.begin()];
    }
  }
  EXPECT_GT(*std::min_element(longest.begin(), longest.end()), 0);
}

}  // namespace
}  // namespace ostrakon::tests
