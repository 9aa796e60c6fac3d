// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/run/stragglers.hpp>
#include <random>
#include <string>
#include <vector>

#include "support/messages.hpp"

namespace ostrakon::tests {
namespace {

using namespace train;

/// Times of ranks whose steps take as long as the slowest of a stage works, and `network` seconds
/// of communication at least; the others wait meanwhile.
class Ranks {
 public:
  explicit Ranks(int ranks) : times_(static_cast<std::size_t>(ranks)) {
    for (RankTimes& one : times_) one[Part::compute] = 1.0;
  }
  RankTimes& of(int rank) { return times_[static_cast<std::size_t>(rank)]; }
  std::vector<RankTimes> times(double network = 0.1) const {
    std::vector<RankTimes> all = times_;
    const auto work = [](const RankTimes& one) {
      double seconds = 0.0;
      for (int p = 0; p < own_parts; ++p) seconds += one[static_cast<Part>(p)];
      return seconds;
    };
    double longest = 0.0;
    for (const RankTimes& one : all) longest = std::max(longest, work(one));
    for (RankTimes& one : all) {
      one.step = longest + network;
      one[Part::communication] = one.step - work(one);
    }
    return all;
  }
  /// Lets compute vary by so much from rank to rank.
  Ranks& vary(double deviation, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<double> factor(1.0, deviation);
    for (RankTimes& one : times_) one[Part::compute] *= factor(generator);
    return *this;
  }

 private:
  std::vector<RankTimes> times_;
};

TEST(Stragglers, OneOfTwoIsNamedWithItsWork) {
  for (const Part part : {Part::compute, Part::data, Part::copies, Part::between_steps}) {
    Ranks ranks(2);
    ranks.of(1)[part] += 0.25;
    const std::vector<Straggler> late = find_stragglers(ranks.times());
    ASSERT_EQ(late.size(), 1U) << name(part);
    EXPECT_EQ(late[0].rank, 1);
    EXPECT_EQ(late[0].part, part);
    EXPECT_DOUBLE_EQ(late[0].seconds - late[0].median, 0.25);
    EXPECT_NEAR(late[0].share, 0.25 / 1.35, 1e-12);
  }
}

TEST(Stragglers, AmongManyThatVary) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Ranks ranks(512);
    ranks.vary(0.01, seed);
    EXPECT_TRUE(find_stragglers(ranks.times()).empty()) << seed;
    ranks.of(77)[Part::compute] = 1.31;
    const std::vector<Straggler> late = find_stragglers(ranks.times());
    ASSERT_EQ(late.size(), 1U) << seed;
    EXPECT_EQ(late[0].rank, 77);
    EXPECT_NEAR(late[0].share, 0.31 / 1.41, 0.01);
  }
}

TEST(Stragglers, WhatIsLessThanTheUsualDifferencesOrCostsLittleIsNone) {
  Ranks ranks(512);
  ranks.vary(0.1, 3).of(77)[Part::compute] = 1.31;  // three deviations
  EXPECT_TRUE(find_stragglers(ranks.times()).empty());
  Ranks little(4);
  little.of(2)[Part::compute] = 1.04;
  EXPECT_TRUE(find_stragglers(little.times()).empty());
}

TEST(Stragglers, LongWorkForWhichNobodyWaitsIsNone) {
  Ranks ranks(4);
  std::vector<RankTimes> times = ranks.times();
  times[2][Part::data] = 0.8;  // read on another stream, beside compute
  EXPECT_TRUE(find_stragglers(times).empty());
  times[3][Part::communication] = 0.0;  // late, but by nothing that is known
  EXPECT_TRUE(find_stragglers(times).empty());
}

TEST(Stragglers, AreComparedWithRanksOfTheirStage) {
  Ranks ranks(8);
  for (int rank = 4; rank < 8; ++rank) {
    ranks.of(rank).stage = 1;
    ranks.of(rank)[Part::compute] = 2.0;
  }
  EXPECT_TRUE(find_stragglers(ranks.times()).empty());
  ranks.of(2)[Part::compute] = 1.5;
  const std::vector<Straggler> late = find_stragglers(ranks.times());
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].rank, 2);
}

TEST(StragglerLog, SaysWhatStaysInTheSecondFourthAndEighthWindow) {
  StragglerLog log({"n0", "n0", "n1", "n1"}, 50);
  Ranks ranks(4);
  ranks.of(3)[Part::compute] = 1.31;
  const std::string line =
      "  rank 3 (n1) is late: its compute takes 1.31 x the median, which costs 22 % of the step\n";
  for (int window = 1; window <= 8; ++window) {
    const bool is_due = window == 2 || window == 4 || window == 8;
    EXPECT_EQ(log.add(ranks.times(), 50), is_due ? line : "") << window;
    EXPECT_EQ(log.late().size(), 1U);
  }
  EXPECT_EQ(log.summary(), "over 400 steps:\n" + line);
  // What comes and goes is not said.
  StragglerLog other({"n0", "n0", "n1", "n1"}, 50);
  for (int window = 1; window <= 8; ++window)
    EXPECT_EQ(other.add(window % 2 == 0 ? ranks.times() : Ranks(4).times(), 50), "");
}

TEST(StragglerLog, CountsARankWhoseLargestPartChanges) {
  StragglerLog log({"n0", "n1"}, 50);
  Ranks computes(2), reads(2);
  computes.of(1)[Part::compute] = 1.31;
  reads.of(1)[Part::data] = 0.31;
  EXPECT_EQ(log.add(computes.times(), 50), "");
  EXPECT_HAS(log.add(reads.times(), 50), "rank 1 (n1) is late: its reading of data");
}

TEST(StragglerLog, RanksOfAHostAreOneLine) {
  std::vector<std::string> hosts(16, "n0");
  for (std::size_t r = 8; r < 16; ++r) hosts[r] = "n1";
  StragglerLog log(hosts, 50);
  Ranks ranks(16);
  for (const int rank : {8, 9, 11}) ranks.of(rank)[Part::data] = 0.2 + 0.1 * rank;
  log.add(ranks.times(), 50);
  EXPECT_EQ(log.add(ranks.times(), 50),
            "  ranks 8-9, 11 (n1) are late: their reading of data takes up to 1.3 s a step, where "
            "the median is 0 s, which costs 54 % of the step\n");
}

TEST(StragglerLog, CommunicationIsNoMultipleOfNone) {
  StragglerLog log({"n0", "n1"}, 50);
  const Ranks ranks(2);
  for (int window = 0; window < 5; ++window) EXPECT_EQ(log.add(ranks.times(0.0), 50), "");
  EXPECT_EQ(log.add(ranks.times(0.3), 50), "");
  EXPECT_HAS(log.add(ranks.times(0.3), 50),
             "at least 0.3 s a step, where it took 0 s before, which costs 23 % of the step");
}

TEST(StragglerLog, CommunicationOfAllRanksIsComparedWithBefore) {
  StragglerLog log({"n0", "n1"}, 50);
  Ranks ranks(2);
  ranks.of(1)[Part::compute] = 0.98;
  for (int window = 0; window < 5; ++window) EXPECT_EQ(log.add(ranks.times(0.1), 50), "");
  EXPECT_EQ(log.add(ranks.times(0.3), 50), "");
  EXPECT_EQ(log.add(ranks.times(0.3), 50),
            "  communication takes every rank at least 0.3 s a step, 3.00 x as long as before, "
            "which costs 15 % of the step: the network is slower, or other work is on the "
            "machine\n");
  EXPECT_EQ(log.summary(), "");
}

TEST(StragglerLog, StagesThatWaitForASlowOneHaveNoSlowNetwork) {
  Ranks ranks(4);
  for (const int rank : {2, 3}) ranks.of(rank).stage = 1;
  for (const bool is_whole_stage : {false, true}) {
    StragglerLog log(std::vector<std::string>(4, "n0"), 50);
    for (int window = 0; window < 4; ++window) log.add(ranks.times(), 50);
    Ranks slow = ranks;
    slow.of(3)[Part::compute] = 1.5;
    if (is_whole_stage) slow.of(2)[Part::compute] = 1.5;
    EXPECT_EQ(log.add(slow.times(), 50), "");
    EXPECT_EQ(log.add(slow.times(), 50),
              is_whole_stage ? ""
                             : "  rank 3 (n0) is late: its compute takes 1.50 x the median, which "
                               "costs 31 % of the step\n");
  }
}

TEST(StragglerLog, RanksThatWaitForEachOtherInTurnHaveNoSlowNetwork) {
  StragglerLog log({"n0", "n1"}, 50);
  Ranks ranks(2), slow(2);
  for (int window = 0; window < 4; ++window) log.add(ranks.times(0.1), 50);
  for (const int rank : {0, 1}) slow.of(rank)[Part::compute] = 1.2;
  for (int window = 0; window < 2; ++window) EXPECT_EQ(log.add(slow.times(0.3), 50), "");
}

TEST(StragglerLog, WhatIsUsualFollowsFromRecentWholeWindows) {
  StragglerLog log({"n0", "n1"}, 50);
  const Ranks ranks(2);
  const auto add = [&](double network, int steps = 50) {
    return log.add(ranks.times(network), steps);
  };
  // Two windows don't tell what is usual; three do. Short ones count for nothing.
  for (const double network : {0.1, 0.1, 0.3, 0.3}) EXPECT_EQ(add(network), "");
  EXPECT_NE(add(0.3), "");
  for (int window = 0; window < 16; ++window) EXPECT_EQ(add(0.3), "");
  for (int window = 0; window < 20; ++window) EXPECT_EQ(add(0.9, 10), "");
  // The first windows are forgotten, and windows that were slow become usual.
  for (int window = 1; window <= 32; ++window) {
    const bool says = !add(0.6).empty();
    EXPECT_EQ(says, window == 2 || window == 4 || window == 8) << window;
  }
}

TEST(StragglerLog, HasNothingToSayOfEqualRanks) {
  StragglerLog log(std::vector<std::string>(64, "n0"), 50);
  EXPECT_EQ(log.summary(), "");
  for (unsigned window = 0; window < 50; ++window)
    EXPECT_EQ(log.add(Ranks(64).vary(0.02, window).times(0.2), 50), "") << window;
  EXPECT_EQ(log.summary(), "");
}

}  // namespace
}  // namespace ostrakon::tests
