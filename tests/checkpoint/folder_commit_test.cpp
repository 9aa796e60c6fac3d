// SPDX-License-Identifier: Apache-2.0

// The end of a save: a checkpoint gets its name, or nothing changes.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <ostrakon/checkpoint/folder.hpp>
#include <string>
#include <utility>

#include "folder_fixture.hpp"
#include "support/messages.hpp"

// These functions replace those of the C library, and fail when a test requests it.
int rename(const char* from, const char* to) noexcept {
  errno = EIO;
  if (ostrakon::checkpoint::rename_fails && ostrakon::checkpoint::rename_fails(from, to)) return -1;
  return ::renameat(AT_FDCWD, from, AT_FDCWD, to);
}
int fsync(int descriptor) {
  errno = EIO;
  if (ostrakon::checkpoint::sync_fails && ostrakon::checkpoint::sync_fails()) return -1;
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;

using ostrakon::testing::error_of;
using ostrakon::testing::read_bytes;
using ostrakon::testing::write_bytes;
using testing::holds;
using testing::SmallCheckpoint;

TEST_F(CheckpointFolder, CommitKeepsWhatHadTheNameUnderAnotherName) {
  save(12, 1, 0);
  const std::string path = save(12, 2, 1);
  EXPECT_EQ(names(), (Names{"latest", "step-00000012", "step-00000012.previous"}));
  write_bytes(folder_.begin(12) + "/manifest.json", "");
  const Folder::Committed third = folder_.commit(12, "third");
  EXPECT_EQ(third.path, path);
  EXPECT_EQ(third.previous, path + ".previous-2");
  for (const auto& [name, version] : {std::pair{".previous", 0}, std::pair{".previous-2", 1}}) {
    CheckpointReader reader(path + name);
    EXPECT_TRUE(holds(reader, SmallCheckpoint(2, Files::single, false, version))) << name;
  }
  EXPECT_EQ(read_bytes(manifest_path(path)), "third");
  folder_.begin(13);
  EXPECT_EQ(folder_.commit(13, "").previous, "");
  // Later checkpoints with other names are no obstacle, and are not removed.
  save(14, 4);
  folder_.prune(1, 0);
  folder_.remove_partial();
  EXPECT_TRUE(is_checkpoint(path + ".previous"));
  EXPECT_TRUE(is_checkpoint(path + ".previous-2"));
  EXPECT_EQ(fs::read_symlink(place("latest")), "step-00000014");
}

TEST_F(CheckpointFolder, CommitDoesNotFailOnceTheCheckpointHasItsName) {
  save(12, 1, 0);
  bool tried = false;
  rename_fails = [&](const std::string&, const std::string& to) {
    const bool renames = to == place("step-00000012.previous");
    tried = tried || renames;
    return renames;
  };
  std::string path;
  EXPECT_EQ(error_of([&] { path = save(12, 2, 1); }), "no error");
  EXPECT_TRUE(tried);
  rename_fails = nullptr;
  EXPECT_EQ(path, place("step-00000012"));
  EXPECT_TRUE(is_there("step-00000012.replaced.partial"));
  EXPECT_EQ(steps(), Steps{12});
  EXPECT_EQ(folder_.remove_partial(), Names{place("step-00000012.previous")});
  EXPECT_EQ(names(), (Names{"latest", "step-00000012", "step-00000012.previous"}));
  CheckpointReader reader(path), previous(path + ".previous");
  EXPECT_TRUE(holds(reader, SmallCheckpoint(2, Files::single, false, 1)));
  EXPECT_TRUE(holds(previous, SmallCheckpoint(2, Files::single, false, 0)));
}

TEST_F(CheckpointFolder, CommitThatFailsLeavesTheNamesAsTheyWere) {
  const std::string path = save(12, 1, 0);
  const Names before = {"latest", "step-00000012", "step-00000012.partial"};
  const auto expect_failure = [&](int step, const Names& expected) {
    EXPECT_HAS(error_of([&] { save(step, 2, 1); }), folder_.path());
    rename_fails = nullptr;
    sync_fails = nullptr;
    EXPECT_EQ(names(), expected);
    CheckpointReader reader(path);
    EXPECT_TRUE(holds(reader, SmallCheckpoint(2, Files::single, false, 0)));
    folder_.abandon(step);
  };
  rename_fails = [&](const std::string& from, const std::string&) {
    return from == place("step-00000012.partial");
  };
  expect_failure(12, before);

  // The name exists, but may not be on disk yet.
  const auto fail_sync_once_after = [](const std::string& name) {
    const auto armed = std::make_shared<int>(0);
    rename_fails = [=](const std::string&, const std::string& to) {
      if (to == name) ++*armed;
      return false;
    };
    sync_fails = [=] { return *armed == 1 && ++*armed; };
  };
  fail_sync_once_after(place("step-00000012"));
  expect_failure(12, before);
  fail_sync_once_after(place("step-00000012.replaced.partial"));
  expect_failure(12, before);
  fail_sync_once_after(place("step-00000013"));
  expect_failure(13, {"latest", "step-00000012", "step-00000013.partial"});
}

TEST_F(CheckpointFolder, AbandonRemovesWhatWasBegun) {
  save(12, 1);
  write_bytes(folder_.begin(12) + "/file", "");
  folder_.abandon(12);
  folder_.abandon(13);
  EXPECT_EQ(names(), (Names{"latest", "step-00000012"}));
}

}  // namespace
}  // namespace ostrakon::checkpoint
