// SPDX-License-Identifier: Apache-2.0
// When actions of a plan run and buffers are live, as JSON.
#include <map>
#include <nlohmann/json.hpp>
#include <ostrakon/plan/report/report_json.hpp>
#include <sstream>

#include "plan/random_plans.hpp"

namespace ostrakon::tests {
namespace {

using Json = nlohmann::json;

/// At no moment is more live than the arena has, and buffers that stay are live throughout.
void expect_live_bytes(const Json& stage, const StepPlan& plan) {
  const std::int64_t arena = plan_memory(plan).arena_bytes;
  std::int64_t most = 0;
  for (const Json& begun : stage["buffers"]) {
    std::int64_t live = 0;
    for (const Json& buffer : stage["buffers"])
      if (buffer["begin"] <= begun["begin"] && begun["begin"] < buffer["end"])
        live += buffer["bytes"].get<std::int64_t>();
    most = std::max(most, live);
  }
  EXPECT_LE(most, arena);
  EXPECT_GT(2 * most, arena);
}

/// With units that compute for one second a phase, and nothing else that takes time: each forward
/// and backward, and what is deferred.
TEST(Timelines, HaveEachPassOfEachMicroBatch) {
  constexpr int micro_batches = 5, stages = 3;
  ModelDescription model = make_model(stages - 2, false, 5);
  for (UnitDescription& unit : model.units) {
    unit.output_bytes = model.gradient_bytes;
    unit.forward = {Phase{1.0}};
    unit.backward = {Phase{1.0}, Phase{1.0}};
    unit.deferral.backward_at_once = {Phase{2.0}};
    unit.deferral.phases = 1;
    unit.deferral.bytes = 256;
    unit.backward_reads_parameters = true;
  }
  UnitDescription& head = model.units.back();
  head.forward = {Phase{0.0}};
  head.backward = {Phase{3.0}};
  head.deferral.backward_at_once.clear();
  head.deferral.phases = 0;
  Policy policy = make_policy(micro_batches);
  policy.schedule = ScheduleKind::zero_bubble;
  policy.zero_bubble_memory = ZeroBubbleMemory::unlimited;
  const std::vector<StepPlan> plans =
      build_stage_plans(model, divide_units(model, stages), 1, policy, Purpose::train);
  const std::vector<Timing> timings =
      estimate_times(pointers(plans), 0, {1.0, 1e30, 1e30, 1e30, 1e30});
  std::ostringstream out;
  out << "{\"a\": 1";
  write_timelines(out, {pointers(plans), timings});
  const Json timelines = Json::parse(out.str() + "}")["timelines"];
  ASSERT_EQ(timelines.size(), std::size_t{stages});
  std::map<std::string, int> times;
  for (int s = 0; s < stages; ++s) {
    const Json& stage = timelines[s];
    EXPECT_EQ(stage["stage"], s);
    EXPECT_EQ(stage["seconds"], timings[s].seconds);
    EXPECT_EQ(stage["waiting_seconds"], timings[s].waiting);
    for (const Json& action : stage["actions"]) {
      const Action& of_plan = plans[s].actions[action["action"].get<std::size_t>()];
      EXPECT_EQ(action["kind"], name(of_plan.kind));
      EXPECT_EQ(action["micro_batch"], of_plan.micro_batch);
      EXPECT_LT(action["begin"], action["end"]);
      if (of_plan.kind == Kind::forward || of_plan.kind == Kind::backward)
        ++times[action["deferred"].get<bool>() ? "deferred" : action["kind"].get<std::string>()];
    }
    expect_live_bytes(stage, plans[s]);
  }
  // Only the second stage defers: the first never waits, the head has nothing to defer.
  EXPECT_EQ(times, (std::map<std::string, int>{{"forward", 2 * micro_batches},
                                               {"backward", 3 * micro_batches},
                                               {"deferred", micro_batches}}));
}

}  // namespace
}  // namespace ostrakon::tests
