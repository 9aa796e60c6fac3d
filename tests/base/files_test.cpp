// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <ostrakon/base/files.hpp>

#include "../support/scratch_folder.hpp"

namespace ostrakon {
namespace {

using testing::error_of;
using testing::read_bytes;
using testing::ScratchFolder;
using testing::write_bytes;

TEST(Files, ParentFolders) {
  EXPECT_EQ(parent_folder("a/b/c"), "a/b");
  EXPECT_EQ(parent_folder("/c"), "/");
  EXPECT_EQ(parent_folder("c"), ".");
}

TEST(Files, RenamingReplaces) {
  const ScratchFolder folder;
  write_bytes(folder.file("old"), "old");
  write_bytes(folder.file("new"), "new");
  sync_file(folder.file("new"));
  rename_file(folder.file("new"), folder.file("old"));
  EXPECT_EQ(read_bytes(folder.file("old")), "new");
  EXPECT_FALSE(std::filesystem::exists(folder.file("new")));
}

TEST(Files, FailuresNameTheFile) {
  const ScratchFolder folder;
  const std::string none = folder.file("none"), other = folder.file("other");
  EXPECT_EQ(error_of([&] { rename_file(none, other); }),
            "can't rename '" + none + "' to '" + other + "': No such file or directory");
  EXPECT_EQ(error_of([&] { sync_file(none); }),
            "can't open '" + none + "' to sync it: No such file or directory");
  write_bytes(other, "");
  EXPECT_EQ(error_of([&] { sync_folder(other); }),
            "can't open '" + other + "' to sync it: Not a directory");
}

}  // namespace
}  // namespace ostrakon
