// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/run/usage_summary.hpp>

#include "support/messages.hpp"

namespace ostrakon::train {
namespace {

TEST(UsageSummary, OverlapIsTheMeanOverStepsAndRanks) {
  comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  UsageSummary usage;
  EXPECT_EQ(usage.describe_overlap(world), "");
  runtime::OverlapTimes overlap;
  // 1 s on each rank in the mean.
  overlap.communication = 2.0 * (world.rank() + 1) / (world.size() + 1);
  overlap.hidden = 0.25 * overlap.communication;
  overlap.host = 0.5;
  usage.add(1.0, overlap);
  usage.add(1.0, overlap);
  EXPECT_EQ(usage.describe_overlap(world),
            "communication: 1 s a step on each rank, 25 % of it overlapped with compute\n"
            "sums and updates on the host: 0.5 s a step on each rank, 0 % of it overlapped "
            "with compute\n");
  runtime::OverlapTimes copies;
  copies.copying = copies.copying_hidden = 3.0;
  usage.add(1.0, copies);
  EXPECT_HAS(usage.describe_overlap(world),
             "copies between host and device: 1 s a step on each rank, 100 % of it");
}

TEST(UsageSummary, APeakThatWasGivenIsNotMeasured) {
  UsageSummary usage;
  usage.set_peak(PeakRate(1e9, PeakRate::Origin::given));
  int measured = 0;
  const auto measure = [&] {
    ++measured;
    return 2e9;
  };
  EXPECT_EQ(usage.describe_peak(1e9, measure), "");  // no step
  usage.add(20.0, {});
  const std::string line = usage.describe_peak(1e10, measure);
  EXPECT_EQ(measured, 0);
  EXPECT_HAS(line, "; MFU of all steps 50 %\n");
}

TEST(UsageSummary, LongRunsMeasureThePeakOnceMore) {
  int measured = 0;
  const auto measure = [&] {
    ++measured;
    return 2e9;
  };
  UsageSummary brief, lengthy;
  brief.set_peak(PeakRate(1e9, PeakRate::Origin::measured));
  lengthy.set_peak(PeakRate(1e9, PeakRate::Origin::measured));
  brief.add(1.0, {});
  for (int i = 0; i < 11; ++i) lengthy.add(1.0, {});
  EXPECT_HAS(brief.describe_peak(5e8, measure), "MFU of all steps 50 %");
  EXPECT_EQ(measured, 0);
  EXPECT_HAS(lengthy.describe_peak(5e8, measure), "MFU of all steps 25 %");
  EXPECT_EQ(measured, 1);
}

TEST(UsageSummary, FiguresAreOfTheMeanStepWithoutTheFirst) {
  UsageSummary usage;
  usage.set_peak(PeakRate(1e9, PeakRate::Origin::given));
  EXPECT_EQ(usage.figures(100.0, 2, 1e9), "");
  usage.add(5.0, {});
  EXPECT_EQ(usage.figures(100.0, 2, 1e9).rfind("figure: step_seconds 5 s\n", 0), 0u);
  usage.add(1.0, {});
  usage.add(3.0, {});
  EXPECT_EQ(usage.figures(100.0, 2, 1e9),
            "figure: step_seconds 2 s\n"
            "figure: tokens_per_second 50 tokens/s\n"
            "figure: tokens_per_second_per_rank 25 tokens/s\n"
            "figure: mfu 50 %\n");
}

}  // namespace
}  // namespace ostrakon::train
