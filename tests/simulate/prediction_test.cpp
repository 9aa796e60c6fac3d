// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/plan/build.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/simulate/prediction.hpp>

#include "machines.hpp"
#include "plan/report_fixture.hpp"

namespace ostrakon::tests {
namespace {

using namespace ostrakon::simulate;
using plan::Policy;
using plan::StepPlan;

constexpr double model_flops = 1e4;

std::vector<StepPlan> plan_stages(int ranks, const Policy& policy) {
  const plan::ModelDescription model = reports::make_model(6);
  const int of_stage = ranks / policy.stages;
  return plan::build_stage_plans(model, plan::find_chunks(model, of_stage, policy), of_stage,
                                 policy, plan::Purpose::train);
}

std::vector<const StepPlan*> pointers(const std::vector<StepPlan>& plans) {
  std::vector<const StepPlan*> all;
  for (const StepPlan& plan : plans) all.push_back(&plan);
  return all;
}

Machine rough_machine() {
  Machine machine = round_machine();
  machine.slowdown = 0.3;
  machine.step_seconds = 0.7;
  machine.inside_nodes.base_seconds = 0.01;
  machine.across_nodes.step_seconds = 0.02;
  machine.rank_deviation = 0.01;
  machine.run_deviation = 0.02;
  return machine;
}

TEST(Prediction, FactorsMultiplyToTheEfficiency) {
  for (const int stages : {1, 2, 4})
    for (const Streams streams : {Streams::concurrent, Streams::one_after_the_other}) {
      Policy policy = reports::make_policy(plan::Sharding::full, 16);
      policy.stages = stages;
      const std::vector<StepPlan> plans = plan_stages(8, policy);
      const Prediction found = predict(pointers(plans), rough_machine(), 4, streams, model_flops);
      EXPECT_NEAR(found.factors.product(), found.mfu, 1e-12 * found.mfu) << stages;
      const double peak = 200.0;
      EXPECT_DOUBLE_EQ(found.mfu, model_flops / (found.step_seconds * peak * 8));
      EXPECT_LE(found.fastest, found.step_seconds);
      EXPECT_LT(found.step_seconds, found.slowest);
      for (const double factor :
           {found.factors.communication, found.factors.host, found.factors.copies,
            found.factors.bubbles, found.factors.variation}) {
        EXPECT_GT(factor, 0.0);
        EXPECT_LE(factor, 1.0);
      }
      if (stages > 1) {
        EXPECT_LT(found.factors.bubbles, 1.0);
      }
    }
}

TEST(Prediction, TheRangeIsOfRunsAndOfTheModel) {
  for (const int stages : {1, 2}) {
    Policy policy = reports::make_policy(plan::Sharding::full, 16);
    policy.stages = stages;
    const std::vector<StepPlan> plans = plan_stages(8, policy);
    Machine machine = round_machine();
    machine.memory_bytes = 100;
    const auto expect = [&](std::int64_t arena_bytes, double faster, double slower) {
      const Prediction found =
          predict(pointers(plans), machine, 4, Streams::concurrent, model_flops, arena_bytes);
      EXPECT_NEAR(1.0 - found.fastest / found.step_seconds, faster, 1e-12);
      EXPECT_NEAR(found.slowest / found.step_seconds - 1.0, slower, 1e-12);
    };
    expect(0, 0.0, 0.0);
    machine.run_deviation = 0.03;
    expect(0, 0.06, 0.06);
    machine.any_step = {0.08, 0.32};
    machine.tensor_step = {0.5, 0.5};  // there are no tensor ranks
    machine.full_memory_step = {0.0, 0.91};
    expect(79, 0.10, std::hypot(0.06, 0.32));
    expect(80, 0.10, std::hypot(0.06, 0.91));
    machine.pipeline_step = {0.25, 0.0};
    expect(0, stages > 1 ? std::hypot(0.06, 0.25) : 0.10, std::hypot(0.06, 0.32));
  }
}

TEST(Prediction, TheCriticalChainIsAsLongAsTheStep) {
  for (const int stages : {1, 2}) {
    Policy policy = reports::make_policy(plan::Sharding::full, 16);
    policy.stages = stages;
    const std::vector<StepPlan> plans = plan_stages(8, policy);
    for (const Streams streams : {Streams::concurrent, Streams::one_after_the_other}) {
      const Prediction found = predict(pointers(plans), rough_machine(), 4, streams, model_flops);
      const plan::Timing& timing = found.timings[static_cast<std::size_t>(found.busiest)];
      double chain = 0.0;
      for (const CriticalPart& part : found.critical) chain += part.seconds;
      const double last = *std::max_element(timing.ends.begin(), timing.ends.end());
      EXPECT_NEAR(chain, last, 1e-9 * last) << stages;
    }
  }
}

// Nothing overlaps when a rank runs one action after the other: a step takes the sum of all.
TEST(Prediction, InlineTakesTheSumOfAllActions) {
  const std::vector<StepPlan> plans = plan_stages(4, reports::make_policy(plan::Sharding::full, 4));
  Machine machine = round_machine();
  const MachineCosts costs(pointers(plans), machine, 0, Streams::one_after_the_other);
  double sum = 0.0;
  for (const plan::Action& action : plans.front().actions) {
    const plan::ResourceSeconds seconds = costs.seconds(0, action);
    for (int r = 0; r < plan::resources; ++r) sum += seconds[static_cast<plan::Resource>(r)];
  }
  const auto at = [&](Streams streams) {
    return predict(pointers(plans), machine, 0, streams, model_flops).step_seconds;
  };
  EXPECT_NEAR(at(Streams::one_after_the_other), sum, 1e-9 * sum);
  EXPECT_LT(at(Streams::concurrent), 0.98 * sum);
}

// One more for each doubling: as the expected maximum of W waits with exponential tails grows,
// which is the sum of 1 / n to W.
TEST(Prediction, JitterGrowsAsTheLongestOfManyWaits) {
  Machine machine = round_machine();
  machine.jitter = 0.01;
  EXPECT_DOUBLE_EQ(added_by_variation(machine, 1), 0.0);
  EXPECT_DOUBLE_EQ(added_by_variation(machine, 8), 0.0);
  EXPECT_DOUBLE_EQ(added_by_variation(machine, 16), 0.01);
  const auto longest = [](int ranks) {
    double sum = 0.0;
    for (int n = ranks; n > 0; --n) sum += 1.0 / n;
    return sum;
  };
  const double of_doubling = longest(32768) - longest(16384);
  EXPECT_NEAR(added_by_variation(machine, 4096) / 0.01, (longest(4096) - longest(8)) / of_doubling,
              0.1);
}

TEST(Prediction, CollectivesSlowComputing) {
  const std::vector<StepPlan> plans = plan_stages(4, reports::make_policy(plan::Sharding::full, 4));
  Machine machine = round_machine();
  machine.inside_nodes.bytes_per_second = 1e4;
  machine.kernels.row_bytes_per_second = 1e6;  // so that updates take little
  const auto computing = [&](double slowdown) {
    machine.slowdown = slowdown;
    return predict(pointers(plans), machine, 0, Streams::concurrent, model_flops)
        .timings.front()
        .computing;
  };
  EXPECT_GT(computing(0.5), 1.01 * computing(0.0));
  EXPECT_LT(computing(0.5), 1.5 * computing(0.0));
}

TEST(Prediction, RemediesAreThoseThatHelpMostFirst) {
  const std::vector<StepPlan> plans = plan_stages(8, reports::make_policy(plan::Sharding::full, 8));
  Machine machine = round_machine();
  machine.across_nodes.bytes_per_second = 0.1;  // the network across nodes is all
  const std::vector<Improvement> found =
      find_improvements(pointers(plans), machine, 4, Streams::concurrent);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().what, "twice the bandwidth across nodes");
  const double now =
      predict(pointers(plans), machine, 4, Streams::concurrent, model_flops).step_seconds;
  EXPECT_NEAR(found.front().step_seconds, 0.5 * now, 0.05 * now);
  for (std::size_t i = 1; i < found.size(); ++i)
    EXPECT_LE(found[i - 1].step_seconds, found[i].step_seconds);
  machine.stack.launch_seconds = 1e6;
  EXPECT_EQ(find_improvements(pointers(plans), machine, 4, Streams::concurrent).front().what,
            "half the time to start kernels");
}

}  // namespace
}  // namespace ostrakon::tests
