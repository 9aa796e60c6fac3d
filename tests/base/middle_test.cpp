// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/base/format_ranks.hpp>
#include <ostrakon/base/middle.hpp>

namespace ostrakon {
namespace {

TEST(MiddleOf, IsRobustAndLetsOneOfTwoBeAnOutlier) {
  const Middle middle = middle_of({5.0, 1.0, 100.0, 4.0, 3.0});
  EXPECT_EQ(middle.median, 4.0);
  EXPECT_DOUBLE_EQ(middle.deviation, 1.4826);
  EXPECT_DOUBLE_EQ(middle.least(0.1), 4.0 - 5.0 * 1.4826);
  EXPECT_DOUBLE_EQ(middle.most(2.5), 14.0);
  EXPECT_EQ(middle_of({1.0, 2.0}).median, 2.0);
  EXPECT_EQ(middle_of({1.0, 2.0}, Outliers::high).median, 1.0);
  EXPECT_EQ(middle_of({1.0, 2.0}, Outliers::high).deviation, 0.0);
  EXPECT_EQ(middle_of({7.0}, Outliers::high).median, 7.0);
}

TEST(FormatRanks, JoinsNeighbours) {
  EXPECT_EQ(format_ranks({5}), "rank 5");
  EXPECT_EQ(format_ranks({0, 1, 2, 3, 7}), "ranks 0-3, 7");
  EXPECT_EQ(format_ranks({1, 3, 4}), "ranks 1, 3-4");
}

}  // namespace
}  // namespace ostrakon
