// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/experts/expert_rounds.hpp>
#include <random>
#include <vector>

namespace ostrakon::math {
namespace {

std::int64_t below(std::mt19937_64& random, std::int64_t end) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
}

/// Each row is in exactly one round, in order; no round exceeds the capacity; runs are cut at
/// multiples of a granule from their begin.
TEST(ExpertRounds, HaveEveryRowOnce) {
  std::mt19937_64 random(7);
  int cut = 0;
  for (int n = 0; n < 3000; ++n) {
    const std::int64_t granule = 1 + below(random, 9);
    const ExpertRounds rounds{granule + below(random, 20), granule};
    std::vector<std::int64_t> runs = {below(random, 50)};
    for (std::int64_t r = below(random, 8); r >= 0; --r)
      runs.push_back(runs.back() + below(random, 3) * below(random, 30));
    const HostView<const std::int64_t*> view = host_view(runs);
    std::int64_t done = runs.front(), taken = 0;
    for (std::int64_t round = 0; done < runs.back(); ++round, ++taken) {
      const ExpertRounds::Rows rows = rounds.rows_of(view, round);
      EXPECT_EQ(rows.begin, done);
      EXPECT_GT(rows.count(), 0);
      EXPECT_LE(rows.count(), rounds.capacity);
      done = rows.end;
      const auto next = std::upper_bound(runs.begin(), runs.end(), done);
      if (next == runs.end()) continue;
      EXPECT_EQ((done - next[-1]) % granule, 0);
      cut += done > next[-1];
    }
    EXPECT_EQ(done, runs.back());
    EXPECT_EQ(rounds.rows_of(view, taken).count(), 0);
    EXPECT_EQ(rounds.needed(view), std::max(taken, std::int64_t{1}));
    EXPECT_LE(taken, rounds.most(runs.back() - runs.front()));
  }
  EXPECT_GT(cut, 100);
}

TEST(ExpertRounds, HaveRoomForAShare) {
  EXPECT_EQ(make_expert_rounds(1000, 0.25, 16, 800).capacity, 250);
  EXPECT_EQ(make_expert_rounds(1000, 0.2501, 16, 800).capacity, 251);
  EXPECT_EQ(make_expert_rounds(1000, 1.0, 16, 800).capacity, 800);   // all rows
  EXPECT_EQ(make_expert_rounds(1000, 0.001, 16, 800).capacity, 16);  // one granule
  EXPECT_EQ(make_expert_rounds(8, 1.0, 16, 8).granule, 8);
  EXPECT_EQ((ExpertRounds{250, 16}).most(250), 1);
  EXPECT_EQ((ExpertRounds{250, 1}).most(1000), 4);
  EXPECT_EQ((ExpertRounds{16, 16}).most(64), 9);  // runs that end after half of a granule
  EXPECT_THROW(make_expert_rounds(1000, 0.0, 16, 800), Error);
}

}  // namespace
}  // namespace ostrakon::math
