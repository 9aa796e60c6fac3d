// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

namespace ostrakon::plan {

// The one tree in which gradients are summed over the leaves of the global batch. A node over n
// leaves has the largest power of two below n on its left and the rest on its right, so an aligned
// run of 2^k leaves is always a node: whoever owns such runs can sum them alone, and the sum over
// all has the same bits however the runs are spread over ranks.

/// Leaves on the left of a node over `leaves` >= 2 leaves.
constexpr std::int64_t left_leaves(std::int64_t leaves) {
  std::int64_t left = 1;
  while (2 * left < leaves) left *= 2;
  return left;
}

/// A node: the leaves [begin, begin + leaves).
struct TreeNode {
  std::int64_t begin = 0;
  std::int64_t leaves = 1;
};

inline bool operator==(TreeNode a, TreeNode b) {
  return a.begin == b.begin && a.leaves == b.leaves;
}
inline bool operator<(TreeNode a, TreeNode b) {
  return a.begin != b.begin ? a.begin < b.begin : a.leaves < b.leaves;
}

/// Parent and sibling of `node` in the tree over `total` leaves. `node` is not the root.
inline std::pair<TreeNode, TreeNode> parent_and_sibling(TreeNode node, std::int64_t total) {
  TreeNode parent{0, total};
  for (;;) {
    const std::int64_t left = left_leaves(parent.leaves);
    const TreeNode children[2] = {{parent.begin, left},
                                  {parent.begin + left, parent.leaves - left}};
    if (node == children[0]) return {parent, children[1]};
    if (node == children[1]) return {parent, children[0]};
    parent = node.begin < children[1].begin ? children[0] : children[1];
  }
}

}  // namespace ostrakon::plan
