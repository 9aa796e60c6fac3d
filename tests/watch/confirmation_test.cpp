// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <optional>
#include <ostrakon/watch/confirmation.hpp>
#include <vector>

namespace ostrakon::watch {
namespace {

using Kind = Finding::Kind;

Finding finding(Kind kind, int rank) { return {kind, rank, rank, "", kind == Kind::lost}; }

/// A job of four ranks, all of which have heard of the round before.
class Rounds {
 public:
  std::vector<Finding> next(const std::vector<Finding>& found) {
    for (Member& member : members) member.record.round = round;
    if (behind >= 0) members[static_cast<std::size_t>(behind)].record.round = round - 1;
    return confirmation.confirmed(found, members, ++round);
  }

  Confirmation confirmation;
  std::vector<Member> members = std::vector<Member>(4);
  std::int32_t round = 7;
  int behind = -1;  // the rank that has heard of one less
};

TEST(Confirmation, TakesRecordsOfAllRanksMadeLater) {
  Rounds rounds;
  const std::vector<Finding> late = {finding(Kind::late, 1)};
  EXPECT_TRUE(rounds.next(late).empty());
  EXPECT_TRUE(rounds.next(late).empty());
  rounds.behind = 3;
  EXPECT_TRUE(rounds.next(late).empty());
  rounds.behind = -1;
  ASSERT_EQ(rounds.next(late).size(), 1U);
  EXPECT_TRUE(rounds.next({}).empty());
  EXPECT_TRUE(rounds.next(late).empty());                       // it had gone on
  EXPECT_EQ(rounds.next({finding(Kind::lost, 1)}).size(), 1U);  // is no matter of time
}

TEST(Confirmation, IsOfOneKindAndRank) {
  Rounds rounds;
  for (int round = 0; round < 2; ++round)
    EXPECT_TRUE(rounds.next({finding(Kind::late, 1)}).empty());
  for (int round = 0; round < 2; ++round)
    EXPECT_TRUE(rounds.next({finding(Kind::gone_on, 1)}).empty());
  EXPECT_TRUE(rounds.next({finding(Kind::gone_on, 2)}).empty());
  EXPECT_TRUE(rounds.next({finding(Kind::gone_on, 1)}).empty());
  // Of two in changing order each is confirmed.
  for (int round = 0; round < 2; ++round)
    EXPECT_TRUE(rounds.next({finding(Kind::late, round), finding(Kind::late, 1 - round)}).empty());
  EXPECT_EQ(rounds.next({finding(Kind::late, 0), finding(Kind::late, 1)}).size(), 2U);
}

TEST(Notices, AreOneInTenSecondsAndOneInAMinuteAboutARank) {
  Notices notices;
  const std::vector<Finding> found = {finding(Kind::loss, 2), finding(Kind::late, 3)};
  const auto rank_at = [&](double now) {
    const std::optional<Finding> next = notices.next(found, now);
    return next ? next->rank : -1;
  };
  EXPECT_EQ(rank_at(100.0), 2);
  EXPECT_EQ(rank_at(109.0), -1);
  EXPECT_EQ(rank_at(111.0), 3);  // a lossy link hides nothing else
  EXPECT_EQ(rank_at(122.0), -1);
  EXPECT_EQ(rank_at(159.0), -1);
  EXPECT_EQ(rank_at(161.0), 2);
  EXPECT_EQ(rank_at(170.0), -1);
  EXPECT_EQ(rank_at(171.0), 3);
}

}  // namespace
}  // namespace ostrakon::watch
