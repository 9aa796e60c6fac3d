// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/run/step_recorder.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "support/no_files.hpp"
#include "support/shared_folder.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

using Json = nlohmann::json;
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

  void record_three() { record(3); }
  /// Does and records steps up to `last`. Before some of them the disk takes no more than
  /// `room_` bytes of a file.
  void record(int last) {
    SmallRun run(settings_);
    comm::Communicator& world = run.mesh.world();
    train::Console console(out_, {world.rank() == 0, false, settings_.training.steps, 1});
    train::RunFolder output(settings_.output.directory, world, console, false);
    output.make();
    train::StepRecorder recorder(settings_, run.trainer, world, output, console);
    world.run_on_root([&] {
      output.open_metrics(0, false);
      recorder.trace().open(path("trace.json"));
    });
    recorder.find_peak();
    recorder.begin(1);
    for (int step = 1; step <= last; ++step) {
      if (world.rank() == world.size() - 1)
        std::this_thread::sleep_for(std::chrono::duration<double>(late_));
      recorder.begin_step();
      std::optional<NoFiles> full;
      if (full_steps_.count(step) > 0) full.emplace(room_);
      train::StepResult result = run.step(step);
      if (step == 2) result.counted_terms = 0;
      if (step == 3) result.skipped = "it was spoilt";
      // The most over ranks counts.
      recorder.record(step, result, 0.5 + world.rank());
      results_.push_back(result);
    }
    recorder.end();
    stragglers_ = recorder.describe_stragglers();
    ranks_ = world.size();
    usage_ = recorder.usage().describe_peak(run.trainer.model_flops(), [] { return 0.0; });
    flops_ = run.trainer.model_flops();
    is_root_ = world.rank() == 0;
    world.barrier();
  }

  static constexpr int room_ = 2000;  // a few rows, but no step of a trace
  std::set<int> full_steps_;
  SharedFolder folder_;
  config::Settings settings_ = small_gpt2(2);
  std::ostringstream out_;
  std::vector<train::StepResult> results_;
  std::string usage_, stragglers_;
  double late_ = 0.0;  // seconds by which the last rank comes late to each step
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
    EXPECT_EQ(row.contains("counted_tokens"), i == 1);  // of the others all count
  }
  EXPECT_HAS(usage_, "MFU of all steps");
}

TEST_F(StepRecorderTest, FindsLateRanksWhereARunEndsEarly) {
  late_ = 0.3;
  record_three();
  const bool is_found = stragglers_.find("over 2 steps:\n  rank 1 ") == 0;
  EXPECT_EQ(is_found, is_root_ && ranks_ == 2) << stragglers_;
  EXPECT_EQ(read_bytes(path("metrics.jsonl")).find("rank_seconds"), std::string::npos);
}

TEST_F(StepRecorderTest, SaysWhatChangedNothing) {
  record_three();
  EXPECT_EQ(out_.str().find("  step 3 skipped: it was spoilt\n") != std::string::npos, is_root_)
      << out_.str();
}

TEST_F(StepRecorderTest, WarnsOfAStepInWhichNothingCounts) {
  record_three();
  const std::string warning =
      "  warning: step 2 has no token that counts in the loss: its loss and gradient are 0\n";
  EXPECT_EQ(out_.str().find(warning) != std::string::npos, is_root_) << out_.str();
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

TEST_F(StepRecorderTest, TheTraceWaitsForRoomAndTheUserIsToldOfBoth) {
  full_steps_ = {2, 3, 4};
  record(5);
  std::set<int> steps;
  const Json trace = Json::parse(read_bytes(path("trace.json")), nullptr, false);
  ASSERT_FALSE(trace.is_discarded());
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "X") steps.insert(event["args"]["step"].get<int>());
  EXPECT_EQ(steps, (std::set<int>{2, 3}));
  if (!is_root_) return;
  const std::string& said = out_.str();
  const std::string file = "'" + path("trace.json") + "'";
  const std::size_t waits =
      said.find("  can't write " + file + ": File too large; the trace waits in memory");
  ASSERT_NE(waits, std::string::npos) << said;
  EXPECT_EQ(said.find("the trace waits", waits + file.size() + 100), std::string::npos) << said;
  EXPECT_NE(said.find("  " + file + " has all of the trace again\n", waits), std::string::npos)
      << said;
  EXPECT_LACKS(said, "rows wait");
}

TEST_F(StepRecorderTest, ALastStepIsTracedThoughItIsTheFirst) {
  train::TraceRecorder trace(1);
  SmallRun run(settings_);
  comm::Communicator& world = run.mesh.world();
  const std::string file = folder_.file("trace.json");
  world.run_on_root([&] { trace.open(file); });
  trace.begin(5, 5, seconds_now());
  run.step(1);
  const runtime::Program& program = run.trainer.program(plan::Purpose::train);
  trace.record(4, program, run.trainer.action_times(), world);
  EXPECT_EQ(read_bytes(file), "");
  trace.record(5, program, run.trainer.action_times(), world);
  EXPECT_FALSE(Json::parse(read_bytes(file))["traceEvents"].empty());
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
