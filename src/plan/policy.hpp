// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon::plan {

/// What is divided over the ranks of a shard group.
enum class Sharding {
  none,  ///< nothing: every rank holds all parameters, gradients and moments (DDP)
  full   ///< parameters, gradients and optimizer state (ZeRO-3, FSDP's FULL_SHARD)
};

enum class Accumulation {
  automatic,    ///< reduce_each where parameters are sharded, else reduce_last
  reduce_each,  ///< reduce every micro-batch's gradients, sum the shards
  reduce_last   ///< sum whole gradients on the rank, reduce once
};

/// In which order a rank works through its leaves. It changes no bit of the result.
enum class LeafOrder { ascending, descending, shuffled };

enum class Reshard { automatic, always, never };

struct Policy {
  Sharding sharding = Sharding::full;
  Accumulation accumulation = Accumulation::automatic;
  LeafOrder leaf_order = LeafOrder::ascending;
  Reshard reshard_after_forward = Reshard::automatic;
  std::int64_t leaves = 1;  ///< micro-batches in the global batch
};

}  // namespace ostrakon::plan
