// SPDX-License-Identifier: Apache-2.0

// These tests are of which actions have always ended before others begin.

#include <gtest/gtest.h>

#include <cstdint>
#include <ostrakon/plan/proof/order.hpp>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "plan/handmade_plan.hpp"
#include "plan/oracle.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

TEST(Order, FollowsStreamsAndWaits) {
  StepPlan plan;
  plan.actions = {
      make_action(Stream::compute, {}),         // 0
      make_action(Stream::gather, {}),          // 1
      make_action(Stream::gather, {}, {0}),     // 2
      make_action(Stream::compute, {}, {1}),    // 3
      make_action(Stream::reduce, {}, {3}),     // 4
      make_action(Stream::compute, {}, {2, 4})  // 5
  };
  const Order order(plan);
  const std::vector<std::pair<int, int>> expected = {{0, 2}, {0, 3}, {0, 4}, {0, 5},
                                                     {1, 2}, {1, 3}, {1, 4}, {1, 5},
                                                     {2, 5}, {3, 4}, {3, 5}, {4, 5}};
  std::vector<std::pair<int, int>> found;
  for (int a = 0; a < 6; ++a)
    for (int b = 0; b < 6; ++b)
      if (order.before(a, b)) found.emplace_back(a, b);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(order.position(3), 1);
  EXPECT_EQ(order.position(4), 0);
}

TEST(Order, IsTheTransitiveClosureOfRandomPlans) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 100; ++trial) {
    StepPlan plan;
    for (int a = 0; a < 60; ++a) {
      Action action = make_action(static_cast<Stream>(random() % streams), {});
      for (std::uint64_t i = random() % 3; i > 0 && a > 0; --i)
        action.waits.push_back(static_cast<int>(random() % static_cast<std::uint64_t>(a)));
      plan.actions.push_back(action);
    }
    const Order order(plan);
    const auto closure = Closure::of(plan);
    ASSERT_TRUE(closure);
    for (int a = 0; a < 60; ++a)
      for (int b = 0; b < 60; ++b) ASSERT_EQ(order.before(a, b), closure->before(a, b));
  }
}

TEST(Order, RefusesWaitsForWhatComesLater) {
  for (int waited : {-1, 1, 2}) {
    StepPlan plan;
    plan.actions = {make_action(Stream::compute, {}), make_action(Stream::gather, {}, {waited}),
                    make_action(Stream::compute, {})};
    EXPECT_THROW(Order{plan}, std::logic_error) << waited;
  }
}

}  // namespace
