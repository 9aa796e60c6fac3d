// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace ostrakon::plan {

// This file defines the one tree by which gradients are summed over the leaves of the global batch.
// A node over n leaves has the largest power of two below n on its left and the rest on its right,
// so an aligned run of 2^k leaves is always a node: the owner of such runs can sum them alone, and
// the sum over all has the same bits however the runs are spread over ranks.
//
// With a grain, each `grain` leaves make such a tree (the last tree may have fewer), and the trees'
// sums are accumulated in order: ((T0 + T1) + T2) + ... This is a binary tree again, in which nodes
// over more than `grain` leaves have the last tree on their right. The grain is a power of two, so
// aligned runs of 2^k leaves, up to the grain, are nodes as before.

/// The number of leaves on the left of a node over `leaves` >= 2 leaves.
constexpr std::int64_t left_leaves(std::int64_t leaves) {
  std::int64_t left = 1;
  while (2 * left < leaves) left *= 2;
  return left;
}

/// A node of the tree: the leaves [begin, begin + leaves).
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

/// Returns parent and sibling of `node` in the tree over `total` leaves, with a grain if it is > 0.
/// `node` is not the root.
inline std::pair<TreeNode, TreeNode> parent_and_sibling(TreeNode node, std::int64_t total,
                                                        std::int64_t grain = 0) {
  TreeNode parent{0, total};
  if (grain > 0 && grain < total) {
    // The sibling is the next tree of a chain, or the chain before a tree.
    if (node.begin == 0 && node.leaves >= grain) {
      const std::int64_t next = std::min(grain, total - node.leaves);
      return {{0, node.leaves + next}, {node.leaves, next}};
    }
    const std::int64_t begin = node.begin / grain * grain;
    parent = {begin, std::min(grain, total - begin)};
    if (node == parent) return {{0, begin + node.leaves}, {0, begin}};
  }
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
