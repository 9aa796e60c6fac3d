// SPDX-License-Identifier: Apache-2.0

// The tree by which leaves are summed.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ostrakon/plan/ir/reduction_tree.hpp>

namespace {

using namespace ostrakon::plan;

TEST(ReductionTree, SplitsAtTheLargestPowerOfTwoBelow) {
  EXPECT_EQ(left_leaves(2), 1);
  EXPECT_EQ(left_leaves(3), 2);
  EXPECT_EQ(left_leaves(4), 2);
  EXPECT_EQ(left_leaves(5), 4);
  EXPECT_EQ(left_leaves(8), 4);
  EXPECT_EQ(left_leaves(9), 8);
}

TEST(ReductionTree, AlignedRunsOfPowersOfTwoAreNodes) {
  for (std::int64_t total : {2, 3, 6, 8, 12, 17}) {
    for (std::int64_t run = 1; run < total; run *= 2) {
      for (std::int64_t begin = 0; begin + run <= total; begin += run) {
        const auto [parent, sibling] = parent_and_sibling({begin, run}, total);
        EXPECT_EQ(parent.leaves, run + sibling.leaves);
        EXPECT_EQ(std::min(begin, sibling.begin), parent.begin);
      }
    }
  }
}

TEST(ReductionTree, WithAGrainTreesAreAddedOneAfterTheOther) {
  const auto expect = [](TreeNode node, std::int64_t total, TreeNode parent, TreeNode sibling) {
    const auto [found_parent, found_sibling] = parent_and_sibling(node, total, 4);
    EXPECT_EQ(found_parent, parent);
    EXPECT_EQ(found_sibling, sibling);
  };
  expect({0, 1}, 11, {0, 2}, {1, 1});
  expect({2, 2}, 11, {0, 4}, {0, 2});
  expect({0, 4}, 11, {0, 8}, {4, 4});
  expect({4, 4}, 11, {0, 8}, {0, 4});
  expect({6, 1}, 11, {6, 2}, {7, 1});
  expect({0, 8}, 11, {0, 11}, {8, 3});
  expect({8, 2}, 11, {8, 3}, {10, 1});
  expect({8, 3}, 11, {0, 11}, {0, 8});
  expect({8, 1}, 9, {0, 9}, {0, 8});
  // A grain that is not less than the leaves makes no difference.
  expect({0, 2}, 4, {0, 4}, {2, 2});
  expect({0, 2}, 3, {0, 3}, {2, 1});
}

}  // namespace
