// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/checkpoint/shard_writer.hpp>

#include "../support/scratch_folder.hpp"
#include "small_checkpoint.hpp"

namespace ostrakon::checkpoint {
namespace {

using ostrakon::testing::error_of;
using ostrakon::testing::read_bytes;
using ostrakon::testing::ScratchFolder;
using testing::SmallCheckpoint;

std::uint64_t checksum_of(const std::string& bytes) {
  hdf5::Checksum sum;
  sum.add(bytes.data(), static_cast<std::int64_t>(bytes.size()));
  return sum.value();
}

/// Returns the file for a layout and its values, made without the writer.
std::string expected_file(const SmallCheckpoint& small, const FileLayout& layout) {
  std::string file(static_cast<std::size_t>(layout.bytes), '\0');
  const auto put = [&](std::int64_t offset, const std::string& bytes) {
    file.replace(static_cast<std::size_t>(offset), bytes.size(), bytes);
  };
  for (const hdf5::FileTemplate::Extent& extent : layout.file_template.structure) {
    put(extent.offset, extent.bytes);
  }
  for (const Piece& piece : layout.pieces) put(piece.offset, small.numbers(piece.slice));
  return file;
}

TEST(ShardWriter, WritesStructureAndNumbersOnceInAnyOrderOfRanks) {
  for (const bool large : {false, true}) {
    for (const Files files : {Files::rank, Files::node, Files::single}) {
      const ScratchFolder folder;
      const SmallCheckpoint small(3, files, large);
      small.write_files(folder.file(""), 1, 1);
      for (int rank = 0; rank < small.ranks(); ++rank) {
        const FileLayout layout = lay_out(small.map(), files, rank);
        EXPECT_TRUE(read_bytes(folder.file(layout.name)) == expected_file(small, layout))
            << layout.name;
      }
    }
  }
}

TEST(ShardWriter, ReturnsWhatTheRankWrote) {
  const ScratchFolder folder;
  const SmallCheckpoint small(2, Files::single, true);
  const FileLayout layout = lay_out(small.map(), Files::single, 1);
  const FileEntry entry = small.write_rank(folder.file(""), layout, 1);
  EXPECT_EQ(entry.name, layout.name);
  EXPECT_EQ(entry.bytes, layout.bytes);
  EXPECT_EQ(entry.structure, 0u) << "that is for the rank which makes the file to say";
  EXPECT_EQ(small.write_rank(folder.file(""), lay_out(small.map(), Files::single, 0), 0).structure,
            layout.structure_checksum());
  ASSERT_EQ(entry.pieces.size(), small.map().slices[1].size());
  std::size_t blocks = 0;
  for (const PieceEntry& piece : entry.pieces) {
    EXPECT_EQ(piece.rank, 1);
    const std::string bytes = small.numbers(piece.slice);
    const auto size = static_cast<std::int64_t>(bytes.size());
    ASSERT_EQ(static_cast<std::int64_t>(piece.checksums.size()),
              (size + block_bytes - 1) / block_bytes);
    for (std::size_t block = 0; block < piece.checksums.size(); ++block) {
      const auto step = static_cast<std::size_t>(block_bytes);
      EXPECT_EQ(piece.checksums[block], checksum_of(bytes.substr(block * step, step)));
    }
    blocks = std::max(blocks, piece.checksums.size());
  }
  EXPECT_GT(blocks, 1u);
}

/// Writes one rank's file, and damages the first block while the writer is running.
FileEntry write_and_damage(const ScratchFolder& folder, bool verify) {
  const SmallCheckpoint small(1, Files::rank, true);
  const FileLayout layout = lay_out(small.map(), Files::rank, 0);
  const std::string path = folder.file(layout.name);
  std::string block;
  const Values values = [&](std::size_t piece, std::int64_t first, std::int64_t bytes) {
    if (first >= block_bytes) {  // the piece's first block is in the file
      PlainFile(path, PlainFile::Mode::write).write(layout.pieces[piece].offset + 5, 1, "!");
    }
    block = small.numbers(layout.pieces[piece].slice)
                .substr(static_cast<std::size_t>(first), static_cast<std::size_t>(bytes));
    return static_cast<const void*>(block.data());
  };
  WriteOptions options;
  options.verify = verify;
  return write_shard(folder.file(""), layout, 0, values, options);
}

TEST(ShardWriter, VerifyFindsWhatIsNotAsWritten) {
  const ScratchFolder folder;
  EXPECT_EQ(error_of([&] { write_and_damage(folder, false); }), "no error");
  const std::string error = error_of([&] { write_and_damage(folder, true); });
  EXPECT_HAS(error, "rank-00000.h5");
  EXPECT_HAS(error, "were read back");

  const SmallCheckpoint small(2, Files::single, true);
  WriteOptions options;
  options.verify = true;
  for (int rank = 1; rank >= 0; --rank) {
    EXPECT_EQ(error_of([&] {
                small.write_rank(folder.file(""), lay_out(small.map(), Files::single, rank), rank,
                                 options);
              }),
              "no error");
  }
}

TEST(ShardWriter, KeepsToABandwidth) {
  const ScratchFolder folder;
  const SmallCheckpoint small(1, Files::rank, true);
  const FileLayout layout = lay_out(small.map(), Files::rank, 0);
  const double seconds = 1.0;
  WriteOptions options;
  options.bytes_per_second = static_cast<double>(layout.bytes) / seconds;
  const auto begin = std::chrono::steady_clock::now();
  small.write_rank(folder.file(""), layout, 0, options);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(taken.count(), 0.95 * seconds);
  EXPECT_LE(taken.count(), 60.0 * seconds);
}

TEST(ShardWriter, FailuresNameTheFile) {
  const ScratchFolder folder;
  const SmallCheckpoint small(1, Files::rank);
  const std::string error = error_of(
      [&] { small.write_rank(folder.file("none"), lay_out(small.map(), Files::rank, 0), 0); });
  EXPECT_HAS(error, "none/rank-00000.h5");
}

}  // namespace
}  // namespace ostrakon::checkpoint
