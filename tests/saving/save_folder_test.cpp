// SPDX-License-Identifier: Apache-2.0

// What rank 0 does of a save, without ranks and without a trainer.

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/file_layout.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/saving/save_folder.hpp>
#include <string>
#include <vector>

#include "checkpoint/small_checkpoint.hpp"
#include "support/scratch_folder.hpp"

namespace ostrakon::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::Files;
using checkpoint::testing::SmallCheckpoint;
using testing::error_of;

class SaveFolderTest : public ::testing::Test {
 protected:
  /// What two ranks write into one file, as text.
  std::vector<std::string> write(const std::string& partial) const {
    std::vector<std::string> entries;
    for (int rank = 0; rank < 2; ++rank)
      entries.push_back(checkpoint::write_file_entry(small_.write_rank(
          partial, checkpoint::lay_out(small_.map(), Files::single, rank), rank)));
    return entries;
  }
  /// Without files.
  checkpoint::Manifest manifest(std::int64_t step) const {
    checkpoint::Manifest manifest;
    manifest.sequence = 7;
    manifest.progress.step = step;
    manifest.ranks = 2;
    manifest.optimizer = "adamw";
    manifest.parameters = small_.map().parameters;
    manifest.dtypes = small_.map().dtypes;
    return manifest;
  }

  testing::ScratchFolder scratch_;
  SmallCheckpoint small_{2, Files::single};
  SaveFolder folder_{scratch_.file("checkpoints"), 2, 0};
};

TEST_F(SaveFolderTest, CompletesWhatRanksHaveWritten) {
  EXPECT_EQ(folder_.last_sequence(), 0);
  for (const bool again : {false, true}) {
    const std::vector<std::string> entries = write(folder_.begin(12, 1000));
    const SaveFolder::Committed saved = folder_.commit(manifest(12), entries);
    EXPECT_EQ(saved.path, scratch_.file("checkpoints/step-00000012"));
    EXPECT_EQ(saved.remark.find("an earlier checkpoint of step 12 is in ") == 0, again)
        << saved.remark;
    checkpoint::CheckpointReader reader(saved.path);
    EXPECT_TRUE(checkpoint::testing::holds(reader, small_));
    EXPECT_EQ(reader.manifest().files.size(), 1u);
  }
  EXPECT_EQ(folder_.last_sequence(), 7);
}

TEST_F(SaveFolderTest, KeepsNoMoreWhereLatestIsInTheWay) {
  fs::create_directories(scratch_.file("checkpoints/latest/mine"));
  for (const std::int64_t step : {1, 2, 3, 4}) {
    checkpoint::Manifest one = manifest(step);
    one.sequence = step;
    const std::string remark = folder_.commit(one, write(folder_.begin(step, 1000))).remark;
    EXPECT_EQ(remark, step > 1 ? ""
                               : "what had the name latest is in " +
                                     scratch_.file("checkpoints/latest.previous") + " now");
  }
  EXPECT_EQ(folder_.folder().names().size(), 2u);
  EXPECT_EQ(fs::read_symlink(scratch_.file("checkpoints/latest")), "step-00000004");
  EXPECT_TRUE(fs::is_directory(scratch_.file("checkpoints/latest.previous/mine")));
}

TEST_F(SaveFolderTest, ChangesNothingThatTheGuardRefuses) {
  bool taken = true;
  folder_.guard([&] { require(!taken, "was taken"); });
  EXPECT_EQ(error_of([&] { folder_.begin(12, 1000); }), "was taken");
  EXPECT_FALSE(fs::exists(scratch_.file("checkpoints")));
  taken = false;
  const std::string partial = folder_.begin(12, 1000);
  const std::vector<std::string> entries = write(partial);
  taken = true;
  EXPECT_EQ(error_of([&] { folder_.commit(manifest(12), entries); }), "was taken");
  EXPECT_FALSE(fs::exists(scratch_.file("checkpoints/step-00000012")));
  folder_.abandon(12);
  EXPECT_TRUE(fs::exists(partial));
  taken = false;
  folder_.abandon(12);
  EXPECT_FALSE(fs::exists(partial));
}

TEST_F(SaveFolderTest, RefusesWhatTheDiskHasNoRoomFor) {
  const std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
  EXPECT_HAS(error_of([&] { folder_.begin(12, bytes); }), ": a checkpoint takes ");
}

}  // namespace
}  // namespace ostrakon::train
