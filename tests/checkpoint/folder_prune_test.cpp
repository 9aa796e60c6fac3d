// SPDX-License-Identifier: Apache-2.0

// Tests which checkpoints are removed, and which never are.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <ostrakon/checkpoint/folder.hpp>
#include <string>

#include "../support/damage.hpp"
#include "folder_fixture.hpp"

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;

using ostrakon::testing::damage;
using ostrakon::testing::error_of;
using ostrakon::testing::write_bytes;
using testing::holds;
using testing::SmallCheckpoint;

TEST_F(CheckpointFolder, RemovesOnlyWhatSavesLeaveBehind) {
  save(12, 1);
  folder_.begin(13);
  fs::create_directories(place("step-00000014.removed.partial"));
  fs::create_directory_symlink("step-00000013", place("latest.partial"));
  fs::create_directory_symlink(scratch_.file(""), place("step-00000077.partial"));
  const Names others = {"mine.partial", "step-1.partial", "step-00000012.x.partial", "notes"};
  for (const std::string& name : others) write_bytes(place(name), "mine");
  folder_.remove_partial();
  Names expected = others;
  expected.insert(expected.end(), {"latest", "step-00000012"});
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(names(), expected);
  EXPECT_EQ(steps(), Steps{12});
  Folder(scratch_.file("none")).remove_partial();
}

TEST_F(CheckpointFolder, GivesAReplacedCheckpointItsNameBack) {
  save(12, 1);
  fs::rename(place("step-00000012"), place("step-00000012.replaced.partial"));
  // A process that only reads finds it, too.
  EXPECT_EQ(steps(), Steps{12});
  EXPECT_EQ(folder_.list().front().path, place("step-00000012.replaced.partial"));
  EXPECT_EQ(names(), (Names{"latest", "step-00000012.replaced.partial"}));
  save(13, 2);
  folder_.prune(1, 0);
  EXPECT_EQ(steps(), (Steps{13, 12}));
  fs::remove_all(place("step-00000013"));
  EXPECT_EQ(folder_.remove_partial(), Names{place("step-00000012")});
  EXPECT_EQ(steps(), Steps{12});
}

TEST_F(CheckpointFolder, PrunesAllButTheLastAndMilestones) {
  for (std::int64_t i = 1; i <= 7; ++i) save(10 * i, i);
  damage(place("step-00000030/manifest.json"));
  folder_.prune(2, 20);
  EXPECT_EQ(steps(), (Steps{70, 60, 40, 20, -30}));
  folder_.prune(1, 0);
  EXPECT_EQ(names(), (Names{"latest", "step-00000030", "step-00000070"}));
  folder_.prune(1, 0);
  EXPECT_EQ(steps(), (Steps{70, -30}));
  EXPECT_NE(error_of([&] { folder_.prune(0, 0); }), "no error");
}

TEST_F(CheckpointFolder, TwoThatWereReadOrSavedStay) {
  for (std::int64_t i = 1; i <= 4; ++i) save(10 * i, i);
  // Another run resumes from step 20.
  const Folder other(folder_.path());
  EXPECT_TRUE(other.record_verified(place("step-00000020")));
  EXPECT_TRUE(Folder(folder_.path()).record_verified(place("latest")));
  SmallCheckpoint(2, Files::single).save(other, 30, 5);
  other.prune(2, 0);
  EXPECT_EQ(steps(), (Steps{30, 40, 20}));
  SmallCheckpoint(2, Files::single).save(other, 50, 6);
  other.prune(2, 0);
  EXPECT_EQ(steps(), (Steps{50, 30}));
  EXPECT_TRUE(is_checkpoint(place("step-00000030.previous")));
  fs::rename(place("step-00000030.previous"), scratch_.file("step-00000030"));
  EXPECT_FALSE(other.record_verified(scratch_.file("step-00000030")));
  EXPECT_NE(error_of([&] { other.record_verified(place("step-00000099")); }), "no error");
}

TEST_F(CheckpointFolder, ShortJobsKeepNoMoreThanLongOnes) {
  // Each process saves once, whether it has read an earlier checkpoint or not.
  for (const bool reads : {true, false}) {
    fs::remove_all(folder_.path());
    for (std::int64_t i = 1; i <= 6; ++i) {
      const Folder process(folder_.path());
      if (reads && i > 1) process.record_verified(process.list().front().path);
      SmallCheckpoint(2, Files::single).save(process, 10 * i, i);
      process.prune(3, 0);
    }
    EXPECT_EQ(steps(), (Steps{60, 50, 40}));
  }
}

TEST_F(CheckpointFolder, KeepsTheNewestBeforeTheAuditedStep) {
  const auto save_and_prune = [&](std::int64_t step, std::int64_t audited_step) {
    save(step, step);
    folder_.record_verified(place(folder_name(step)));
    folder_.prune(1, 0, audited_step);
    return steps();
  };
  save_and_prune(10, 0);
  EXPECT_EQ(save_and_prune(20, 0), Steps{20});
  EXPECT_EQ(save_and_prune(30, 25), (Steps{30, 20}));
  EXPECT_EQ(save_and_prune(40, 25), (Steps{40, 20}));
  // The audit of step 50 was made before its update, so it says nothing on checkpoint 50.
  EXPECT_EQ(save_and_prune(50, 50), (Steps{50, 40}));
  EXPECT_EQ(save_and_prune(60, 50), (Steps{60, 40}));
  EXPECT_EQ(save_and_prune(70, 61), (Steps{70, 60}));
}

TEST_F(CheckpointFolder, NothingIsRemovedForWhatNobodyHasRead) {
  for (std::int64_t i = 1; i <= 4; ++i) save(10 * i, i);
  const Folder other(folder_.path());
  other.prune(1, 0);
  EXPECT_EQ(steps(), (Steps{40, 30, 20, 10}));
  // Checkpoints older than the newest that was read are removed, newer ones are not.
  other.record_verified(place("step-00000020"));
  other.prune(1, 0);
  EXPECT_EQ(steps(), (Steps{40, 30, 20}));
}

TEST_F(CheckpointFolder, WhatIsFromBeforeSkippedStepsStays) {
  // Each process saves once; all steps after `updates` were skipped.
  std::int64_t sequence = 0;
  const auto save_and_prune = [&](std::int64_t step, std::int64_t updates, std::int64_t skipped) {
    const Folder process(folder_.path());
    Progress progress;
    progress.updates = updates;
    progress.skipped_in_a_row = skipped;
    SmallCheckpoint(2, Files::single).save(process, step, ++sequence, progress);
    process.record_verified(place(folder_name(step)));
    process.prune(2, 0);
    return process.fallbacks();
  };
  for (const std::int64_t step : {5, 10, 15, 20}) EXPECT_EQ(save_and_prune(step, step, 0), Names());
  EXPECT_EQ(steps(), (Steps{20, 15}));
  for (const std::int64_t step : {25, 30, 35, 40})
    EXPECT_EQ(save_and_prune(step, 21, step - 21), Names{place("step-00000020")});
  EXPECT_EQ(steps(), (Steps{40, 35, 20}));
  // Steps succeed again, until an update makes parameters invalid just before a save.
  for (const std::int64_t step : {41, 42, 43})
    EXPECT_EQ(save_and_prune(step, step - 19, 0), Names());
  EXPECT_EQ(steps(), (Steps{43, 42}));
  for (const std::int64_t step : {44, 45, 46})
    EXPECT_EQ(save_and_prune(step, 24, step - 43),
              (Names{place("step-00000043"), place("step-00000042")}));
  EXPECT_EQ(steps(), (Steps{46, 45, 43, 42}));
}

TEST_F(CheckpointFolder, RenamedFoldersAreListedButNeverRemoved) {
  for (std::int64_t i = 1; i <= 3; ++i) save(10 * i, i);
  fs::rename(place("step-00000030"), place("step-00000099"));
  fs::copy(place("step-00000020"), place("step-00000077"));
  const std::vector<Folder::Entry> entries = folder_.list();
  EXPECT_EQ(steps(), (Steps{30, 20, 20, 10}));
  EXPECT_EQ(entries[0].path, place("step-00000099"));
  EXPECT_TRUE(entries[0].is_renamed && !entries[1].is_renamed && entries[2].is_renamed);
  EXPECT_FALSE(folder_.record_verified(place("step-00000099")));
  save(40, 4);
  folder_.prune(1, 0);
  EXPECT_EQ(names(), (Names{"latest", "step-00000040", "step-00000077", "step-00000099"}));
}

TEST_F(CheckpointFolder, LinkedCheckpointsAreListedButNeverRemoved) {
  const std::string elsewhere = scratch_.file("elsewhere");
  save(10, 1);
  fs::rename(place("step-00000010"), elsewhere);
  fs::create_directory_symlink(elsewhere, place("step-00000010"));
  save(20, 2);
  save(30, 3);
  EXPECT_EQ(steps(), (Steps{30, 20, 10}));
  folder_.prune(1, 0);
  EXPECT_EQ(steps(), (Steps{30, 10}));
  save(10, 4, 1);
  CheckpointReader reader(elsewhere);
  EXPECT_TRUE(holds(reader, SmallCheckpoint(2, Files::single, false, 0)));
}

}  // namespace
}  // namespace ostrakon::checkpoint
