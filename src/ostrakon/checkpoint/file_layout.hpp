// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/base/names.hpp>
#include <ostrakon/checkpoint/shard_map.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// Tells which ranks share a file.
enum class Files { rank, node, single };
constexpr Named<Files> files_names[] = {
    {Files::rank, "rank"}, {Files::node, "node"}, {Files::single, "single"}};
constexpr const char* name(Files files) { return name_in(files_names, files); }

/// A contiguous range of a file that one rank writes.
struct Piece {
  Slice slice;
  int rank = 0;
  std::int64_t offset = 0;  ///< in the file, in bytes
  std::int64_t bytes = 0;   ///< size of the slice's elements
};

/// The layout of one file of a checkpoint: everything except the values of its arrays. It is the
/// same for every checkpoint of a run, and known before the first. A save writes `structure`, then
/// the values at the offsets of the pieces. HDF5 only creates the layout, so threads can write
/// while others use HDF5.
///
/// Arrays are in groups, `/<state>/<owner>/<parameter>`, in the parameter's shape if the file has
/// all of it. Else each run of elements that it has is an array of one dimension, with a name that
/// ends as in "attention.qkv.weight[4096:8192]", and with the whole shape in the attribute `shape`.
/// bf16 is an HDF5 floating-point type of 16 bits.
struct FileLayout {
  std::string name;        ///< "rank-00003.h5", "node-00001.h5" or "state.h5"
  int writer = 0;          ///< lowest rank of the file, which creates it and writes its structure
  std::int64_t bytes = 0;  ///< size of the file
  hdf5::FileTemplate file_template;  ///< every byte except the arrays' values
  std::vector<Piece> pieces;         ///< pieces of all ranks of the file, by offset

  /// XXH3 (64 bits) of the concatenated bytes of `structure`.
  std::uint64_t structure_checksum() const;
};

/// Returns, for each rank, the index of the file that it writes to.
std::vector<int> file_of_ranks(const ShardMap& map, Files files);

/// Returns the layout of the file that `rank` writes to. Throws Error if HDF5 fails.
FileLayout lay_out(const ShardMap& map, Files files, int rank);

}  // namespace ostrakon::checkpoint
