// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/plan/pipeline/end_times.hpp>
#include <ostrakon/runtime/arena.hpp>
#include <ostrakon/runtime/overlap.hpp>
#include <thread>
#include <vector>

#include "plan/random_plans.hpp"
#include "runtime/hand_made.hpp"

namespace {

using namespace ostrakon;
using plan::Kind;
using plan::Stream;

TEST(Overlap, IsTheTimeThatCollectivesShareWithCompute) {
  const runtime::Program program = test::program_of({{Stream::gather, {}},
                                                     {Stream::compute, {}},
                                                     {Stream::compute, {}},
                                                     {Stream::gather, {}},
                                                     {Stream::reduce, {}},
                                                     {Stream::reduce, {}}});
  const std::vector<runtime::ActionTime> times = {{10.0, 11.0}, {11.5, 13.0}, {14.0, 15.0},
                                                  {12.0, 14.5}, {9.0, 10.0},  {0.0, 0.0}};
  const runtime::OverlapTimes overlap = runtime::measure_overlap(program, times);
  EXPECT_DOUBLE_EQ(overlap.all, 6.0);
  EXPECT_DOUBLE_EQ(overlap.compute, 2.5);
  EXPECT_DOUBLE_EQ(overlap.communication, 1.0 + 2.5 + 1.0);
  EXPECT_DOUBLE_EQ(overlap.hidden, 1.0 + 0.5);
}

TEST(Overlap, CountsCopiesAndTheHostApartFromCollectives) {
  const runtime::Program program = test::program_of({{Stream::compute, {}},
                                                     {Stream::upload, {}},
                                                     {Stream::download, {}},
                                                     {Stream::upload, {}},
                                                     {Stream::host, {}},
                                                     {Stream::compute, {}}});
  const std::vector<runtime::ActionTime> times = {{1.0, 3.0}, {0.5, 2.0}, {2.0, 2.5},
                                                  {2.5, 4.5}, {3.5, 6.0}, {4.0, 5.0}};
  const runtime::OverlapTimes overlap = runtime::measure_overlap(program, times);
  EXPECT_DOUBLE_EQ(overlap.all, 5.5);
  EXPECT_DOUBLE_EQ(overlap.compute, 3.0);
  EXPECT_EQ(overlap.communication, 0.0);
  EXPECT_DOUBLE_EQ(overlap.copying, 1.5 + 0.5 + 2.0);
  EXPECT_DOUBLE_EQ(overlap.copying_hidden, 1.0 + 0.5 + 0.5 + 0.5);
  EXPECT_DOUBLE_EQ(overlap.host, 2.5);
  EXPECT_DOUBLE_EQ(overlap.host_hidden, 1.0);
}

TEST(Overlap, OfNothingIsNothing) {
  const runtime::Program program = test::program_of({{Stream::compute, {}}});
  const runtime::OverlapTimes overlap = runtime::measure_overlap(program, {{0.0, 0.0}});
  EXPECT_EQ(overlap.all, 0.0);
  EXPECT_EQ(overlap.hidden, 0.0);
}

/// A step of a plan whose actions sleep, so that it needs no cores: compute for a fixed time,
/// collectives for a time that grows with their bytes.
class SleepingStep {
 public:
  explicit SleepingStep(int prefetch) {
    plan::Policy policy;
    policy.leaves = 8;
    policy.forward_prefetch.depth = policy.backward_prefetch.depth = prefetch;
    policy.in_flight_reductions = prefetch;
    program_ = runtime::make_program(
        build_step_plan(tests::make_model(6, false, 3), 4, policy, plan::Purpose::train));
  }

  /// The fraction of the network's time that does not make a step longer, measured and by the plan.
  struct Hidden {
    double measured, planned;
  };
  /// Runs the step again with and without a network. The shortest times so far are used, as other
  /// work on the machine only makes steps longer.
  Hidden hide() {
    const double delay = network_seconds();
    with_network_ = std::min(with_network_, run(true));
    without_ = std::min(without_, run(false));
    const double planned_longer = planned(true) - planned(false);
    return {1.0 - (with_network_ - without_) / delay, 1.0 - planned_longer / delay};
  }

 private:
  double seconds(const plan::Action& action, bool network) const {
    if (plan::communicates(action.kind))
      return network ? 3e-8 * static_cast<double>(program_.plan.bytes_sent(action)) : 0.0;
    return action.kind == Kind::forward || action.kind == Kind::backward ? 5e-3 : 0.0;
  }
  double network_seconds() const {
    double sum = 0.0;
    for (const plan::Action& action : program_.plan.actions)
      if (plan::communicates(action.kind)) sum += seconds(action, true);
    return sum;
  }
  double planned(bool network) const {
    std::vector<double> durations;
    for (const plan::Action& action : program_.plan.actions)
      durations.push_back(seconds(action, network));
    const std::vector<double> ends = plan::end_times(program_.plan, durations);
    return *std::max_element(ends.begin(), ends.end());
  }
  double run(bool network) {
    const runtime::Arena arena(program_.memory.arena_bytes);
    const runtime::Arena host(program_.host_memory.arena_bytes, plan::Space::host);
    runtime::Executor executor({arena.data(), host.data()}, runtime::Streams::threads);
    for (int kind = 0; kind < plan::kinds; ++kind)
      executor.on(static_cast<Kind>(kind), [&](const runtime::ActionBuffers& buffers) {
        std::this_thread::sleep_for(
            std::chrono::duration<double>(seconds(buffers.action, network)));
      });
    const double begin = seconds_now();
    executor.run(program_);
    return seconds_now() - begin;
  }

  runtime::Program program_;
  double with_network_ = std::numeric_limits<double>::infinity(), without_ = with_network_;
};

/// Tries several times, as the machine may be busy.
template <class Good>
void expect_sooner_or_later(SleepingStep step, const Good& is_good) {
  SleepingStep::Hidden hidden{};
  for (int attempt = 0; attempt < 100; ++attempt) {
    hidden = step.hide();
    if (is_good(hidden)) return;
  }
  ADD_FAILURE() << "hidden " << hidden.measured << ", by the plan " << hidden.planned;
}

TEST(Overlap, HidesTheNetworkWhereThePlanSaysThatItCan) {
  for (int prefetch : {1, 2})
    expect_sooner_or_later(SleepingStep(prefetch), [](const SleepingStep::Hidden& hidden) {
      return hidden.planned > 0.7 && hidden.measured >= 0.85 * hidden.planned;
    });
}

TEST(Overlap, HidesNothingWithoutPrefetch) {
  expect_sooner_or_later(SleepingStep(0), [](const SleepingStep::Hidden& hidden) {
    return hidden.planned < 1e-9 && hidden.measured < 0.05;
  });
}

}  // namespace
