// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostrakon/comm/communicator.hpp>
#include <string>
#include <vector>

namespace ostrakon::mesh {

/// Special values of shard_group; any other number is the number of ranks of a shard group.
constexpr int world_group = 0;
constexpr int node_group = -1;

/// Throws Error if a node of `ranks_per_node` consecutive ranks has ranks on several hosts: traffic
/// that counts as inside a node would cross the network. `hosts`: for each rank, "<any number>
/// <name>", equal for ranks that share memory.
void require_nodes_within_hosts(const std::vector<std::string>& hosts, int ranks_per_node);

/// Returns the number of ranks per node if it is the same on all nodes and each rank has
/// neighbours, in the order of the nodes; else 0. `node_of_rank`: the node of each rank, counted
/// from 0; not empty.
int regular_ranks_per_node(const std::vector<std::int64_t>& node_of_rank);

/// Communicators of the ranks that share a node, a host, a stage, or a copy of the model. All are
/// made in the constructor, in the same order on all ranks.
class Mesh {
 public:
  /// Collective over `parent`. A node is the ranks that share memory, or, for ranks_per_node > 0,
  /// that many consecutive ranks of one host. Throws CollectiveError if ranks_per_node does not
  /// divide the ranks, or a node would have ranks on two hosts.
  explicit Mesh(MPI_Comm parent, int ranks_per_node = 0, int shard_group = world_group,
                int stages = 1);

  comm::Communicator& world() { return world_; }
  /// The ranks of this rank's node.
  comm::Communicator& node() { return node_; }
  /// The ranks that share this rank's memory, also if ranks_per_node was given.
  comm::Communicator& host() { return host_; }
  /// The ranks of this rank's stage.
  comm::Communicator& stage() { return stage_; }
  /// The ranks, one per stage, that have the same position in their stage, ordered by stage.
  comm::Communicator& pipeline() { return pipeline_; }
  /// The ranks that share one copy of the parameters of their stage.
  comm::Communicator& shard_group() { return shard_group_; }
  /// The ranks, one per shard group of the stage, that hold the same shard, ordered by group.
  comm::Communicator& replicate_group() { return replicate_group_; }

  int nodes() const { return nodes_; }
  /// The number of ranks per node, from regular_ranks_per_node.
  int ranks_per_node() const { return ranks_per_node_; }
  int node_index() const { return node_index_; }

  /// Cores for the threads of each rank, the same number on every rank: the minimum over all ranks
  /// of its own allowed cores, and of its host's allowed cores divided by the host's ranks. 0 if
  /// ranks outnumber cores, or the system doesn't tell.
  int cores() const { return cores_; }

  /// A table of rank, host, node, allowed cores and device, one line per rank; runs of similar
  /// ranks are folded when there are more than 16. Collective; the text is the same on every rank.
  std::string table();

 private:
  comm::Communicator world_;
  comm::Communicator host_;
  comm::Communicator node_;
  comm::Communicator stage_;
  comm::Communicator pipeline_;
  comm::Communicator shard_group_;
  comm::Communicator replicate_group_;
  int nodes_ = 1;
  int ranks_per_node_ = 0;
  int node_index_ = 0;
  int cores_ = 0;
};

/// Calls Communicator::run_collectively for work on files that hosts may see differently: the
/// message begins with the rank that failed and its host, "rank 1 on node07: ". A DamagedError gets
/// no such prefix, as it is about the file, whichever rank reads it.
void run_collectively_by_name(comm::Communicator& world, const std::function<void()>& work);

}  // namespace ostrakon::mesh
