// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon::plan {

/// What is divided over the ranks of a shard group.
enum class Sharding {
  none,       ///< nothing: every rank holds all parameters, gradients and moments (DDP)
  optimizer,  ///< optimizer state (ZeRO-1)
  gradients,  ///< gradients and optimizer state (ZeRO-2)
  full        ///< parameters, gradients and optimizer state (ZeRO-3, FSDP's FULL_SHARD)
};

/// Over which ranks optimizer state is divided, where it is.
enum class OptimizerGroup {
  shard_group,  ///< as everything else: replicas hold the same
  world         ///< over the replicas too, which then exchange updated parameters
};

enum class Accumulation {
  automatic,    ///< where gradients are sharded shard_each, else reduce_last
  reduce_each,  ///< reduce every micro-batch's gradients over all ranks, sum the shards
  shard_each,   ///< reduce every micro-batch's over the shard group, over the replicas once
  reduce_last   ///< sum whole gradients on the rank, reduce once
};

/// In which order a rank works through its leaves. It changes no bit of the result.
enum class LeafOrder { ascending, descending, shuffled };

enum class Reshard { automatic, always, never };

struct Policy {
  Sharding sharding = Sharding::full;
  int shard_group = 0;  ///< ranks that share one copy, neighbours; 0: all. Divides the ranks
  OptimizerGroup shard_optimizer_over = OptimizerGroup::shard_group;
  Accumulation accumulation = Accumulation::automatic;
  LeafOrder leaf_order = LeafOrder::ascending;
  Reshard reshard_after_forward = Reshard::automatic;
  std::int64_t leaves = 1;  ///< micro-batches in the global batch
};

}  // namespace ostrakon::plan
