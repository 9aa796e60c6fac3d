// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/checkpoint/file_layout.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <string>

namespace ostrakon::checkpoint {

/// The ranks and files that a checkpoint is divided into.
struct Division {
  int ranks = 1;
  Files files = Files::rank;
  int ranks_per_node = 1;  ///< for Files::node

  /// Throws Error if the values are invalid.
  void check() const;
};

/// Divides each array into as many parts as there are ranks, which differ by at most one element.
ShardMap divide(const CheckpointReader& checkpoint, const Division& division);

/// Writes a checkpoint anew with this division, into the new folder `out`, block by block; `out` is
/// complete or does not exist. Only files and ranks change. Returns the new manifest.
Manifest reshard(CheckpointReader& checkpoint, const std::string& out, const Division& division);

}  // namespace ostrakon::checkpoint
