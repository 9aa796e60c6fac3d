// SPDX-License-Identifier: Apache-2.0
// The stages of a pipeline as a picture.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/plan/stages_picture.hpp>
#include <string>

#include "plan/random_plans.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

std::size_t times_in(const std::string& text, const std::string& what) {
  std::size_t times = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++times;
  return times;
}

/// With units that compute for one second a phase, and nothing else that takes time: a bar for each
/// forward and backward, and what is deferred; the bubble in words.
TEST(StagesPicture, HasABarForEachPassOfEachMicroBatch) {
  constexpr int micro_batches = 5, stages = 3;
  ModelDescription model = make_model(stages - 2, false, 5);
  for (UnitDescription& unit : model.units) {
    unit.output_bytes = model.gradient_bytes;
    unit.forward = {Phase{1.0}};
    unit.backward = {Phase{1.0}, Phase{1.0}};
    unit.backward_at_once = {Phase{2.0}};
    unit.deferred_phases = 1;
    unit.deferred_bytes = 256;
    unit.backward_reads_parameters = true;
  }
  UnitDescription& head = model.units.back();
  head.forward = {Phase{0.0}};
  head.backward = {Phase{3.0}};
  head.backward_at_once.clear();
  head.deferred_phases = 0;
  Policy policy = make_policy(micro_batches);
  policy.schedule = ScheduleKind::zero_bubble;
  policy.zero_bubble_memory = ZeroBubbleMemory::unlimited;
  const std::vector<StepPlan> plans =
      build_stage_plans(model, divide_units(model, stages), 1, policy, Purpose::train);
  std::vector<const StepPlan*> pointers;
  for (const StepPlan& plan : plans) pointers.push_back(&plan);
  const std::vector<Timing> timings = estimate_times(pointers, 0, {1.0, 1e30, 1e30, 1e30, 1e30});
  const std::string svg = svg_image({draw_stages(pointers, timings, "three & more")});
  EXPECT_EQ(times_in(svg, "class=\"lane\""), std::size_t{stages});
  EXPECT_NE(svg.find("three &amp; more"), std::string::npos);
  EXPECT_EQ(times_in(svg, "forward, micro-batch"), std::size_t{2 * micro_batches});
  EXPECT_EQ(times_in(svg, ">backward, micro-batch"), std::size_t{3 * micro_batches});
  // Only the second stage has these: the first never waits, the head has nothing to defer.
  EXPECT_EQ(times_in(svg, "deferred gradients, micro-batch"), std::size_t{micro_batches});
  double waiting = 0.0;
  for (const Timing& timing : timings) waiting += 100.0 * timing.waiting / timing.seconds / stages;
  EXPECT_GT(waiting, 1.0);
  EXPECT_NE(svg.find(print("wait %.1f %% for each other", waiting)), std::string::npos);
}

}  // namespace
