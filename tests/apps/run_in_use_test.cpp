// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <support/scratch_folder.hpp>

#include "../../apps/common/output_file.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;

TEST(RunInUse, WhatARunLeftIsLockedAlsoWithoutItsLock) {
  for (const bool by_checkpoints : {false, true}) {
    const ScratchFolder scratch;
    fs::create_directories(scratch.file("run"));
    if (by_checkpoints)
      fs::create_directory(scratch.file("run/checkpoints"));
    else
      write_bytes(scratch.file("run/metrics.jsonl"), "");
    for (const char* out : {"run/new", "run/new/", "run/../run/new", "run/checkpoints/new"}) {
      if (!by_checkpoints && out == std::string("run/checkpoints/new")) continue;
      const auto locks = apps::lock_run_folders(scratch.file(out));
      EXPECT_EQ(locks.size(), 1u) << out;
      EXPECT_TRUE(fs::exists(scratch.file("run/run.lock"))) << out;
    }
    EXPECT_FALSE(fs::exists(scratch.file("run/run.lock")));
  }
}

TEST(RunInUse, TwoRunsAreLockedWhereALinkLeadsFromOneToTheOther) {
  const ScratchFolder scratch;
  fs::create_directories(scratch.file("one"));
  fs::create_directories(scratch.file("two/checkpoints"));
  fs::create_directory_symlink(scratch.file("two/checkpoints"), scratch.file("one/checkpoints"));
  const auto locks = apps::lock_run_folders(scratch.file("one/checkpoints/new"));
  EXPECT_EQ(locks.size(), 2u);
  EXPECT_TRUE(fs::exists(scratch.file("one/run.lock")));
  EXPECT_TRUE(fs::exists(scratch.file("two/run.lock")));
}

TEST(RunInUse, OtherFoldersAreLeftAsTheyAre) {
  const ScratchFolder scratch;
  EXPECT_TRUE(apps::lock_run_folders(scratch.file("new")).empty());
  EXPECT_TRUE(apps::lock_run_folders(scratch.file("missing/new")).empty());
  EXPECT_TRUE(fs::is_empty(scratch.file("")));
}

}  // namespace
}  // namespace ostrakon::testing
