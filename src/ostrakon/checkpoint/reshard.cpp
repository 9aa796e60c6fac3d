// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/reshard.hpp>

#include <algorithm>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/checkpoint/new_folder.hpp>
#include <ostrakon/checkpoint/shard_writer.hpp>
#include <vector>

namespace ostrakon::checkpoint {
namespace {

/// Limit above the size of jobs; with one file per rank, file systems still handle so many in a
/// folder.
constexpr int most_ranks = 1 << 16;
/// Limit of entries in the manifest, about 100 bytes each, which can be written and read in a
/// minute.
constexpr std::size_t most_pieces = 5'000'000;

/// Returns the number of elements of the largest array.
std::int64_t largest(const std::vector<ParameterEntry>& parameters) {
  std::int64_t most = 0;
  for (const ParameterEntry& one : parameters) most = std::max(most, one.elements());
  return most;
}

/// Returns the part of `rank` when `elements` elements are divided over `ranks`.
Slice part_of(State state, int parameter, std::int64_t elements, int rank, int ranks) {
  const std::int64_t each = elements / ranks, more = elements % ranks;
  const std::int64_t first = each * rank + std::min<std::int64_t>(more, rank);
  return {state, parameter, first, each + (rank < more ? 1 : 0)};
}

/// Writes one file with the pieces of all its ranks.
FileEntry write_file(CheckpointReader& in, const std::string& folder, const FileLayout& layout) {
  FileLayout of_one = layout;
  for (Piece& piece : of_one.pieces) piece.rank = layout.writer;
  std::vector<char> block(static_cast<std::size_t>(block_bytes));
  const auto values = [&](std::size_t piece, std::int64_t first, std::int64_t bytes) {
    const Slice& slice = layout.pieces[piece].slice;
    const std::int64_t width = bytes_of(in.manifest().dtypes[static_cast<int>(slice.state)]);
    in.read_as_saved({slice.state, slice.parameter, slice.first + first / width, bytes / width},
                     block.data());
    return block.data();
  };
  FileEntry file = write_shard(folder, of_one, layout.writer, values, {});
  for (std::size_t i = 0; i < file.pieces.size(); ++i) file.pieces[i].rank = layout.pieces[i].rank;
  return file;
}

/// Returns the lowest rank of each file.
std::vector<int> writers(const ShardMap& map, Files files) {
  const std::vector<int> file_of = file_of_ranks(map, files);
  std::map<int, int> lowest;
  for (int rank = 0; rank < map.ranks(); ++rank) lowest.emplace(file_of[rank], rank);
  std::vector<int> ranks;
  ranks.reserve(lowest.size());
  for (const auto& file : lowest) ranks.push_back(file.second);
  return ranks;
}

void require_room(const std::string& folder, std::int64_t bytes) {
  const std::int64_t free = free_bytes(folder);
  require(bytes <= free, "no space for '", folder, "': the data alone takes ", format_bytes(bytes),
          ", ", format_bytes(free), " are free");
}

}  // namespace

void Division::check() const {
  require(ranks >= 1 && ranks <= most_ranks, "can't divide a checkpoint over ", ranks,
          " ranks; expected 1 to ", most_ranks);
  require(ranks_per_node >= 1, ranks_per_node, " ranks a node; expected at least 1");
}

ShardMap divide(const CheckpointReader& checkpoint, const Division& division) {
  division.check();
  ShardMap map;
  map.parameters = checkpoint.manifest().parameters;
  map.dtypes = checkpoint.manifest().dtypes;
  require(division.ranks <= largest(map.parameters), "can't divide a checkpoint over ",
          division.ranks, " ranks: the largest of its arrays has ", largest(map.parameters),
          " elements, and more ranks than that would hold nothing");
  map.slices.resize(static_cast<std::size_t>(division.ranks));
  std::size_t pieces = 0;
  for (int rank = 0; rank < division.ranks; ++rank) {
    map.nodes.push_back(rank / division.ranks_per_node);
    for (const State state : all_states)
      for (std::size_t i = 0; i < map.parameters.size(); ++i) {
        const auto parameter = static_cast<int>(i);
        if (!checkpoint.has(state, parameter)) continue;
        const Slice slice =
            part_of(state, parameter, map.parameters[i].elements(), rank, division.ranks);
        if (slice.count > 0) map.slices[rank].push_back(slice);
      }
    pieces += map.slices[static_cast<std::size_t>(rank)].size();
    require(pieces <= most_pieces, "can't divide a checkpoint over ", division.ranks,
            " ranks: its arrays would be in more than ", most_pieces,
            " pieces; expected fewer ranks");
  }
  return map;
}

Manifest reshard(CheckpointReader& checkpoint, const std::string& out, const Division& division) {
  const ShardMap map = divide(checkpoint, division);
  NewFolder folder(out);
  std::int64_t bytes = 0;
  for (int rank = 0; rank < map.ranks(); ++rank) bytes += map.bytes(rank);
  require_room(folder.partial(), bytes);
  Manifest manifest = checkpoint.manifest();
  manifest.ranks = division.ranks;
  manifest.files.clear();
  for (const int writer : writers(map, division.files))
    manifest.files.push_back(
        write_file(checkpoint, folder.partial(), lay_out(map, division.files, writer)));
  write_text_file(manifest_path(folder.partial()), "manifest", write_manifest(manifest));
  folder.commit();
  return manifest;
}

}  // namespace ostrakon::checkpoint
