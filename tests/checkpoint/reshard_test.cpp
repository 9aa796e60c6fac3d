// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/checkpoint/reshard.hpp>
#include <string>
#include <vector>

#include "../support/scratch_folder.hpp"
#include "small_checkpoint.hpp"

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;

using ostrakon::testing::error_of;
using ostrakon::testing::read_bytes;
using ostrakon::testing::ScratchFolder;
using ostrakon::testing::write_bytes;
using testing::holds;
using testing::SmallCheckpoint;

std::string save(const ScratchFolder& scratch, const SmallCheckpoint& small) {
  return small.save(Folder(scratch.file("checkpoints")), 12, 3);
}

TEST(Reshard, AnyRanksToAnyOthers) {
  for (const Division& division : {Division{1, Files::single, 1}, Division{4, Files::rank, 1},
                                   Division{4, Files::node, 3}, Division{5, Files::single, 1}}) {
    const ScratchFolder scratch;
    const SmallCheckpoint small(3, Files::node, true);
    CheckpointReader in(save(scratch, small));
    const std::string out = scratch.file("deep/out");
    const Manifest written = reshard(in, out, division);
    CheckpointReader back(out);
    back.verify();
    EXPECT_TRUE(holds(back, small));
    const Manifest& manifest = back.manifest();
    EXPECT_EQ(manifest.ranks, division.ranks);
    EXPECT_EQ(manifest.bytes(), written.bytes());
    const std::size_t files = division.files == Files::single ? 1
                              : division.files == Files::node ? 2
                                                              : 4;
    EXPECT_EQ(manifest.files.size(), files);
    EXPECT_EQ(manifest.progress.step, 12);
    EXPECT_EQ(manifest.sequence, 3);
    EXPECT_EQ(manifest.deck, in.manifest().deck);
    EXPECT_EQ(manifest.plan, in.manifest().plan);
    EXPECT_FALSE(fs::exists(out + ".partial"));
  }
}

TEST(Reshard, PartsAreNearlyEqual) {
  const ScratchFolder scratch;
  CheckpointReader in(save(scratch, SmallCheckpoint(2, Files::rank)));
  const ShardMap map = divide(in, {4, Files::rank, 1});
  std::vector<std::int64_t> counts;
  const int token = in.find("embedding", "token.weight");
  for (const auto& slices : map.slices)
    for (const Slice& slice : slices)
      if (slice.state == State::first_moment && slice.parameter == token)
        counts.push_back(slice.count);
  EXPECT_EQ(counts, (std::vector<std::int64_t>{13, 13, 13, 12}));
  EXPECT_EQ(map.nodes, (std::vector<int>{0, 1, 2, 3}));
}

TEST(Reshard, OneRankHasWholeArrays) {
  const ScratchFolder scratch;
  CheckpointReader in(save(scratch, SmallCheckpoint(3, Files::rank)));
  reshard(in, scratch.file("one"), {1, Files::single, 1});
  const hdf5::File file = hdf5::File::open(scratch.file("one/state.h5"), "checkpoint file");
  EXPECT_EQ(file.dataset("/parameters/block.0/attention.qkv.weight").shape(),
            (std::vector<std::int64_t>{129, 33}));
}

TEST(Reshard, KeepsColumnsInPieces) {
  for (const Division& division :
       {Division{1, Files::single, 1}, Division{4, Files::rank, 1}, Division{5, Files::node, 2}}) {
    const ScratchFolder scratch;
    SmallCheckpoint small(3, Files::node, true);
    small.set_column_pieces(1, 11);
    small.set_column_pieces(4, 7);
    CheckpointReader in(save(scratch, small));
    const std::string out = scratch.file("out");
    reshard(in, out, division);
    CheckpointReader back(out);
    back.verify();
    EXPECT_EQ(back.manifest().parameters[1].column_pieces, 11);
    EXPECT_EQ(back.manifest().parameters[4].column_pieces, 7);
    EXPECT_EQ(back.manifest().parameters[0].column_pieces, 1);
    EXPECT_TRUE(holds(back, small));
    for (const State state : testing::all_states) {
      const Slice all{state, 1, 0, small.elements(1)};
      std::string found(small.numbers(all).size(), '?');
      back.read_as_saved(all, found.data());
      EXPECT_EQ(found, small.numbers(all, 11));
    }
  }
}

/// The saved order is not that of a matrix: the array has one extent in the file.
TEST(Reshard, WholeColumnsInPiecesAreAnArrayOfOneExtent) {
  const ScratchFolder scratch;
  SmallCheckpoint small(3, Files::rank);
  small.set_column_pieces(1, 3);
  CheckpointReader in(save(scratch, small));
  reshard(in, scratch.file("one"), {1, Files::single, 1});
  const hdf5::File file = hdf5::File::open(scratch.file("one/state.h5"), "checkpoint file");
  const hdf5::Dataset array = file.dataset("/parameters/block.0/attention.qkv.weight");
  EXPECT_EQ(array.shape(), std::vector<std::int64_t>{129 * 33});
  EXPECT_EQ(array.text_attribute("shape"), "(129, 33)");
  EXPECT_EQ(array.text_attribute("column_pieces"), "3");
  std::vector<float> values(129 * 33);
  array.read(hdf5::Type::float32, values.data());
  EXPECT_EQ(testing::bytes_of_values(values, DType::fp32),
            small.numbers({State::parameters, 1, 0, 129 * 33}, 3));
}

TEST(Reshard, MoreRanksThanSomeArraysHaveElements) {
  const ScratchFolder scratch;
  const SmallCheckpoint small(2, Files::rank);
  CheckpointReader in(save(scratch, small));
  for (const Files files : {Files::rank, Files::single}) {
    const std::string out = scratch.file(files == Files::rank ? "a" : "b");
    reshard(in, out, {200, files, 1});
    CheckpointReader back(out);
    EXPECT_TRUE(holds(back, small));
  }
}

TEST(Reshard, LeavesNothingWhereItFails) {
  const ScratchFolder scratch;
  const SmallCheckpoint small(2, Files::single);
  const std::string path = save(scratch, small), out = scratch.file("out");
  fs::create_directory(out);
  write_bytes(out + "/mine", "x");
  const auto error = [&](const Division& division) {
    CheckpointReader in(path);
    return error_of([&] { reshard(in, out, division); });
  };
  EXPECT_HAS(error({1, Files::single, 1}), "is there already");
  EXPECT_EQ(read_bytes(out + "/mine"), "x");
  fs::remove_all(out);
  EXPECT_HAS(error({0, Files::single, 1}), "0 ranks; expected 1 to");
  EXPECT_HAS(error({1, Files::node, 0}), "0 ranks a node");
  EXPECT_HAS(error({1000000, Files::rank, 1}), "1000000 ranks; expected 1 to 65536");
  EXPECT_HAS(error({4258, Files::rank, 1}),
             "4258 ranks: the largest of its arrays has 4257 elements");

  const PieceEntry piece = CheckpointReader(path).manifest().files[0].pieces[0];
  std::string bytes = read_bytes(path + "/state.h5");
  char& byte = bytes[static_cast<std::size_t>(piece.offset)];
  byte = static_cast<char>(byte ^ 1);
  write_bytes(path + "/state.h5", bytes);
  EXPECT_HAS(error({3, Files::rank, 1}), "state.h5");
  EXPECT_FALSE(fs::exists(out));
  EXPECT_FALSE(fs::exists(out + ".partial"));
}

}  // namespace
}  // namespace ostrakon::checkpoint
