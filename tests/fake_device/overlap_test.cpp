// SPDX-License-Identifier: Apache-2.0
// With slow kernels, copies and collectives, streams of the device overlap as in the plan. Measures
// time, so it is run by hand on a quiet machine.
#include <fake_device/runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/plan/pipeline/end_times.hpp>
#include <string>
#include <vector>

#include "trainer/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;
using plan::Action;
using plan::Kind;

constexpr double forward_seconds = 10e-3;

/// The time that the device sleeps for actions. Other work should take little time.
struct Delays {
  double per_byte_sent = 0.0, per_byte_copied = 0.0;

  static double of_compute(const Action& action) {
    switch (action.kind) {
      case Kind::forward:
        return forward_seconds;
      case Kind::loss:
      case Kind::backward:
        return 2.0 * forward_seconds;
      default:
        return 0.0;
    }
  }
  double of(const plan::StepPlan& plan, const Action& action) const {
    if (plan::communicates(action.kind))
      return per_byte_sent * static_cast<double>(plan.bytes_sent(action));
    if (action.kind == Kind::copy_to_device || action.kind == Kind::copy_to_host)
      return per_byte_copied *
             static_cast<double>(
                 plan.buffers[static_cast<std::size_t>(action.uses.begin()->buffer)].bytes);
    return of_compute(action);
  }
};

/// The fractions of a step that other streams could hide, and did hide.
struct Hidden {
  double possible = 0.0, reached = 0.0;
};

Hidden measure(const config::Settings& settings) {
  SmallRun run(settings);
  const plan::StepPlan& plan = run.trainer.program(plan::Purpose::train).plan;
  // Copies and collectives together take as long as compute.
  double compute = 0.0, sent = 0.0, copied = 0.0;
  for (const Action& action : plan.actions) {
    compute += Delays::of_compute(action);
    sent += Delays{1.0, 0.0}.of(plan, action) - Delays::of_compute(action);
    copied += Delays{0.0, 1.0}.of(plan, action) - Delays::of_compute(action);
  }
  Delays delays;
  if (sent > 0.0) delays.per_byte_sent = 0.7 * compute / sent;
  if (copied > 0.0) delays.per_byte_copied = 0.7 * compute / copied;
  std::vector<double> seconds;
  for (const Action& action : plan.actions) seconds.push_back(delays.of(plan, action));
  const std::vector<double> ends = plan::end_times(plan, seconds);
  const double planned = *std::max_element(ends.begin(), ends.end());
  const double in_turn = std::accumulate(seconds.begin(), seconds.end(), 0.0);

  setenv("FAKE_NCCL_SECONDS", text(delays.per_byte_sent).c_str(), 1);
  fake_copy_seconds(delays.per_byte_copied);
  run.trainer.observe([](const Action& action, bool begins) {
    fake_delay_next(begins ? Delays::of_compute(action) : 0.0);
  });
  run.step(1);
  double least = in_turn;
  for (std::int64_t step = 2; step <= 4; ++step) {
    run.mesh.world().barrier();
    const double begin = seconds_now();
    run.step(step);
    least = std::min(least, seconds_now() - begin);
  }
  fake_copy_seconds(0.0);
  unsetenv("FAKE_NCCL_SECONDS");
  if (run.mesh.world().rank() == 0)
    std::cout << "in turn " << in_turn << " s, as planned " << planned << " s, took " << least
              << " s\n";
  return {in_turn - planned, in_turn - least};
}

TEST(Overlap, IsWhatThePlanAllows) {
  for (const plan::Offload offload : {plan::Offload::none, plan::Offload::all}) {
    config::Settings settings = small_llama(2);
    settings.runtime.streams = config::StreamsChoice::automatic;
    settings.model.layers = 6;
    settings.training.global_batch_size = 8;
    settings.parallel.offload = offload;
    settings.parallel.offload_activations = offload == plan::Offload::all;
    const Hidden hidden = measure(settings);
    EXPECT_EQ(hidden.possible > 0.0, offload == plan::Offload::all || world_ranks() > 1);
    EXPECT_GE(hidden.reached, 0.85 * hidden.possible) << name(offload);
  }
}

}  // namespace
