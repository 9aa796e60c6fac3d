// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/checkpoint/file_layout.hpp>
#include <random>
#include <stdexcept>

#include "../support/scratch_folder.hpp"

namespace ostrakon::checkpoint {
namespace {

using testing::ScratchFolder;

/// Returns parameters and moments of `ranks` ranks, two per node, divided at random positions; the
/// order of a rank's slices differs from that in files.
ShardMap random_map(int ranks, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  ShardMap map;
  map.parameters = {{"embedding", "weight", {50, 8}, "embedding", true},
                    {"block.0", "qkv.weight", {24, 8}, "block.0", false},
                    {"block.0", "bias", {1}, "block.0", false},
                    {"block.1", "qkv.weight", {300, 200}, "block.1", false}};
  map.dtypes = {DType::bf16, DType::fp32, DType::bf16};
  map.slices.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) map.nodes.push_back(100 - rank / 2);
  for (int state = 0; state < states; ++state)
    for (int parameter = 0; parameter < static_cast<int>(map.parameters.size()); ++parameter) {
      const ParameterEntry& entry = map.parameters[static_cast<std::size_t>(parameter)];
      if (entry.frozen && state > 0) continue;
      const std::int64_t elements = entry.elements();
      std::vector<std::int64_t> cuts = {0, elements};
      for (int i = 1; i < ranks; ++i)
        cuts.push_back(
            static_cast<std::int64_t>(random() % (static_cast<std::size_t>(elements) + 1)));
      std::sort(cuts.begin(), cuts.end());
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
        map.slices[random() % map.slices.size()].push_back(
            {static_cast<State>(state), parameter, cuts[i], cuts[i + 1] - cuts[i]});
    }
  for (auto& slices : map.slices) std::shuffle(slices.begin(), slices.end(), random);
  return map;
}

/// Returns the value of an element; values are distinct as far as bf16 allows.
float value_of(const Slice& slice, std::int64_t i) {
  return static_cast<float>(
      (static_cast<int>(slice.state) * 31 + slice.parameter * 7 + slice.first + i) % 256);
}

std::string values_of(const ShardMap& map, const Slice& slice) {
  std::string bytes;
  const std::int64_t size = bytes_of(map.dtypes[static_cast<std::size_t>(slice.state)]);
  for (std::int64_t i = 0; i < slice.count; ++i) {
    const float value = value_of(slice, i);  // its upper half is the bf16
    bytes.append(reinterpret_cast<const char*>(&value) + 4 - size, static_cast<std::size_t>(size));
  }
  return bytes;
}

/// Checks that structure and pieces cover each byte of a file exactly once.
void expect_tiled(const ShardMap& map, const FileLayout& file) {
  std::vector<std::pair<std::int64_t, std::int64_t>> parts;
  for (const hdf5::FileTemplate::Extent& extent : file.file_template.structure)
    parts.emplace_back(extent.offset, static_cast<std::int64_t>(extent.bytes.size()));
  for (const Piece& piece : file.pieces) parts.emplace_back(piece.offset, map.bytes(piece.slice));
  std::sort(parts.begin(), parts.end());
  std::int64_t at = 0;
  for (const auto& [begin, bytes] : parts) {
    ASSERT_EQ(begin, at);
    at += bytes;
  }
  EXPECT_EQ(at, file.bytes);
  EXPECT_TRUE(std::is_sorted(file.pieces.begin(), file.pieces.end(),
                             [](const Piece& a, const Piece& b) { return a.offset < b.offset; }));
}

/// Writes a file by its layout and reads the arrays with HDF5; returns the number of values found.
std::int64_t values_read_back(const ShardMap& map, const FileLayout& layout) {
  const ScratchFolder folder;
  const std::string path = folder.file(layout.name);
  {
    PlainFile file(path, PlainFile::Mode::create);
    for (const auto& extent : layout.file_template.structure)
      file.write(extent.offset, static_cast<std::int64_t>(extent.bytes.size()),
                 extent.bytes.data());
    for (const Piece& piece : layout.pieces)
      file.write(piece.offset, map.bytes(piece.slice), values_of(map, piece.slice).data());
    EXPECT_EQ(file.size(), layout.bytes);
  }
  const hdf5::File file = hdf5::File::open(path, "shard");
  EXPECT_EQ(file.root().text_attribute("format"), "ostrakon-checkpoint-shard");
  EXPECT_EQ(file.root().text_attribute("version"), "1");
  EXPECT_HAS(file.root().text_attribute("about"), "manifest.json");

  std::int64_t found = 0;
  for (int state = 0; state < states; ++state)
    for (int p = 0; p < static_cast<int>(map.parameters.size()); ++p) {
      const ParameterEntry& entry = map.parameters[static_cast<std::size_t>(p)];
      const std::string group =
          std::string("/") + name(static_cast<State>(state)) + "/" + entry.owner;
      for (const std::string& array : file.datasets(group)) {
        if (array.compare(0, entry.name.size(), entry.name) != 0) continue;
        const hdf5::Dataset dataset = file.dataset(group + "/" + array);
        Slice slice{static_cast<State>(state), p, 0, entry.elements()};
        if (array == entry.name) {
          EXPECT_EQ(dataset.shape(), entry.shape);
        } else {
          long long first = -1, end = -1;
          EXPECT_EQ(std::sscanf(array.c_str() + entry.name.size(), "[%lld:%lld]", &first, &end), 2);
          EXPECT_EQ(dataset.shape(), std::vector<std::int64_t>{end - first});
          EXPECT_EQ(dataset.text_attribute("shape"), hdf5::shape_text(entry.shape));
          slice.first = first;
          slice.count = end - first;
        }
        std::vector<float> values(static_cast<std::size_t>(slice.count));
        dataset.read(hdf5::Type::float32, values.data());
        for (std::int64_t i = 0; i < slice.count; ++i)
          EXPECT_EQ(values[static_cast<std::size_t>(i)], value_of(slice, i));
        found += slice.count;
      }
    }
  return found;
}

TEST(FileLayout, TilesItsFileAndHoldsEachElementOnce) {
  for (const int ranks : {1, 2, 5})
    for (const Files files : {Files::rank, Files::node, Files::single}) {
      const ShardMap map = random_map(ranks, static_cast<std::uint64_t>(ranks));
      const std::vector<int> file_of = file_of_ranks(map, files);
      std::int64_t elements = 0, expected = 0;
      for (int rank = 0; rank < ranks; ++rank)
        for (const Slice& slice : map.slices[static_cast<std::size_t>(rank)])
          expected += slice.count;
      for (int rank = 0; rank < ranks; ++rank) {
        const FileLayout file = lay_out(map, files, rank);
        expect_tiled(map, file);
        EXPECT_EQ(file_of[static_cast<std::size_t>(file.writer)],
                  file_of[static_cast<std::size_t>(rank)]);
        std::int64_t own = 0;
        for (const Piece& piece : file.pieces)
          if (piece.rank == rank) own += map.bytes(piece.slice);
        EXPECT_EQ(own, map.bytes(rank));
        if (file.writer == rank) elements += values_read_back(map, file);
      }
      EXPECT_EQ(elements, expected);
    }
}

TEST(FileLayout, RanksOfAFileAgree) {
  const ShardMap map = random_map(4, 3);
  const FileLayout one = lay_out(map, Files::node, 2), other = lay_out(map, Files::node, 3);
  EXPECT_EQ(one.name, "node-00001.h5");
  EXPECT_EQ(other.name, one.name);
  EXPECT_EQ(one.writer, 2);
  EXPECT_EQ(other.writer, 2);
  EXPECT_EQ(one.bytes, other.bytes);
  EXPECT_EQ(one.structure_checksum(), other.structure_checksum());
  EXPECT_NE(one.structure_checksum(), lay_out(map, Files::node, 0).structure_checksum());
  EXPECT_EQ(lay_out(map, Files::rank, 3).name, "rank-00003.h5");
  EXPECT_EQ(lay_out(map, Files::single, 3).name, "state.h5");
}

TEST(FileLayout, FilesOfRanks) {
  ShardMap map;
  map.slices.resize(5);
  map.nodes = {9, 4, 9, 4, 0};
  EXPECT_EQ(file_of_ranks(map, Files::rank), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(file_of_ranks(map, Files::node), (std::vector<int>{0, 1, 0, 1, 2}));
  EXPECT_EQ(file_of_ranks(map, Files::single), (std::vector<int>{0, 0, 0, 0, 0}));
  EXPECT_TRUE(lay_out(map, Files::rank, 4).pieces.empty());  // a rank may have no pieces
}

TEST(FileLayout, JoinsSlicesOfRanks) {
  ShardMap map;
  map.parameters = {{"a", "b", {10}, "u", false}};
  map.nodes = {0, 0};
  map.slices = {{{State::parameters, 0, 0, 2}, {State::parameters, 0, 5, 2}},
                {{State::parameters, 0, 2, 3}}};
  const FileLayout file = lay_out(map, Files::single, 0);
  ASSERT_EQ(file.pieces.size(), 3u);
  EXPECT_EQ(file.file_template.offsets.size(), 1u);
  EXPECT_EQ(file.pieces[1].rank, 1);
  EXPECT_EQ(file.pieces[1].offset, file.pieces[0].offset + 8);
  EXPECT_EQ(file.pieces[2].offset, file.pieces[0].offset + 20);
}

TEST(FileLayout, RefusesSlicesThatOverlap) {
  ShardMap map;
  map.parameters = {{"a", "b", {10}, "u", false}};
  map.nodes = {0, 0};
  map.slices = {{{State::parameters, 0, 0, 5}}, {{State::parameters, 0, 4, 6}}};
  EXPECT_THROW(lay_out(map, Files::single, 0), std::logic_error);
  EXPECT_NO_THROW(lay_out(map, Files::rank, 0));
  map.slices[1] = {{State::parameters, 0, 5, 6}};
  EXPECT_THROW(lay_out(map, Files::single, 0), std::logic_error);
}

TEST(ShardMap, CountsBytes) {
  const ShardMap map = random_map(3, 4);
  std::int64_t bytes = 0;
  for (int rank = 0; rank < 3; ++rank) bytes += map.bytes(rank);
  const std::int64_t frozen = 400, others = 24 * 8 + 1 + 300 * 200;
  EXPECT_EQ(bytes, 2 * (frozen + others) + 4 * others + 2 * others + 4 * others);
}

}  // namespace
}  // namespace ostrakon::checkpoint
