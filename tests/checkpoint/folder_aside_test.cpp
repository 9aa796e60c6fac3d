// SPDX-License-Identifier: Apache-2.0

// Setting checkpoints aside: all of a folder, or a damaged one.

#include <gtest/gtest.h>

#include <filesystem>
#include <ostrakon/checkpoint/folder.hpp>
#include <string>

#include "folder_fixture.hpp"

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;

using ostrakon::testing::error_of;

TEST_F(CheckpointFolder, ADamagedOneThatMadeRoomIsSetAsideByItsOwnName) {
  save(12, 1);
  fs::rename(place("step-00000012"), place("step-00000012.replaced.partial"));
  EXPECT_EQ(folder_.quarantine(folder_.list().front().path), place("step-00000012.damaged"));
}

TEST_F(CheckpointFolder, IsSetAsideUnderAFreeName) {
  EXPECT_EQ(folder_.set_aside(), "");
  folder_.begin(1);
  EXPECT_EQ(folder_.set_aside(), "");
  save(12, 1);
  EXPECT_EQ(folder_.set_aside(), folder_.path() + ".previous");
  EXPECT_FALSE(fs::exists(folder_.path()));
  save(13, 1);
  EXPECT_EQ(Folder(folder_.path() + "/").set_aside(), folder_.path() + ".previous-2");
  save(14, 1);
  EXPECT_EQ(folder_.set_aside(), folder_.path() + ".previous-3");
  EXPECT_TRUE(is_checkpoint(folder_.path() + ".previous/step-00000012"));
  EXPECT_TRUE(is_checkpoint(folder_.path() + ".previous-2/step-00000013"));
}

TEST_F(CheckpointFolder, BehindALinkTheFolderIsSetAsideAndTheLinkStays) {
  const std::string disk = scratch_.file("disk/run"), second = scratch_.file("second");
  fs::create_directories(disk);
  fs::create_directory(scratch_.file("output"));
  fs::create_directory_symlink(disk, second);
  fs::create_directory_symlink("../second", folder_.path());
  EXPECT_EQ(folder_.set_aside(), "");
  for (const char* const end : {"", "/"}) {
    save(12, 1);
    const std::string aside = Folder(folder_.path() + end).set_aside();
    EXPECT_EQ(aside, fs::canonical(disk).string() + ".previous" + (*end == '/' ? "-2" : ""));
    EXPECT_TRUE(is_checkpoint(aside + "/step-00000012"));
    EXPECT_EQ(fs::read_symlink(folder_.path()), "../second");
    EXPECT_EQ(fs::read_symlink(second), disk);
    EXPECT_TRUE(fs::is_empty(folder_.path()));
  }
  save(13, 1);
  EXPECT_TRUE(is_checkpoint(disk + "/step-00000013"));
}

TEST_F(CheckpointFolder, ADamagedCheckpointIsSetAside) {
  save(11, 1);
  const std::string path = save(12, 2);
  EXPECT_EQ(steps(), (Steps{12, 11}));
  EXPECT_EQ(folder_.quarantine(path), path + ".damaged");
  save(12, 3);
  EXPECT_EQ(folder_.quarantine(path), path + ".damaged-2");
  EXPECT_EQ(steps(), Steps{11});
  save(12, 4);
  EXPECT_EQ(folder_.quarantine(path + "/"), path + ".damaged-3");
  save(13, 5);
  folder_.prune(1, 0);
  folder_.remove_partial();
  EXPECT_EQ(names(), (Names{"latest", "step-00000012.damaged", "step-00000012.damaged-2",
                            "step-00000012.damaged-3", "step-00000013"}));
  EXPECT_TRUE(is_checkpoint(path + ".damaged"));

  // Folders that are not checkpoints, or not in this folder.
  const std::string elsewhere = scratch_.file("step-00000013");
  fs::create_directory(elsewhere);
  for (const std::string& other :
       {place("latest"), path + ".damaged", path, folder_.path(), elsewhere, std::string()}) {
    EXPECT_NE(error_of([&] { folder_.quarantine(other); }), "no error") << other;
  }
  EXPECT_TRUE(fs::exists(elsewhere));
  EXPECT_EQ(steps(), Steps{13});
}

}  // namespace
}  // namespace ostrakon::checkpoint
