// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/simulate/machine.hpp>

namespace ostrakon::simulate {

/// The ranks of a collective: on how many nodes, and how many of the group on each. Where these
/// are not equally many, `ranks_per_node` are those of the fullest.
struct GroupShape {
  int ranks = 1;
  int ranks_per_node = 1;

  int nodes() const { return (ranks + ranks_per_node - 1) / ranks_per_node; }
  bool spans_nodes() const { return nodes() > 1; }
};

/// What a collective takes where it is alone.
struct CollectiveSeconds {
  double latency = 0.0;   ///< whatever its size
  double transfer = 0.0;  ///< of its bytes, on the network that limits it: across nodes where it
                          ///< spans them, else inside
};

/// All-gather to `bytes`, or reduce-scatter of as many, as a ring. Each rank sends (n - 1) / n of
/// them to its neighbour. A ring leaves each node once, and a library runs as many rings as a node
/// has ranks in the group, through the links of all of these. Latency grows with n: n - 1 steps,
/// one for each node across (NCCL's src/graph/tuning.cc).
///
/// Machine::has_protocols: the fastest of what the networks of the machine say, of NCCL's LL, whose
/// latency is least and which reaches a quarter of the bandwidth (across nodes up to 4 MB), and of
/// LL128, which reaches 92 %.
CollectiveSeconds ring_seconds(const Machine& machine, const GroupShape& group, double bytes);

/// All-to-all of `bytes` on each rank: 1 / n of them to each of the others. A rank sends its
/// messages across nodes through its own link, at the same time as those inside.
CollectiveSeconds exchange_seconds(const Machine& machine, const GroupShape& group, double bytes);

/// A sum of some numbers over all ranks of a group, by trees.
double sum_seconds(const Machine& machine, const GroupShape& group);

/// One message.
CollectiveSeconds message_seconds(const Machine& machine, bool leaves_node, double bytes);

}  // namespace ostrakon::simulate
