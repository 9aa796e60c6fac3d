// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/file_layout.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <ostrakon/base/error.hpp>
#include <stdexcept>
#include <tuple>

namespace ostrakon::checkpoint {
namespace {

/// A slice and the rank that holds it.
struct Part {
  Slice slice;
  int rank = 0;
};

/// Consecutive slices of one array: parts [begin, end) of a file.
struct Run {
  Slice slice;
  std::size_t begin = 0, end = 0;
};

std::string file_name(Files files, int file) {
  if (files == Files::single) return "state.h5";
  char digits[16];
  std::snprintf(digits, sizeof digits, "%05d", file);
  return text(files == Files::rank ? "rank-" : "node-", digits, ".h5");
}

bool same_array(const Slice& a, const Slice& b) {
  return a.state == b.state && a.parameter == b.parameter;
}

const ParameterEntry& parameter_of(const ShardMap& map, const Slice& slice) {
  return map.parameters.at(static_cast<std::size_t>(slice.parameter));
}

/// Returns a name such as "first_moment/block.3/attention.qkv.weight[10:20]".
std::string array_name(const ShardMap& map, const Slice& slice) {
  const ParameterEntry& parameter = parameter_of(map, slice);
  const std::string whole = text("/", name(slice.state), "/", parameter.path());
  if (slice.count == parameter.elements()) return whole;
  return text(whole, "[", slice.first, ":", slice.first + slice.count, "]");
}

/// Returns the slices of a file's ranks, sorted by array, then by first element.
std::vector<Part> parts_of(const ShardMap& map, const std::vector<int>& file_of, int file) {
  std::vector<Part> parts;
  for (int rank = 0; rank < map.ranks(); ++rank) {
    if (file_of[static_cast<std::size_t>(rank)] != file) continue;
    for (const Slice& slice : map.slices[static_cast<std::size_t>(rank)])
      if (slice.count > 0) parts.push_back({slice, rank});
  }
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::tie(a.slice.state, a.slice.parameter, a.slice.first) <
           std::tie(b.slice.state, b.slice.parameter, b.slice.first);
  });
  return parts;
}

std::vector<Run> runs_of(const ShardMap& map, const std::vector<Part>& parts) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Slice& slice = parts[i].slice;
    const std::int64_t elements = parameter_of(map, slice).elements();
    if (slice.first < 0 || slice.count > elements - slice.first)
      throw std::logic_error(text("rank ", parts[i].rank, " has ", array_name(map, slice),
                                  ", which has ", elements, " elements"));
    const bool follows = !runs.empty() && same_array(runs.back().slice, slice);
    const std::int64_t end = follows ? runs.back().slice.first + runs.back().slice.count : 0;
    if (follows && slice.first < end)
      throw std::logic_error(text("ranks ", parts[i - 1].rank, " and ", parts[i].rank,
                                  " both have elements of ", array_name(map, slice)));
    if (follows && slice.first == end) {
      runs.back().slice.count += slice.count;
      runs.back().end = i + 1;
    } else {
      runs.push_back({slice, i, i + 1});
    }
  }
  return runs;
}

hdf5::Type stored_type(DType dtype) {
  if (dtype == DType::fp16) throw std::logic_error("no state is kept in fp16");
  return dtype == DType::fp32 ? hdf5::Type::float32 : hdf5::Type::bfloat16;
}

hdf5::ArrayShape array_of(const ShardMap& map, const Slice& slice) {
  const ParameterEntry& parameter = parameter_of(map, slice);
  hdf5::ArrayShape array;
  array.name = array_name(map, slice);
  array.type = stored_type(map.dtypes[static_cast<std::size_t>(slice.state)]);
  if (slice.count == parameter.elements() && parameter.column_pieces == 1) {
    array.shape = parameter.shape;
  } else {
    array.shape = {slice.count};
    array.attributes = {{"shape", hdf5::shape_text(parameter.shape)}};
    if (parameter.column_pieces > 1)
      array.attributes.push_back({"column_pieces", std::to_string(parameter.column_pieces)});
  }
  return array;
}

}  // namespace

std::uint64_t FileLayout::structure_checksum() const {
  hdf5::Checksum sum;
  for (const hdf5::FileTemplate::Extent& extent : file_template.structure)
    sum.add(extent.bytes.data(), static_cast<std::int64_t>(extent.bytes.size()));
  return sum.value();
}

std::vector<int> file_of_ranks(const ShardMap& map, Files files) {
  std::vector<int> file_of(static_cast<std::size_t>(map.ranks()), 0);
  std::map<int, int> file_of_node;  // nodes ordered by their lowest ranks
  for (std::size_t rank = 0; rank < file_of.size(); ++rank) {
    if (files == Files::rank) file_of[rank] = static_cast<int>(rank);
    if (files == Files::node)
      file_of[rank] =
          file_of_node.emplace(map.nodes.at(rank), static_cast<int>(file_of_node.size()))
              .first->second;
  }
  return file_of;
}

FileLayout lay_out(const ShardMap& map, Files files, int rank) {
  const std::vector<int> file_of = file_of_ranks(map, files);
  const int index = file_of.at(static_cast<std::size_t>(rank));
  const std::vector<Part> parts = parts_of(map, file_of, index);
  const std::vector<Run> runs = runs_of(map, parts);

  std::vector<hdf5::ArrayShape> arrays;
  arrays.reserve(runs.size());
  for (const Run& run : runs) arrays.push_back(array_of(map, run.slice));

  FileLayout file;
  file.name = file_name(files, index);
  file.writer =
      static_cast<int>(std::find(file_of.begin(), file_of.end(), index) - file_of.begin());
  file.file_template = hdf5::make_template(
      {{"format", "ostrakon-checkpoint-shard"},
       {"version", "1"},
       {"about",
        "A part of a checkpoint: manifest.json beside it has the checksums and the rest."}},
      arrays);
  file.bytes = file.file_template.bytes;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const Run& run = runs[r];
    const std::int64_t element_bytes =
        bytes_of(map.dtypes[static_cast<std::size_t>(run.slice.state)]);
    for (std::size_t i = run.begin; i < run.end; ++i)
      file.pieces.push_back(
          {parts[i].slice, parts[i].rank,
           file.file_template.offsets[r] + (parts[i].slice.first - run.slice.first) * element_bytes,
           parts[i].slice.count * element_bytes});
  }
  std::sort(file.pieces.begin(), file.pieces.end(),
            [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  return file;
}

}  // namespace ostrakon::checkpoint
