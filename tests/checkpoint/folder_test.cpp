// SPDX-License-Identifier: Apache-2.0

// A folder of checkpoints: saving, listing, and errors.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/manifest_text.hpp>
#include <string>
#include <vector>

#include "../support/damage.hpp"
#include "folder_fixture.hpp"
#include "support/messages.hpp"

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;

using ostrakon::testing::damage;
using ostrakon::testing::error_of;
using ostrakon::testing::read_bytes;
using ostrakon::testing::write_bytes;
using testing::holds;
using testing::SmallCheckpoint;

TEST_F(CheckpointFolder, NamesHoldTheStep) {
  EXPECT_EQ(folder_name(1200), "step-00001200");
  EXPECT_EQ(folder_name(0), "step-00000000");
  EXPECT_EQ(folder_name(123456789012), "step-123456789012");
}

TEST_F(CheckpointFolder, ASaveIsThereOnceItIsWhole) {
  EXPECT_EQ(steps(), Steps{});
  EXPECT_FALSE(fs::exists(folder_.path()));
  const std::string begun = folder_.begin(12);
  EXPECT_EQ(steps(), Steps{});
  EXPECT_FALSE(is_checkpoint(begun));
  write_bytes(begun + "/earlier", "try");
  EXPECT_EQ(folder_.begin(12), begun);
  EXPECT_TRUE(fs::is_empty(begun));

  const SmallCheckpoint small(2, Files::rank);
  const Manifest manifest = small.write_files(begun, 12, 5);
  const std::string path = folder_.commit(12, write_manifest(manifest)).path;
  EXPECT_EQ(names(), (Names{"step-00000012"}));
  folder_.mark_latest(12);
  EXPECT_EQ(path, place("step-00000012"));
  EXPECT_EQ(names(), (Names{"latest", "step-00000012"}));
  EXPECT_EQ(fs::read_symlink(place("latest")), "step-00000012");
  EXPECT_TRUE(is_checkpoint(path));
  EXPECT_TRUE(is_checkpoint(place("latest")));
  EXPECT_FALSE(is_checkpoint(folder_.path()));
  EXPECT_FALSE(is_checkpoint(path + "/manifest.json"));
  const std::vector<Folder::Entry> entries = folder_.list();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].path, path);
  EXPECT_EQ(entries[0].step, 12);
  EXPECT_EQ(entries[0].sequence, 5);
  EXPECT_EQ(entries[0].problem, "");
  CheckpointReader reader(path);
  EXPECT_TRUE(holds(reader, small));
  EXPECT_TRUE(error_of([&] { folder_.begin(-1); }).find("step -1") != std::string::npos);
}

TEST_F(CheckpointFolder, ManifestsThatChangeAreLookedAtAgain) {
  const std::string path = manifest_path(save(12, 1));
  save(13, 2);
  EXPECT_EQ(steps(), (Steps{13, 12}));
  const std::string good = read_bytes(path);
  std::string bad = good;
  bad[bad.size() / 2] ^= 1;
  // The file has the same size and time as before, so it counts as unchanged.
  const fs::file_time_type time = fs::last_write_time(path);
  write_bytes(path, bad);
  fs::last_write_time(path, time);
  EXPECT_EQ(steps(), (Steps{13, 12}));
  EXPECT_EQ(Folder(folder_.path()).list()[1].problem.empty(), false);
  // Changes: another time, by a nanosecond; a repair; another size; another file; no file.
  fs::last_write_time(path, time + std::chrono::nanoseconds(1));
  EXPECT_EQ(steps(), (Steps{13, -12}));
  write_bytes(path, good);
  EXPECT_EQ(steps(), (Steps{13, 12}));
  write_bytes(path, good + " ");
  EXPECT_EQ(steps(), (Steps{13, -12}));
  write_bytes(path, good);
  fs::last_write_time(path, time);
  EXPECT_EQ(steps(), (Steps{13, 12}));
  const std::string other = scratch_.file("other");
  write_bytes(other, bad);
  fs::last_write_time(other, time);
  fs::rename(other, path);
  EXPECT_EQ(steps(), (Steps{13, -12}));
  write_bytes(path, good);
  EXPECT_EQ(steps(), (Steps{13, 12}));
  fs::remove(path);
  EXPECT_NE(error_of([&] { steps(); }), "no error");
  save(12, 3);
  EXPECT_EQ(steps(), (Steps{12, 13}));
}

TEST_F(CheckpointFolder, ListsTheLastSavedFirstAndUnusableOnesLast) {
  save(30, 1);
  save(10, 2);
  save(20, 3);
  save(40, 4);
  save(50, 5);
  fs::resize_file(place("step-00000040/manifest.json"), 0);
  damage(place("step-00000050/manifest.json"));
  EXPECT_EQ(steps(), (Steps{20, 10, 30, -50, -40}));
  fs::rename(place("step-00000020"), place("step-00000025"));
  EXPECT_EQ(steps(), (Steps{20, 10, 30, -50, -40}));
  EXPECT_EQ(folder_.list()[0].path, place("step-00000025"));
}

TEST_F(CheckpointFolder, OtherNamesAreNoCheckpoints) {
  const std::string path = save(12, 1);
  for (const char* name :
       {"step-0000012", "step-000000012", "step-00000012x", "step--0000001", "step-+0000012",
        "step-99999999999999999999", "xstep-00000012", "step-00000012.partial", "step-"}) {
    fs::copy(path, place(name));
  }
  write_bytes(place("step-00000099"), "no folder");
  EXPECT_EQ(steps(), Steps{12});
}

TEST_F(CheckpointFolder, ALinkThatLeadsNowhereIsNoEmptyFolder) {
  fs::create_directory(scratch_.file("output"));
  fs::create_directory_symlink(scratch_.file("away"), folder_.path());
  for (const std::string& error :
       {error_of([&] { folder_.list(); }), error_of([&] { folder_.names(); }),
        error_of([&] { folder_.set_aside(); })})
    EXPECT_EQ(error, "'" + folder_.path() +
                         "' is a link whose target does not exist, or is not mounted on this host");
  fs::create_directory(scratch_.file("away"));
  EXPECT_EQ(steps(), Steps{});
}

TEST_F(CheckpointFolder, WhatCanNotBeReadEndsTheCallAndChangesNothing) {
  const auto later_version = [](std::string manifest) {
    manifest.replace(manifest.find("\"version\": 1"), 12, "\"version\": 2");
    const std::size_t digits = checksum_place(manifest);
    return manifest.replace(digits, checksum_digits, format_hex(checksum_of_text(manifest)));
  };
  const std::string manifest = manifest_path(place("step-00000020"));
  struct Case {
    std::function<void()> damage;
    std::string reason;
  };
  const Case cases[] = {
      {[&] { fs::remove(manifest); }, "does not see the file (yet)"},
      {[&] {
         fs::remove(manifest);
         fs::create_symlink("manifest.json", manifest);
       },
       "Too many levels of symbolic links"},
      {[&] {
         fs::remove(manifest);
         fs::create_directory(manifest);
       },
       "is a folder"},
      {[&] {
         fs::remove_all(place("step-00000020"));
         fs::create_directory_symlink("away", place("step-00000020"));
       },
       "is not visible on this host"},
      {[&] { write_bytes(manifest, later_version(read_bytes(manifest))); },
       "is of version 2; this program reads version 1: use the program that wrote it"}};
  for (const Case& one : cases) {
    fs::remove_all(folder_.path());
    for (std::int64_t i = 1; i <= 3; ++i) save(10 * i, i);
    one.damage();
    const Names before = names();
    for (const std::string& error :
         {error_of([&] { folder_.list(); }), error_of([&] { folder_.prune(1, 0); })}) {
      EXPECT_HAS(error, one.reason);
      EXPECT_HAS(error, "step-00000020");
    }
    EXPECT_EQ(names(), before);
    const std::vector<Folder::Entry> told = folder_.list(Folder::Unreadable::tell);
    ASSERT_EQ(told.size(), 3u);
    EXPECT_EQ(told.back().step, 20);
    EXPECT_TRUE(told.back().is_unreadable);
    // All of them are set aside with their content.
    EXPECT_NE(folder_.set_aside(), "");
    fs::remove_all(folder_.path() + ".previous");
  }
  EXPECT_EQ(Folder(scratch_.file("none")).list().size(), 0u);
}

TEST_F(CheckpointFolder, FailuresNameThePath) {
  write_bytes(scratch_.file("output"), "no folder");
  for (const std::string& error :
       {error_of([&] { folder_.begin(1); }), error_of([&] { folder_.list(); })}) {
    EXPECT_TRUE(error.find(scratch_.file("output")) != std::string::npos) << error;
  }
}

}  // namespace
}  // namespace ostrakon::checkpoint
