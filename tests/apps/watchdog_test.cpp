// SPDX-License-Identifier: Apache-2.0

// Ranks that hang, stop or end, as users' jobs do: the watchdog names them, and the run continues
// with the same bits.

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "resume_fixture.hpp"
#include "support/table.hpp"

namespace ostrakon::testing {
namespace {

class WatchdogOfRun : public Resume {
 protected:
  static constexpr std::int64_t steps = 12;

  Texts settings(const Texts& more = {}) const {
    Texts all = {"training.steps=12", "checkpoint.every=4", "runtime.watchdog=auto"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  Json flight(int rank) const {
    return Json::parse(read_bytes(output("flight/rank-" + std::to_string(rank) + ".json")));
  }

  /// Expects that the run was ended by the watchdog, with this message, and that it goes on.
  void expect_ended(const Outcome& outcome, const std::string& message) {
    EXPECT_EQ(outcome.status, 76) << outcome.out << outcome.err;
    EXPECT_TRUE(says(outcome.err, "watchdog: " + message)) << outcome.err;
    EXPECT_EQ(outcome.err.find("watchdog:"), outcome.err.rfind("watchdog:")) << outcome.err;
  }
  void expect_to_go_on(int ranks) {
    const Outcome rest = train(ranks, settings(), {"--resume", "auto"});
    EXPECT_EQ(rest.status, 0) << rest.err;
    expect_as_if_nothing_had_happened(settings(), steps);
  }
};

TEST_F(WatchdogOfRun, NamesALoopWithLimitsThatFollowFromMeasuredTimes) {
  const Outcome outcome =
      train(4, settings({"runtime.inject=rank 2, step 9, backward(block.1): spin"}));
  expect_ended(outcome,
               "rank 2 (..) has not begun ..: it is in backward(block.1, micro-batch 0) of step 9 "
               "for ..; 3 ranks wait; flight records are in ..run/flight");
  for (int rank = 0; rank < 4; ++rank) {
    const Json record = flight(rank);
    EXPECT_EQ(record["rank"], rank);
    EXPECT_EQ(record["step"], 9);
    EXPECT_TRUE(says(record["reason"], "rank 2"));
    EXPECT_LE(record["streams"]["compute"].size(), 64U);
  }
  const Json last = flight(2)["streams"]["compute"].back();
  EXPECT_EQ(last["action"], "backward(block.1, micro-batch 0)");
  EXPECT_EQ(last["has_ended"], false);
  expect_to_go_on(4);
}

TEST_F(WatchdogOfRun, NamesARankThatReadsDataForever) {
  const Outcome outcome =
      train(2, settings({"runtime.watchdog=3", "runtime.inject=rank 1, step 6, load: sleep 1000"}));
  expect_ended(outcome,
               "rank 1 (..) has not begun ..: it is reading data in load(micro-batch 0) "
               "of step 6 for ..; 1 rank waits");
}

TEST_F(WatchdogOfRun, NamesARankThatWritesACheckpointForever) {
  for (const char* const async : {"true", "false"}) {
    fs::remove_all(output(""));
    const Outcome outcome =
        train(2, settings({"runtime.watchdog=3", std::string("checkpoint.async=") + async,
                           "runtime.inject=rank 1, step 4, checkpoint: spin"}));
    expect_ended(outcome, "rank 1 (..writing its part of a checkpoint");
  }
}

TEST_F(WatchdogOfRun, NamesAStoppedProcessAlsoOfRank0) {
  for (const char* const rank : {"1", "0"}) {
    fs::remove_all(output(""));
    const Outcome outcome =
        train(4, settings({"runtime.watchdog=3",
                           std::string("runtime.inject=rank ") + rank + ", step 10, clip: stop"}));
    expect_ended(outcome, std::string("rank ") + rank +
                              " (..) not heard of for ..: its host answers..stopped");
  }
  expect_to_go_on(4);
}

TEST_F(WatchdogOfRun, NamesARankThatLeavesOutOrMovesACollective) {
  const auto fails = [&](const std::string& fault) {
    fs::remove_all(output(""));
    return train(4,
                 settings({"runtime.streams=inline", "runtime.inject=rank 2, step 9, " + fault}));
  };
  expect_ended(fails("reduce_scatter(embedding): skip"),
               "rank 2 (..) has gone on ..while rank ..reduce_scatter(embedding)..");
  expect_ended(fails("reduce_scatter(block.1): swap"),
               "rank 2 (..) has not begun reduce_scatter(block.1)..comes after that in the plan");
  expect_to_go_on(4);
}

TEST_F(WatchdogOfRun, NoticesARankLongBeforeItsLimitIsOver) {
  const Outcome outcome =
      train(2, settings({"runtime.watchdog=60", "runtime.inject=rank 1, step 6, load: sleep 20"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(says(outcome.err,
                   "watchdog notice: rank 1 (..) has not begun ..: it is reading data "
                   "in load(micro-batch 0) of step 6 for ..; 1 rank waits"))
      << outcome.err;
  EXPECT_EQ(outcome.err.find("watchdog:"), std::string::npos) << outcome.err;
}

// mpiexec ends with the status of the rank that was killed; through ostrakon-launch it is the
// run's. mpiexec may end all others before one of them can write, so there are several attempts.
TEST_F(WatchdogOfRun, NamesAKilledProcessBeforeTheLauncherEndsTheOthers) {
  Command job = command(4, settings({"runtime.inject=rank 1, step 10, clip: exit"}));
  job.arguments.insert(job.arguments.begin(), {OSTRAKON_APPS_DIR "/ostrakon-launch", "run"});
  Outcome outcome;
  const auto says_so = [&] {
    return says(outcome.err, "watchdog: rank 1 (..)'s process has ended without a word");
  };
  for (int attempt = 0; attempt < 12 && !says_so(); ++attempt) {
    fs::remove_all(output(""));
    outcome = run_command(job);
    EXPECT_NE(outcome.status, 0);
  }
  EXPECT_TRUE(says_so()) << outcome.err;
  EXPECT_EQ(outcome.status, 76) << outcome.err;
  const Json verdict = Json::parse(read_bytes(output("watchdog.jsonl")));
  EXPECT_EQ(verdict["rank"], 1);
  EXPECT_EQ(verdict["step"], 10);
  EXPECT_FALSE(verdict["host"].get<std::string>().empty());
  EXPECT_TRUE(says(verdict["reason"], "rank 1 (..)'s process has ended without a word"));
}

TEST_F(WatchdogOfRun, LeavesSlowRanksAndStoppedJobsAlone) {
  const Outcome slow = train(2, settings({"runtime.watchdog=8", "training.steps=4",
                                          "runtime.inject=rank 1, step 3: slow_data 0.2"}));
  EXPECT_EQ(slow.status, 0) << slow.err;

  // A step takes 0.8 s at least, so that the run is not over before its ranks are stopped.
  const Texts lasting = {"runtime.watchdog=5", "training.steps=30",
                         "runtime.inject=rank 1, step 1: slow_data 0.2"};
  const Outcome outcome = interrupt(2, lasting, [&] {
    for (const pid_t rank : ranks()) ::kill(rank, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds(8));
    for (const pid_t rank : ranks()) ::kill(rank, SIGCONT);
  });
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST_F(WatchdogOfRun, RefusesFaultsThatNoRankHas) {
  const auto rows = rows_of(R"(
    rank 2, step 1, load: stop            | rank 2: expected one of the 2 ranks
    rank 1, step 500, load: stop          | step 500: expected one of the 12 steps
    rank 1, step 1, gather(block.9): stop | has no action "gather(block.9
    rank 1: stop                          | runtime.inject..no step
    rank 1, step 1, load: skip            | skip load: expected a collective
  )");
  for (const auto& row : rows) {
    const Outcome outcome = train(2, settings({"runtime.inject=" + row[0]}));
    EXPECT_EQ(outcome.status, 1) << row[0];
    EXPECT_TRUE(says(outcome.err, row[1])) << outcome.err;
  }
}

}  // namespace
}  // namespace ostrakon::testing
