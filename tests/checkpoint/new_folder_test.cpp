// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <ostrakon/checkpoint/new_folder.hpp>
#include <string>

#include "../support/scratch_folder.hpp"

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;

using testing::error_of;
using testing::ScratchFolder;
using testing::write_bytes;

TEST(NewFolder, IsThereWholeOrNotAtAll) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("a/b");
  fs::create_directories(path + ".partial/left");
  {
    const NewFolder folder(path + "/");
    EXPECT_TRUE(fs::is_empty(folder.partial())) << "of an earlier try";
    write_bytes(folder.partial() + "/file", "x");
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_FALSE(fs::exists(path + ".partial"));
  {
    NewFolder folder(path);
    write_bytes(folder.partial() + "/file", "x");
    EXPECT_FALSE(fs::exists(path));
    folder.commit();
  }
  EXPECT_TRUE(fs::exists(path + "/file"));
  EXPECT_FALSE(fs::exists(path + ".partial"));
}

TEST(NewFolder, TakesNoNameThatIsTaken) {
  const ScratchFolder scratch;
  const auto error = [&](const std::string& path) {
    return error_of([&] { const NewFolder folder(path); });
  };
  write_bytes(scratch.file("file"), "x");
  fs::create_directory(scratch.file("full"));
  write_bytes(scratch.file("full/file"), "x");
  fs::create_symlink("nowhere", scratch.file("link"));
  for (const char* name : {"file", "full", "link"})
    EXPECT_HAS(error(scratch.file(name)), "is there already") << name;
  EXPECT_HAS(error(".."), "no name");
  EXPECT_HAS(error(""), "no name");
  EXPECT_HAS(error(scratch.file("file/x")), "Not a directory");
  fs::create_directory(scratch.file("empty"));
  NewFolder folder(scratch.file("empty"));
  folder.commit();
  EXPECT_TRUE(fs::is_directory(scratch.file("empty")));
}

}  // namespace
}  // namespace ostrakon::checkpoint
