// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/hdf5.hpp>
#include <ostrakon/base/names.hpp>
#include <ostrakon/checkpoint/shard_map.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// Says which ranks write one file together.
enum class Files { rank, node, single };
constexpr Named<Files> files_names[] = {
    {Files::rank, "rank"}, {Files::node, "node"}, {Files::single, "single"}};
constexpr const char* name(Files files) { return name_in(files_names, files); }

/// What one rank writes into a file, in one piece.
struct Piece {
  Slice slice;
  int rank = 0;
  std::int64_t offset = 0;  ///< in the file, in bytes
  std::int64_t bytes = 0;   ///< of the slice's elements
};

/// One file of a checkpoint, but for its arrays' values: the same for every checkpoint of a run,
/// and known before the first. A save writes `structure` and then values where the pieces say; HDF5
/// is only asked for the layout, so that threads can write while others use HDF5.
///
/// Arrays are in groups, `/<state>/<owner>/<parameter>` in the parameter's shape where the file has
/// all of it. Else each run of elements that it has is an array of one dimension, whose name ends
/// as in "attention.qkv.weight[4096:8192]" and which carries the whole shape as the attribute
/// `shape`. bf16 is an HDF5 floating-point type of 16 bits.
struct FileLayout {
  std::string name;        ///< "rank-00003.h5", "node-00001.h5" or "state.h5"
  int writer = 0;          ///< the rank that makes the file and writes its structure: its lowest
  std::int64_t bytes = 0;  ///< of the file
  hdf5::FileTemplate file_template;  ///< its structure: every byte but the arrays' values
  std::vector<Piece> pieces;         ///< of all its ranks, in the order of their offsets

  /// XXH3 (64 bits) of `structure`'s bytes, one after the other.
  std::uint64_t structure_checksum() const;
};

/// Index of the file that each rank writes to.
std::vector<int> file_of_ranks(const ShardMap& map, Files files);

/// The file that `rank` writes to. Throws Error where HDF5 fails.
FileLayout lay_out(const ShardMap& map, Files files, int rank);

}  // namespace ostrakon::checkpoint
