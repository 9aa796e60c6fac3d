// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <nlohmann/json.hpp>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/train/step_recorder.hpp>
#include <sstream>

#include "small_runs.hpp"
#include "support/shared_folder.hpp"

namespace ostrakon::tests {
namespace {

using Json = nlohmann::json;
using testing::error_of;
using testing::read_bytes;
using testing::SharedFolder;

/// Three steps of a run that records the second one and the third in trace.json, digests of every
/// second one, and nothing more.
class StepRecorderTest : public ::testing::Test {
 protected:
  StepRecorderTest() {
    settings_.training.steps = 5;
    settings_.output.directory = folder_.file("run");
    settings_.output.digest_every = 2;
    settings_.output.trace_steps = 2;
    settings_.runtime.peak_gflops = 1e6;
  }
  std::string path(const std::string& name) const { return folder_.file("run/" + name); }

  void record_three() {
    SmallRun run(settings_);
    comm::Communicator& world = run.mesh.world();
    train::Console console(out_, {world.rank() == 0, false, settings_.training.steps, 1});
    train::RunFolder output(settings_.output.directory, world, console, false);
    output.make();
    train::StepRecorder recorder(settings_, run.trainer, world, output, console);
    world.agree([&] {
      if (world.rank() > 0) return;
      output.open_metrics(0, false);
      recorder.trace().open(path("trace.json"));
    });
    recorder.find_peak();
    recorder.begin(1);
    for (int step = 1; step <= 3; ++step) {
      train::StepResult result = run.step(step);
      if (step == 3) result.skipped = "it was spoilt";
      // The most over ranks counts.
      recorder.record(step, result, 0.5 + world.rank());
      results_.push_back(result);
      EXPECT_EQ(recorder.skipped().in_a_row(), step == 3 ? 1 : 0);
    }
    ranks_ = world.size();
    usage_ = recorder.usage().describe_peak(run.trainer.model_flops(), [] { return 0.0; });
    flops_ = run.trainer.model_flops();
    is_root_ = world.rank() == 0;
    world.barrier();
  }

  SharedFolder folder_;
  config::Settings settings_ = small_gpt2(2);
  std::ostringstream out_;
  std::vector<train::StepResult> results_;
  std::string usage_;
  double flops_ = 0.0;
  int ranks_ = 0;
  bool is_root_ = false;
};

TEST_F(StepRecorderTest, WritesARowForEachStep) {
  record_three();
  std::istringstream rows(read_bytes(path("metrics.jsonl")));
  std::vector<Json> found;
  for (std::string row; std::getline(rows, row);) found.push_back(Json::parse(row));
  ASSERT_EQ(found.size(), 3u);
  const double slowest = ranks_ - 0.5;  // seconds
  const std::int64_t tokens =
      settings_.training.global_batch_size * settings_.training.sequence_length;
  for (std::size_t i = 0; i < 3; ++i) {
    const Json& row = found[i];
    EXPECT_EQ(row["step"], i + 1);
    EXPECT_EQ(row["loss"], results_[i].loss);
    EXPECT_EQ(row["grad_norm"], results_[i].grad_norm);
    EXPECT_EQ(row["tokens"], (static_cast<std::int64_t>(i) + 1) * tokens);
    EXPECT_EQ(row["step_seconds"], slowest);
    EXPECT_DOUBLE_EQ(row["tokens_per_second"], static_cast<double>(tokens) / slowest);
    EXPECT_DOUBLE_EQ(row["mfu"], flops_ / slowest / 1e15);
    EXPECT_EQ(row["allocations"], 0);
    EXPECT_EQ(row.contains("state_digest"), i == 1);
    EXPECT_EQ(row.contains("skipped"), i == 2);
  }
  EXPECT_NE(usage_.find("MFU of all steps"), std::string::npos) << usage_;
}

TEST_F(StepRecorderTest, SaysWhatChangedNothing) {
  record_three();
  EXPECT_EQ(out_.str().find("  step 3 skipped: it was spoilt\n") != std::string::npos, is_root_)
      << out_.str();
}

TEST_F(StepRecorderTest, TracesStepsFromTheSecondOn) {
  record_three();
  const Json events = Json::parse(read_bytes(path("trace.json")))["traceEvents"];
  std::set<int> steps, ranks;
  for (const Json& event : events) {
    if (event["ph"] != "X") continue;
    steps.insert(event["args"]["step"].get<int>());
    ranks.insert(event["pid"].get<int>());
  }
  EXPECT_EQ(steps, (std::set<int>{2, 3}));
  EXPECT_EQ(ranks.size(), static_cast<std::size_t>(ranks_));
}

TEST_F(StepRecorderTest, ALastStepIsTracedThoughItIsTheFirst) {
  train::TraceRecorder trace(1);
  SmallRun run(settings_);
  comm::Communicator& world = run.mesh.world();
  const std::string file = folder_.file("trace.json");
  world.agree([&] {
    if (world.rank() == 0) trace.open(file);
  });
  trace.begin(5, 5, seconds_now());
  run.step(1);
  const runtime::Program& program = run.trainer.program(plan::Purpose::train);
  trace.record(4, program, run.trainer.action_times(), world);
  EXPECT_EQ(read_bytes(file), "");
  trace.record(5, program, run.trainer.action_times(), world);
  EXPECT_FALSE(Json::parse(read_bytes(file))["traceEvents"].empty());
}

TEST(SkippedSteps, ARunWhoseLastStepsWereSkippedIsNotDone) {
  train::SkippedSteps skipped;
  const std::string why = "the loss is not finite";
  EXPECT_EQ(skipped.problem(9), "");
  for (int step = 1; step <= 2; ++step) skipped.note(step, why);
  EXPECT_EQ(skipped.problem(9), "");
  EXPECT_EQ(skipped.problem(2), "the last 2 steps were skipped: " + why);  // all of the run
  skipped.note(3, why);
  EXPECT_EQ(skipped.problem(9), "the last 3 steps were skipped: " + why);
  // The loss is finite: so are the parameters.
  skipped.note(4, "a gradient overflowed", true);
  EXPECT_EQ(skipped.in_a_row(), 4);
  EXPECT_EQ(skipped.problem(9), "");
  skipped.restore(5, true);
  EXPECT_EQ(skipped.problem(9), "");
  skipped.restore(5, false);
  EXPECT_EQ(skipped.problem(9), "the last 5 steps were skipped");
  skipped.note(6, "");
  EXPECT_EQ(skipped.problem(9), "");
}

TEST(SkippedSteps, EndARunThatChangesNothingAnyMore) {
  train::SkippedSteps skipped;
  skipped.restore(98, false);
  skipped.note(1, "it was spoilt");
  EXPECT_EQ(skipped.in_a_row(), 99);
  skipped.note(2, "");
  EXPECT_EQ(skipped.in_a_row(), 0);
  for (int step = 1; step < 100; ++step) skipped.note(step, "it was spoilt");
  EXPECT_EQ(error_of([&] { skipped.note(100, "of this"); }),
            "step 100: 100 consecutive steps were skipped, the last one: of this");
}

TEST(AllocationCounter, CountsSinceTheLastCall) {
  runtime::start_counting_memory();
  train::AllocationCounter counter;
  EXPECT_EQ(counter.take(), 0);
  const Kokkos::View<float*, Exec::memory_space> view("one", 8);
  EXPECT_EQ(counter.take(), 1);
  EXPECT_EQ(counter.take(), 0);
}

}  // namespace
}  // namespace ostrakon::tests
