// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/checkpoint/file_layout.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <string>

namespace ostrakon::checkpoint {

/// How a checkpoint is to be divided.
struct Division {
  int ranks = 1;
  Files files = Files::rank;
  int ranks_per_node = 1;  ///< for Files::node

  /// Throws Error where they make no sense.
  void check() const;
};

/// Who has what where each array is cut into as many parts as there are ranks, which differ by one
/// element at most.
ShardMap divide(const CheckpointReader& checkpoint, const Division& division);

/// Writes a checkpoint anew, divided so, into the folder `out`, which must not be there: all of it
/// or nothing, block by block. All but files and ranks stays as it was. Returns its manifest.
Manifest reshard(CheckpointReader& checkpoint, const std::string& out, const Division& division);

}  // namespace ostrakon::checkpoint
