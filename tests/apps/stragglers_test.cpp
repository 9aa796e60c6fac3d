// SPDX-License-Identifier: Apache-2.0

// Ranks that are slow on purpose are named by a run, with what makes them slow.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "resume_fixture.hpp"
#include "support/table.hpp"

namespace ostrakon::testing {
namespace {

class LateRanks : public Resume {
 protected:
  /// Runs with a fault on `rank`, and expects that it is named in the second window and in the
  /// summary. On a busy machine others may be late for a while, too, but not by as much.
  void expect_named(int ranks, int rank, const std::string& fault, const std::string& part,
                    const std::string& words) {
    const std::string who = "rank " + std::to_string(rank);
    const Outcome outcome = train(ranks, {"training.steps=9", "output.rank_times_every=3",
                                          "runtime.inject=" + who + ", step 1: " + fault});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const std::string line = "  " + who + " (..) is late: its " + words + " takes .. % of the step";
    EXPECT_TRUE(says(outcome.out, line + "..over 8 steps:.." + line)) << outcome.out;
    for (const int step : {3, 6, 9}) {
      const Json row = rows().at(step).at("rank_seconds");
      EXPECT_EQ(row.at("steps"), step == 3 ? 2 : 3);
      EXPECT_EQ(row.at("communication").size(), static_cast<std::size_t>(ranks));
      bool is_named = false;
      for (const Json& one : row.at("late"))
        if (one.at("rank") == rank) {
          is_named = true;
          EXPECT_EQ(one.at("part"), part);
          EXPECT_GT(one.at("share"), 0.5);
        } else {
          EXPECT_LT(one.at("share"), 0.5);
        }
      EXPECT_TRUE(is_named) << row;
    }
    EXPECT_FALSE(rows().at(4).contains("rank_seconds"));
  }
};

TEST_F(LateRanks, ThatComputeSlowly) {
  expect_named(2, 1, "slow_compute 0.02", "compute", "compute");
}

TEST_F(LateRanks, ThatReadSlowly) {
  expect_named(4, 2, "slow_data 0.2", "data", "reading of data");
}

TEST_F(LateRanks, AreNotLookedForOnRequest) {
  const Outcome outcome = train(2, {"training.steps=6", "output.rank_times_every=0",
                                    "runtime.inject=rank 1, step 1: slow_data 0.1"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find(" is late: "), std::string::npos) << outcome.out;
  for (const auto& [step, row] : rows()) EXPECT_FALSE(row.contains("rank_seconds")) << step;
}

TEST_F(LateRanks, WhatWatchingCostsIsMeasured) {
  for (const int ranks : {1, 2}) {
    const Outcome outcome = run_command(program(
        "ostrakon-bench", ranks, {"watch", "deck.yaml", "--seconds", "0.1", "--json"}, path("")));
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const Json row = Json::parse(outcome.out);
    EXPECT_GT(row.at("actions"), 20);
    EXPECT_GE(row.at("steps"), 5);
    EXPECT_GT(row.at("calls_seconds"), 0.0);
    EXPECT_LT(row.at("calls_seconds"), row.at("step_seconds"));
  }
}

}  // namespace
}  // namespace ostrakon::testing
