// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/trainer/state/skipped_steps.hpp>

#include "support/scratch_folder.hpp"

namespace ostrakon::train {
namespace {

using testing::error_of;

TEST(SkippedSteps, ARunWhoseLastStepsWereSkippedIsNotDone) {
  SkippedSteps skipped;
  const std::string why = "the loss is not finite";
  EXPECT_EQ(skipped.problem(9), "");
  for (int step = 1; step <= 2; ++step) skipped.add(why);
  EXPECT_EQ(skipped.problem(9), "");
  EXPECT_EQ(skipped.problem(2), "the last 2 steps were skipped: " + why);  // all of the run
  skipped.add(why);
  EXPECT_EQ(skipped.problem(9), "the last 3 steps were skipped: " + why);
  // The loss is finite: so are the parameters.
  skipped.add("a gradient overflowed", true);
  EXPECT_EQ(skipped.in_a_row(), 4);
  EXPECT_EQ(skipped.problem(9), "");
  skipped.restore(5, true);
  EXPECT_EQ(skipped.problem(9), "");
  skipped.restore(5, false);
  EXPECT_EQ(skipped.problem(9), "the last 5 steps were skipped");
  skipped.clear();
  EXPECT_EQ(skipped.in_a_row(), 0);
  EXPECT_EQ(skipped.problem(9), "");
}

TEST(SkippedSteps, EndARunThatChangesNothingAnyMore) {
  SkippedSteps skipped;
  skipped.restore(98, false);
  skipped.add("it was spoilt");
  EXPECT_EQ(skipped.in_a_row(), 99);
  skipped.require_updates(99);
  skipped.add("of this");
  EXPECT_EQ(error_of([&] { skipped.require_updates(100); }),
            "step 100: 100 consecutive steps were skipped, the last one: of this");
  skipped.clear();
  skipped.require_updates(101);
}

}  // namespace
}  // namespace ostrakon::train
