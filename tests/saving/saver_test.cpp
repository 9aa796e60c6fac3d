// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/saving/saver.hpp>
#include <string>

#include "support/scratch_folder.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

namespace fs = std::filesystem;

TEST(Saver, WhatIsLeftOfAFailedSaveStaysWhereTheFolderWasTaken) {
  for (const bool is_taken : {false, true}) {
    const testing::ScratchFolder folder;
    config::Settings settings = small_gpt2(1);
    settings.output.directory = folder.file("run");
    SmallRun run(settings);
    train::Saver saver(settings, run.mesh, run.trainer);
    bool fails = false;
    saver.guard([&] { require(!fails, "was taken"); });
    saver.begin(run.trainer.progress(), "synthetic", false);
    const std::string partial = folder.file("run/checkpoints/step-00000000.partial");
    ASSERT_TRUE(fs::is_directory(partial));
    // No file can have this name.
    ASSERT_TRUE(fs::create_directory(partial + "/rank-00000.h5"));
    fails = is_taken;
    EXPECT_THROW(saver.finish(), CollectiveError);
    EXPECT_EQ(fs::exists(partial), is_taken);
  }
}

}  // namespace
}  // namespace ostrakon::tests
