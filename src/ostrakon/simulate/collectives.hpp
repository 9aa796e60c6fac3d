// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/simulate/machine.hpp>

namespace ostrakon::simulate {

/// The ranks of a collective, and how many of them each node has. If nodes have different numbers,
/// `ranks_per_node` is the maximum.
struct GroupShape {
  int ranks = 1;
  int ranks_per_node = 1;

  int nodes() const { return (ranks + ranks_per_node - 1) / ranks_per_node; }
  bool spans_nodes() const { return nodes() > 1; }
};

/// The time of a collective that runs alone.
struct CollectiveSeconds {
  double latency = 0.0;   ///< independent of its size
  double transfer = 0.0;  ///< proportional to its bytes, on the network that limits it: across
                          ///< nodes if it spans them, else inside
};

/// The time of an all-gather to `bytes`, or a reduce-scatter of as many, as a ring. Each rank sends
/// (n - 1) / n of them to its neighbour. A ring leaves each node once, and a library runs as many
/// rings as a node has ranks in the group, through the links of all of these. Latency grows with n:
/// n - 1 steps, one per node across nodes (NCCL's src/graph/tuning.cc).
///
/// The fastest of three protocols counts with Machine::has_protocols: the numbers of the machine's
/// networks; NCCL's LL, with the least latency and a quarter of the bandwidth (across nodes up to 4
/// MB); and LL128, with 92 % of the bandwidth.
CollectiveSeconds ring_seconds(const Machine& machine, const GroupShape& group, double bytes);

/// Half of the time of an all-reduce of `bytes` by a double tree over nodes (NCCL), whose latency
/// grows with the logarithm of their number.
CollectiveSeconds half_tree_seconds(const Machine& machine, const GroupShape& group, double bytes);

/// The time of an all-to-all of `bytes` on each rank: 1 / n of them to each of the others. A rank
/// sends its messages across nodes through its own link, at the same time as those inside.
CollectiveSeconds exchange_seconds(const Machine& machine, const GroupShape& group, double bytes);

/// The time of a sum of a few numbers over all ranks of a group, by trees.
double sum_seconds(const Machine& machine, const GroupShape& group);

/// The time of one message.
CollectiveSeconds message_seconds(const Machine& machine, bool leaves_node, double bytes);

}  // namespace ostrakon::simulate
