// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <ostrakon/watch/judge.hpp>
#include <string>
#include <vector>

#include "support/table.hpp"

namespace ostrakon::watch {
namespace {

using plan::Stream;

/// A job of ranks that are all in step 40, as its rank 0 sees it; eight ranks a host.
class Job {
 public:
  explicit Job(int ranks) : members(static_cast<std::size_t>(ranks)) {
    for (int r = 0; r < ranks; ++r) {
      Member& member = of(r);
      member.host = "n" + std::to_string(r / 8);
      member.rank_in_plans = r;
      member.record.rank = r;
      member.record.step = member.record.runs = 40;
      member.record.in_run = true;
      member.record.limit = 5.0F;
      member.record.begun.fill(-1);
    }
  }

  Member& of(int rank) { return members[static_cast<std::size_t>(rank)]; }

  /// A rank is in an action of its own for some seconds.
  Record& computes(int rank, int action, const std::string& what, float seconds) {
    Record& record = of(rank).record;
    record.action = action;
    record.stream = Stream::compute;
    record.begun[0] = action;
    record.seconds = seconds;
    std::strcpy(record.what, what.c_str());
    return record;
  }
  /// A rank waits in a collective of `members` ranks from `first` on.
  Record& waits(int rank, int action, const std::string& what, float seconds, int first,
                int members_of_it, int stride = 1) {
    Record& record = computes(rank, action, what, seconds);
    record.stream = Stream::reduce;
    record.begun[static_cast<std::size_t>(Stream::reduce)] = action;
    record.wait = Wait::span;
    record.first = first;
    record.members = members_of_it;
    record.stride = stride;
    return record;
  }
  /// A rank is between two steps, in a call of MPI or not.
  Record& is_between(int rank, const std::string& call, float seconds) {
    Record& record = of(rank).record;
    record.in_run = false;
    record.occupation = Occupation::between_steps;
    record.seconds = seconds;
    record.wait = call.empty() ? Wait::nobody : Wait::anyone;
    std::strcpy(record.call, call.c_str());
    return record;
  }

  std::string text() const {
    const std::vector<Finding> found = judge(members, 6.0);
    return found.empty() ? "nothing" : found[0].text;
  }
  int rank() const {
    const std::vector<Finding> found = judge(members, 6.0);
    return found.empty() ? -2 : found[0].rank;
  }

  std::vector<Member> members;
};

Job all_wait_for_17(float seconds) {
  Job job(512);
  for (int r = 0; r < 512; ++r) job.waits(r, 20, "reduce_scatter(block.5)", seconds, 0, 512);
  job.of(17).record = Record();
  Record& culprit = job.computes(17, 12, "load(micro-batch 2)", seconds + 1.0F);
  culprit.begun.fill(-1);
  culprit.begun[static_cast<std::size_t>(Stream::reduce)] = 10;
  culprit.in_run = culprit.reads_data = true;
  culprit.step = culprit.runs = 40;
  culprit.limit = 10.0F;
  return job;
}

TEST(Judge, NamesTheRankThatHasNotBegunACollective) {
  const Job job = all_wait_for_17(10.2F);
  EXPECT_EQ(job.rank(), 17);
  EXPECT_EQ(job.text(),
            "rank 17 (n2) has not begun reduce_scatter(block.5) of step 40: it is reading data in "
            "load(micro-batch 2) of step 40 for 11.2 s; 511 ranks wait");
}

TEST(Judge, WaitsUntilTheOneAtFaultIsLateItself) {
  EXPECT_EQ(all_wait_for_17(8.0F).text(), "nothing");  // all others are late by then
  Job job(4);
  for (int r = 0; r < 4; ++r) job.computes(r, r, "forward(block.0)", 4.9F);
  EXPECT_EQ(job.text(), "nothing");
}

TEST(Judge, FollowsGroupsAndMessages) {
  // Two groups of two; rank 0 waits for 1 in one of them, 1 for 3 in another, 3 computes.
  Job job(4);
  job.waits(0, 9, "gather(block.2)", 9.0F, 0, 2);
  job.waits(1, 8, "reduce_scatter(block.1)", 8.0F, 1, 2, 2);
  job.waits(2, 9, "gather(block.2)", 9.0F, 2, 2);
  job.computes(3, 6, "backward(block.1, micro-batch 0)", 7.5F);
  EXPECT_EQ(job.rank(), 3);
  EXPECT_TRUE(testing::says(job.text(),
                            "rank 3..has not begun reduce_scatter(block.1)..it is in "
                            "backward(block.1, micro-batch 0) of step 40 for 7.5 s; 3 "
                            "ranks wait"))
      << job.text();

  // A pipeline of three stages, whose ranks are not in the order of the world.
  Job stages(3);
  stages.of(0).rank_in_plans = 2;
  stages.of(2).rank_in_plans = 0;
  for (int r = 1; r < 3; ++r) {
    Record& record = stages.computes(r, 5, "receive(block.0, from the next stage)", 9.0F);
    record.wait = Wait::peer;
    record.peer = r == 1 ? 2 : 1;
  }
  stages.computes(0, 4, "forward(head, micro-batch 0)", 8.0F);
  EXPECT_EQ(stages.rank(), 0);
  EXPECT_TRUE(testing::says(stages.text(), "rank 0..is waited for in receive(..forward(head"))
      << stages.text();
}

TEST(Judge, OfSumsOverAllRanksCountsThoseThatEachHasBegun) {
  Job job(3);  // of two stages, in whose plans `clip` has other indices
  for (int r = 0; r < 2; ++r) {
    Record& record = job.computes(r, 30 + r, "clip", 6.0F);
    record.wait = Wait::all;
    record.global_sums = 1;
  }
  job.computes(2, 99, "norm(head)", 6.0F);
  EXPECT_EQ(job.rank(), 2);
}

TEST(Judge, BetweenStepsNamesWhoComesBehind) {
  Job job(4);
  for (int r = 0; r < 3; ++r) job.is_between(r, "MPI_Allreduce", 70.0F).limit = 60.0F;
  job.computes(3, 50, "optimize(block.0)", 9.0F);
  EXPECT_EQ(job.rank(), 3);
  EXPECT_TRUE(testing::says(job.text(),
                            "rank 3..has not begun MPI_Allreduce, between two steps "
                            "after step 40: it is in optimize(block.0)"))
      << job.text();
  job.is_between(3, "", 3.0F).occupation = Occupation::saving;  // it writes, and is not late
  EXPECT_EQ(job.text(), "nothing");
  job.is_between(3, "", 121.0F).limit = 120.0F;
  EXPECT_EQ(job.rank(), 3);
}

TEST(Judge, SaysWhereAllHaveComeOrOneHasGoneOn) {
  Job all(8);
  for (int r = 0; r < 8; ++r) all.waits(r, 9, "gather(block.2)", 9.0F, 0, 8);
  EXPECT_TRUE(testing::says(all.text(),
                            "all 8 ranks of gather(block.2) of step 40 have begun it, "
                            "and none has ended it for 9.0 s..network"))
      << all.text();

  Job skipped(4);
  for (int r = 0; r < 4; ++r) skipped.waits(r, 9, "gather(block.2)", 9.0F, 0, 4);
  skipped.waits(2, 11, "gather(block.3)", 8.5F, 0, 4);
  EXPECT_TRUE(testing::says(skipped.text(),
                            "rank 2..has gone on and is in gather(block.3)..while rank 0.."
                            "gather(block.2)..left out"))
      << skipped.text();

  Job swapped(4);  // rank 2 is in a collective that comes later
  for (int r = 0; r < 4; ++r) swapped.waits(r, 9, "gather(block.2)", 9.0F, 0, 4);
  Record& other = swapped.of(2).record;
  other.begun.fill(-1);
  other.action = other.begun[0] = 11;
  other.stream = Stream::compute;
  std::strcpy(other.what, "reduce_scatter(block.3)");
  EXPECT_EQ(swapped.rank(), 2);
  EXPECT_TRUE(testing::says(swapped.text(),
                            "rank 2 (n0) has not begun gather(block.2)..it is in "
                            "reduce_scatter(block.3)..comes after that in the plan"))
      << swapped.text();
  swapped.of(3).record = other;
  EXPECT_TRUE(testing::says(swapped.text(),
                            "rank 2 (n0) and 1 more on this host have not begun gather(block.2)..: "
                            "the first is in reduce_scatter(block.3)..2 ranks wait"))
      << swapped.text();

  Job circle(2);
  for (int r = 0; r < 2; ++r) {
    Record& record = circle.computes(r, 5, "send(block.0)", 9.0F);
    record.wait = Wait::peer;
    record.peer = 1 - r;
  }
  EXPECT_TRUE(testing::says(circle.text(), "2 ranks wait for each other in a circle"))
      << circle.text();
}

TEST(Judge, TellsSilentRanksApart) {
  Job job(24);
  job.of(9).silent = 6.5;
  EXPECT_TRUE(
      testing::says(job.text(), "rank 9 (n1) not heard of for 6.5 s: its host answers..stopped"))
      << job.text();
  for (int r = 8; r < 16; ++r) {
    job.of(r).silent = 7.0;
    job.of(r).answers = false;
  }
  EXPECT_TRUE(testing::says(job.text(),
                            "rank 8 (n1) and 7 more on this host not heard of..does not answer"))
      << job.text();
  job.of(20).link = Member::Link::lost;  // before all else
  EXPECT_TRUE(testing::says(job.text(), "rank 20 (n2)'s process has ended without a word"))
      << job.text();
  job.of(1).link = Member::Link::left;  // then processes end in any order
  EXPECT_TRUE(testing::says(job.text(), "rank 8")) << job.text();
}

TEST(Judge, NoticesWhatIsSlowAndWhoseFaultThatIs) {
  Job job = all_wait_for_17(7.0F);
  EXPECT_EQ(job.text(), "nothing");
  EXPECT_TRUE(find_slow(job.members).empty());
  for (Member& member : job.members) member.record.notice = 6.0F;
  const std::vector<Finding> found = find_slow(job.members);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rank, 17);
  EXPECT_TRUE(testing::says(found[0].text, "rank 17..reading data in load"));
  job.of(3).record.background = Occupation::writing_checkpoint;
  job.of(3).record.background_seconds = 6.5F;
  job.of(3).record.background_notice = 6.0F;
  job.of(17).record.seconds = 1.0F;
  ASSERT_EQ(find_slow(job.members).size(), 1U);
  EXPECT_EQ(find_slow(job.members)[0].rank, 3);
}

TEST(Judge, NoticesNoRankThatHoldsUpNobody) {
  Job job(2);
  job.computes(0, 5, "forward(block.0)", 0.1F);
  job.computes(1, 5, "forward(block.0)", 9.0F).limit = 60.0F;
  job.of(1).record.notice = 6.0F;
  EXPECT_TRUE(find_slow(job.members).empty());
  job.waits(0, 6, "gather(block.1)", 1.0F, 0, 2);
  ASSERT_EQ(find_slow(job.members).size(), 1U);
  EXPECT_EQ(find_slow(job.members)[0].rank, 1);
}

TEST(Judge, FindsAllThatAreLate) {
  Job job(4);  // two groups, in each of which one rank is late
  for (int r = 0; r < 4; ++r) job.waits(r, 9, "gather(block.2)", 9.0F, r / 2 * 2, 2);
  for (const int r : {1, 3}) {
    Record& record = job.computes(r, 8, "forward(block.1)", r == 1 ? 7.0F : 8.0F);
    record.wait = Wait::nobody;
    record.begun.fill(-1);
  }
  const std::vector<Finding> found = judge(job.members, 6.0);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].rank + found[1].rank, 4);

  Job many(64);
  for (int r = 0; r < 64; ++r) many.computes(r, 8, "forward(block.1)", 9.0F);
  EXPECT_EQ(judge(many.members, 6.0).size(), 16U);
}

TEST(Judge, WaitsLongerWherePacketsGetLost) {
  Job job(16);
  for (int r = 0; r < 16; ++r) job.waits(r, 9, "gather(block.2)", 9.0F, 0, 16);
  job.of(9).silent = 7.0;
  EXPECT_EQ(job.rank(), 9);
  for (int r = 8; r < 16; ++r) job.of(r).loss = 0.31, job.of(r).has_losses = true;
  EXPECT_EQ(job.text(), "nothing");
  EXPECT_TRUE(testing::says(find_slow(job.members)[0].text,
                            "packets between rank 0 (n0) and rank 8 (n1) and 7 more on this host "
                            "get lost: up to 31 %"));
  for (int r = 0; r < 16; ++r) job.of(r).record.seconds = 151.0F;
  EXPECT_NE(job.text(), "nothing");
  // A rank that has work of its own waits for no packets.
  for (int r = 0; r < 16; ++r) job.of(r).record.seconds = 9.0F;
  Record& own = job.computes(12, 8, "forward(block.1)", 9.0F);
  own.wait = Wait::nobody;
  own.begun.fill(-1);
  for (int r = 0; r < 16; ++r)
    if (r != 12) job.of(r).record.seconds = 10.0F;
  EXPECT_EQ(job.rank(), 12);
}

TEST(Judge, WatchesWhatIsWrittenWhileTrainingGoesOn) {
  Job job(2);
  Record& record = job.computes(1, 5, "forward(block.0)", 0.1F);
  record.background = Occupation::writing_checkpoint;
  record.background_seconds = 121.0F;
  record.background_limit = 130.0F;
  EXPECT_EQ(job.text(), "nothing");
  record.background_limit = 120.0F;
  EXPECT_EQ(job.rank(), 1);
}

}  // namespace
}  // namespace ostrakon::watch
