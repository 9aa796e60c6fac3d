// SPDX-License-Identifier: Apache-2.0

// What the host does in a step is on its stream, and touches its memory only: on a device, actions
// of other streams do no more than submit work.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/plan/proof/order.hpp>
#include <ostrakon/plan/proof/stage_proof.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "plan/random_pipelines.hpp"
#include "plan/random_plans.hpp"
#include "plan/random_step_plan.hpp"
#include "support/trials.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

/// Random plans of all purposes, and of stages.
void for_many(const std::function<void(const StepPlan&)>& look) {
  std::mt19937_64 random(71);
  for (int trial = 0; trial < trials(1200); ++trial) {
    look(random_plan(random, 3, 4, 3).plan);
    for (const StepPlan& plan : random_pipeline(random, {4, 4, 6, 3}).stages) look(plan);
  }
}

bool is_host_work(Kind kind) {
  return kind == Kind::load || kind == Kind::reduce_sums || kind == Kind::clip;
}

TEST(HostWork, IsOnItsStreamAndInItsMemory) {
  int of_host = 0;
  for_many([&](const StepPlan& plan) {
    for (const Action& action : plan.actions) {
      const std::string what = plan.describe(action);
      if (is_host_work(action.kind)) {
        ASSERT_EQ(action.stream, Stream::host) << what;
        ++of_host;
      }
      const bool copies = action.kind == Kind::copy_to_device || action.kind == Kind::copy_to_host;
      for (const Use& use : action.uses) {
        const bool is_there =
            plan.buffers[static_cast<std::size_t>(use.buffer)].space == Space::host;
        // Gradients are looked at where one is not finite.
        const bool looks_at = action.kind == Kind::clip && use.role == Role::gradient_shard;
        if (action.stream == Stream::host && !looks_at) {
          ASSERT_TRUE(is_there) << what;
        }
        if (action.stream == Stream::compute && !copies && action.kind != Kind::release) {
          ASSERT_FALSE(is_there) << what;
        }
      }
    }
  });
  EXPECT_GT(of_host, 1000);
}

TEST(HostWork, BatchesAreReadAheadOfTheMicroBatchThatIsComputed) {
  int ahead = 0;
  for_many([&](const StepPlan& plan) {
    const Order order(plan);
    const int actions = static_cast<int>(plan.actions.size());
    int copied = -1, computed = -1;  // the last copy of a batch, and what came first after it
    int on_host = -1;                // of the last load
    for (int a = 0; a < actions; ++a) {
      const Action& action = plan.actions[static_cast<std::size_t>(a)];
      if (action.kind == Kind::load) {
        on_host = action.buffer(Role::host_batch);
        if (copied < 0) continue;
        // One of them at a time is in host memory.
        ASSERT_TRUE(order.before(copied, a));
        ASSERT_EQ(computed, -1);
        ++ahead;
      } else if (action.kind == Kind::copy_to_device && action.unit < 0) {
        ASSERT_EQ(action.buffer(Role::source), on_host);
        copied = a;
        computed = -1;
      } else if (action.kind == Kind::forward || action.kind == Kind::backward) {
        computed = a;
      }
    }
  });
  EXPECT_GT(ahead, 100);
}

TEST(HostWork, WhatGoesByTheSumsWaitsForThem) {
  int updates = 0;
  for_many([&](const StepPlan& plan) {
    const Order order(plan);
    const int actions = static_cast<int>(plan.actions.size());
    int clip = -1;
    for (int a = 0; a < actions; ++a) {
      const Action& action = plan.actions[static_cast<std::size_t>(a)];
      if (action.kind == Kind::clip) clip = a;
      const bool shares = action.kind == Kind::receive && action.buffer(Role::shard) >= 0;
      const bool is_careful = !plan.layouts.updates_early && action.buffer(Role::replaced) < 0;
      if (action.kind == Kind::verify || shares ||
          ((action.kind == Kind::optimize || action.kind == Kind::direction) && is_careful)) {
        ASSERT_GE(clip, 0);
        ASSERT_TRUE(order.before(clip, a)) << plan.describe(action);
        ++updates;
      }
    }
  });
  EXPECT_GT(updates, 500);
}

/// With all streams on one thread, in any order, a rank that waits for all others owes them
/// nothing.
TEST(HostWork, GradientsForAnotherStageCanBeSentBeforeTheSumsAre) {
  int sends = 0;
  for_many([&](const StepPlan& plan) {
    const Order order(plan);
    const auto adds =
        std::find_if(plan.actions.begin(), plan.actions.end(), [](const Action& action) {
          return action.kind == Kind::reduce_sums || action.kind == Kind::clip;
        });
    for (const Action& action : plan.actions) {
      if (action.kind != Kind::send || action.buffer(Role::gradient_shard) < 0) continue;
      ASSERT_NE(adds, plan.actions.end());
      for (int wait : action.waits) {
        ASSERT_TRUE(order.before(wait, static_cast<int>(adds - plan.actions.begin())));
      }
      ++sends;
    }
  });
  EXPECT_GT(sends, 10);
}

/// The verdict is in no buffer: what says so is a proof of its own.
TEST(HostWork, AnUpdateThatDoesNotWaitForTheSumsIsRefused) {
  StepPlan plan = build_step_plan(make_model(2, false, 3), 2, make_policy(4), Purpose::train);
  EXPECT_NO_THROW(prove_stages({&plan}));
  int waits = 0;
  for (Action& action : plan.actions)
    for (int wait : action.waits)
      if (plan.actions[static_cast<std::size_t>(wait)].kind == Kind::clip) {
        action.waits.clear();
        ++waits;
        break;
      }
  EXPECT_EQ(waits, 1);
  try {
    prove_stages({&plan});
    FAIL() << "not refused";
  } catch (const std::logic_error& error) {
    EXPECT_NE(std::string(error.what()).find("does not wait for the step's sums"),
              std::string::npos)
        << error.what();
  }
}

TEST(HostWork, IsListedWithItsCopies) {
  const StepPlan plan = build_step_plan(make_model(1, false, 3), 1, make_policy(2), Purpose::train);
  std::vector<std::string> listed;
  for (const Action& action : plan.actions)
    if (action.unit < 0) listed.push_back(text(name(action.stream), ": ", plan.describe(action)));
  EXPECT_EQ(listed,
            (std::vector<std::string>{
                "compute: begin", "host: load(micro-batch 0)",
                "compute: copy_to_device(batch, micro-batch 0)", "host: load(micro-batch 1)",
                "compute: copy_to_device(batch, micro-batch 1)", "compute: copy_to_host(sums)",
                "host: clip", "compute: release"}));
}

}  // namespace
