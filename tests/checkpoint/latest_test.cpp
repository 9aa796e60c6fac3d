// SPDX-License-Identifier: Apache-2.0

// `latest`, the link to the last saved checkpoint: files in its place, and the checkpoint that is
// read if it is outdated.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/latest.hpp>
#include <string>

#include "../support/damage.hpp"
#include "folder_fixture.hpp"

namespace {

/// Whether symlink() fails, as on file systems without links.
bool links_fail = false;

}  // namespace

/// This function replaces that of the C library.
int symlink(const char* target, const char* path) noexcept {
  errno = EPERM;
  if (links_fail) return -1;
  return static_cast<int>(::syscall(SYS_symlinkat, target, AT_FDCWD, path));
}

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;

using ostrakon::testing::damage;
using ostrakon::testing::error_of;
using ostrakon::testing::write_bytes;

class Latest : public CheckpointFolder {
 protected:
  ~Latest() override { links_fail = false; }
  std::string meant() const { return follow_latest(place("latest")).path; }
  std::string note() const { return follow_latest(place("latest") + "/").note; }
};

TEST_F(Latest, WhatStandsInItsPlaceIsSetAside) {
  save(10, 1);
  fs::remove(place("latest"));
  fs::copy(place("step-00000010"), place("latest"));
  EXPECT_EQ(folder_.mark_latest(10), place("latest.previous"));
  EXPECT_EQ(folder_.mark_latest(10), "");
  EXPECT_TRUE(is_checkpoint(place("latest.previous")));
  save(20, 2);
  fs::remove(place("latest"));
  write_bytes(place("latest"), "mine");
  EXPECT_EQ(folder_.mark_latest(20), place("latest.previous-2"));
  EXPECT_EQ(fs::read_symlink(place("latest")), "step-00000020");
}

TEST_F(Latest, ThatThereAreNoLinksIsSaidOnce) {
  save(10, 1);
  fs::remove(place("latest"));
  fs::copy(place("step-00000010"), place("latest"));
  links_fail = true;
  const std::string error = "can't make link '" + place("latest") +
                            "': Operation not permitted; programs find the newest checkpoint "
                            "without it";
  EXPECT_EQ(error_of([&] { folder_.mark_latest(10); }),
            error + "; what had its name is in " + place("latest.previous") + " now");
  EXPECT_EQ(error_of([&] { folder_.mark_latest(10); }), "no error");
  EXPECT_EQ(names(), (Names{"latest.previous", "step-00000010"}));
  links_fail = false;
  folder_.mark_latest(10);
  links_fail = true;
  EXPECT_EQ(error_of([&] { folder_.mark_latest(20); }), error);
}

TEST_F(Latest, MeansTheNewestWhateverHasTheName) {
  save(20, 1);
  save(10, 2);
  EXPECT_EQ(meant(), place("latest"));
  EXPECT_EQ(note(), "");
  // `latest` is a copy of the newest checkpoint, then of an old one.
  fs::remove(place("latest"));
  fs::copy(place("step-00000010"), place("latest"));
  EXPECT_EQ(meant(), place("step-00000010"));
  EXPECT_EQ(note(), "");
  links_fail = true;
  error_of([&] { save(30, 3); });
  links_fail = false;
  fs::copy(place("step-00000010"), place("latest"));
  EXPECT_EQ(meant(), place("step-00000030"));
  EXPECT_EQ(note(), "'" + place("latest") + "' is an older checkpoint: takes the newest, '" +
                        place("step-00000030") + "'");
  // `latest` is an old link, missing, and a broken link.
  fs::remove_all(place("latest"));
  fs::create_directory_symlink("step-00000020", place("latest"));
  EXPECT_EQ(meant(), place("step-00000030"));
  fs::remove(place("latest"));
  EXPECT_EQ(meant(), place("step-00000030"));
  EXPECT_EQ(note(), "'" + place("latest") + "' is not there: takes the newest, '" +
                        place("step-00000030") + "'");
  fs::create_directory_symlink("step-00000099", place("latest"));
  EXPECT_EQ(meant(), place("latest"));
}

TEST_F(Latest, MeansWhatHasTheNameWhereNothingIsKnownToBeNewer) {
  save(10, 1);
  save(20, 2);
  damage(place("step-00000020/manifest.json"));
  EXPECT_EQ(meant(), place("latest"));
  // Here `latest` is not in a folder of checkpoints.
  fs::create_directory(scratch_.file("latest"));
  EXPECT_EQ(follow_latest(scratch_.file("latest")).path, scratch_.file("latest"));
  EXPECT_EQ(follow_latest(place("step-00000010")).path, place("step-00000010"));
  EXPECT_EQ(follow_latest(scratch_.file("none/latest")).path, scratch_.file("none/latest"));
}

}  // namespace
}  // namespace ostrakon::checkpoint
