// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/comm/communicator.hpp>
#include <string>
#include <vector>

namespace ostrakon::mesh {

/// Shard groups by name; any other number is that of their ranks.
constexpr int world_group = 0;
constexpr int node_group = -1;

/// Throws Error where one of the nodes of that many consecutive ranks has ranks on several hosts:
/// what counts as traffic inside a node would cross the network. `hosts`: of each rank, a text that
/// is the same for ranks that share memory, "<any number> <name>".
void require_nodes_within_hosts(const std::vector<std::string>& hosts, int ranks_per_node);

/// Ranks of every node where all have equally many and each has neighbours, in the order of the
/// nodes; else 0. `node_of_rank`: of each rank, counted from 0; not empty.
int regular_ranks_per_node(const std::vector<std::int64_t>& node_of_rank);

/// Knows which ranks share what. All groups are made in the constructor, in the same order on all
/// ranks.
class Mesh {
 public:
  /// Collective over `parent`. Nodes are the ranks that share memory; ranks_per_node > 0 pretends
  /// nodes of that many consecutive ranks of one host instead. Throws AgreedError where it does not
  /// divide the ranks, or a node would have ranks on two hosts.
  /// Stages of a pipeline: as many runs of neighbours; AgreedError where they do not divide the
  /// ranks. Shard groups: all ranks of a stage, those of a node, or that many neighbours;
  /// AgreedError where they are not all of one size.
  explicit Mesh(MPI_Comm parent, int ranks_per_node = 0, int shard_group = world_group,
                int stages = 1);

  comm::Communicator& world() { return world_; }
  /// The ranks of this rank's node.
  comm::Communicator& node() { return node_; }
  /// The ranks that share this rank's memory, whatever nodes are pretended.
  comm::Communicator& host() { return host_; }
  /// The ranks of this rank's stage.
  comm::Communicator& stage() { return stage_; }
  /// The ranks, one of each stage, that have the same place in theirs; in the order of the stages.
  comm::Communicator& pipeline() { return pipeline_; }
  /// The ranks that share one copy of the parameters of their stage.
  comm::Communicator& shard_group() { return shard_group_; }
  /// The ranks, one of each shard group of the stage, that hold the same shard; in the order of
  /// their groups.
  comm::Communicator& replicate_group() { return replicate_group_; }

  int nodes() const { return nodes_; }
  /// How many ranks each node has, as regular_ranks_per_node counts them.
  int ranks_per_node() const { return ranks_per_node_; }
  int node_index() const { return node_index_; }

  /// Cores that every rank has for threads of its own, the same number on every rank: the least
  /// over all ranks of the cores that it may run on, and of those that any rank of its host may run
  /// on divided by the ranks there. 0 where ranks outnumber cores, or the system doesn't say.
  int cores() const { return cores_; }

  /// Rank -> host -> node -> cores this rank may run on -> device, a line for each rank, runs of
  /// like ranks folded when there are more than 16. Collective; the text is the same on every rank.
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

}  // namespace ostrakon::mesh
