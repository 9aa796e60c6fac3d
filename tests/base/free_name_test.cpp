// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <ostrakon/base/files/free_name.hpp>

#include "../support/scratch_folder.hpp"

namespace ostrakon {
namespace {

using testing::error_of;
using testing::ScratchFolder;
using testing::write_bytes;

TEST(FreeName, IsThatOfNoFileFolderOrLink) {
  const ScratchFolder folder;
  const std::string start = folder.file("a.previous");
  EXPECT_EQ(free_name(start, ".h5"), start + ".h5");
  write_bytes(start + ".h5", "");
  EXPECT_EQ(free_name(start, ".h5"), start + "-2.h5");
  std::filesystem::create_directory(start + "-2.h5");
  std::filesystem::create_symlink("nothing", start + "-3.h5");
  EXPECT_EQ(free_name(start, ".h5"), start + "-4.h5");
  EXPECT_EQ(free_name(start), start);
  std::filesystem::create_directory(start);
  EXPECT_EQ(free_name(start), start + "-2");
}

TEST(FreeName, IsNotGuessedWhereTheSystemDoesNotSay) {
  const ScratchFolder folder;
  std::filesystem::create_symlink("loop", folder.file("loop"));
  EXPECT_HAS(error_of([&] { free_name(folder.file("loop/a")); }), "can't look at '");
}

}  // namespace
}  // namespace ostrakon
