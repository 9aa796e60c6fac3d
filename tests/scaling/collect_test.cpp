// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/scaling/collected.hpp>

#include "small_study.hpp"

namespace ostrakon::scaling {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::error_of;
using testing::FakeRun;
using testing::read_bytes;
using testing::write_bytes;

class Collect : public ::testing::Test {
 protected:
  Collect() { testing::write_small_study(study()); }

  std::string study() const { return folder_.file("study"); }
  std::string file(const std::string& name) const { return study() + "/" + name; }
  void expect_refused(const std::string& name, const std::string& words) const {
    const std::string error = error_of([&] { collect(study(), false); });
    EXPECT_TRUE(contains(error, file(name))) << error;
    EXPECT_TRUE(contains(error, words)) << error;
    EXPECT_TRUE(contains(error, "--partial")) << error;
  }

  testing::ScratchFolder folder_;
};

TEST_F(Collect, TakesWhatRunsMeasured) {
  const Collected collected = collect(study(), false);
  ASSERT_EQ(collected.runs.size(), 4u);
  const CollectedRun& one = collected.runs[0];
  EXPECT_EQ(one.folder, "ranks-1/run-1");
  EXPECT_EQ(one.hosts, 1);
  EXPECT_EQ(one.steps, 10);  // 3 to 12
  EXPECT_EQ(one.traced_steps, 10);
  EXPECT_NEAR(one.step_seconds.mean, 1.002, 1e-9);
  EXPECT_TRUE(one.step_seconds.is_known);
  EXPECT_NEAR(one.step_seconds.half_width, 2.262157 * 1.002 * 0.01 * std::sqrt(1.0 / 9.0), 1e-6);
  EXPECT_NEAR(one.tokens_per_second, 1000.0 / 1.002, 1e-6);
  EXPECT_EQ(one.mfu, 0.5);
  EXPECT_EQ(one.peak_bytes, 4096);
  EXPECT_NEAR(one.shares.compute, 0.8, 1e-6);
  EXPECT_NEAR(one.shares.communication, 0.15, 1e-6);
  EXPECT_NEAR(one.shares.waiting, 0.05, 1e-6);
  EXPECT_TRUE(one.outliers.empty());
  const CollectedRun& two = collected.runs[2];
  EXPECT_NEAR(two.shares.compute, 0.75, 1e-6);
  EXPECT_NEAR(two.shares.imbalance, 0.05, 1e-6);
  EXPECT_NEAR(two.tokens_per_second_per_rank, 500.0 / (0.625 * 1.002), 1e-6);
}

TEST_F(Collect, NamesOutlierSteps) {
  const CollectedRun run = collect(study(), false).runs[3];
  ASSERT_EQ(run.outliers.size(), 1u);
  const OutlierStep& outlier = run.outliers[0];
  EXPECT_EQ(outlier.step, 7);
  EXPECT_NEAR(outlier.seconds, 1.0 + 0.99 * 0.998 * 0.625, 1e-9);
  EXPECT_TRUE(outlier.is_traced);
  EXPECT_EQ(outlier.stream, "gather");
  EXPECT_NEAR(outlier.more, 1.0, 0.02);
}

TEST_F(Collect, IsReadAsItWasWritten) {
  Collected collected = collect(study(), false);
  collected.missing.push_back({"ranks-9/run-1", "a reason, \"quoted\""});
  write_collected(study(), collected);
  const std::string first = read_bytes(file("collected.json"));
  const Collected read = read_collected(study());
  write_collected(study(), read);
  EXPECT_EQ(read_bytes(file("collected.json")), first);
  EXPECT_EQ(read.missing[0].reason, "a reason, \"quoted\"");
  const std::string csv = collected_csv(read);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5);
  EXPECT_TRUE(contains(csv, "\nranks-2/run-2,2,1,10,"));
  EXPECT_TRUE(contains(csv, ",7\n"));  // the outlier
}

TEST_F(Collect, RefusesRunsThatAreNotFinished) {
  FakeRun run;
  run.steps = 9;
  run.write(file("ranks-1/run-2"));
  expect_refused("ranks-1/run-2/metrics.jsonl",
                 "has 9 steps; expected 12: the run is not finished");
  fs::remove(file("ranks-1/run-2/metrics.jsonl"));
  expect_refused("ranks-1/run-2/metrics.jsonl",
                 "does not exist: the run has not begun; start ranks-1/job.sh");
}

TEST_F(Collect, RefusesTornFiles) {
  const std::string metrics = file("ranks-2/run-1/metrics.jsonl");
  const std::string whole = read_bytes(metrics);
  write_bytes(metrics, whole.substr(0, whole.size() - 30));
  expect_refused("ranks-2/run-1/metrics.jsonl, line 13", "is not a whole row (\"{\\\"step\\\":12");
  write_bytes(metrics, whole.substr(0, whole.size() - 1));  // all but its end of line
  expect_refused("ranks-2/run-1/metrics.jsonl, line 13", "is not a whole row");
  write_bytes(metrics, whole);
  const std::string trace = file("ranks-2/run-1/trace.json");
  const std::string events = read_bytes(trace);
  write_bytes(trace, events.substr(0, events.size() / 2));
  expect_refused("ranks-2/run-1/trace.json", "is not a whole trace");
  write_bytes(trace, "{}");
  expect_refused("ranks-2/run-1/trace.json", "traceEvents is missing");
  fs::remove(trace);
  expect_refused("ranks-2/run-1/trace.json", "does not exist; expected a run with output.trace");
}

TEST_F(Collect, RefusesRunsOfAnotherStudy) {
  FakeRun run;
  run.ranks = 2;
  run.tokens = 2000;
  run.write(file("ranks-2/run-1"));
  expect_refused("ranks-2/run-1/metrics.jsonl, line 1",
                 "tokens = 2000 after step 1; expected 1000");
  run.tokens = 1000;
  run.ranks = 1;
  run.write(file("ranks-2/run-1"));
  expect_refused("ranks-2/run-1/trace.json", "is of 1 rank; expected 2");
  run.ranks = 2;
  run.write(file("ranks-2/run-1"));
  run.seconds = 3.0;  // than metrics.jsonl says
  write_bytes(file("ranks-2/run-1/trace.json"), run.trace());
  expect_refused("ranks-2/run-1/trace.json", "s in metrics.jsonl; expected both to be of one run");
}

TEST_F(Collect, PartialListsWhatIsMissing) {
  fs::remove_all(file("ranks-1/run-2"));
  const Collected collected = collect(study(), true);
  EXPECT_EQ(collected.runs.size(), 3u);
  ASSERT_EQ(collected.missing.size(), 1u);
  EXPECT_EQ(collected.missing[0].folder, "ranks-1/run-2");
  EXPECT_TRUE(contains(collected.missing[0].reason, "metrics.jsonl' does not exist"));
  for (const char* run : {"ranks-1/run-1", "ranks-2/run-1", "ranks-2/run-2"})
    fs::remove_all(file(run));
  EXPECT_TRUE(contains(error_of([&] { collect(study(), true); }), "no run can be used"));
}

}  // namespace
}  // namespace ostrakon::scaling
