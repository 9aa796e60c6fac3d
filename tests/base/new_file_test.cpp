// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <ostrakon/base/new_file.hpp>

#include "../support/scratch_folder.hpp"

namespace ostrakon {
namespace {

using testing::error_of;
using testing::read_bytes;
using testing::ScratchFolder;
using testing::write_bytes;

TEST(NewFile, HasItsNameWhenItIsFinished) {
  const ScratchFolder folder;
  const std::string path = folder.file("file");
  std::string expected;
  NewFile file(path);
  for (int i = 0; i < 3000; ++i) {
    const std::string part(static_cast<std::size_t>(i), static_cast<char>('a' + i % 26));
    file.write(part.data(), i);
    expected += part;
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  file.finish();
  EXPECT_TRUE(read_bytes(path) == expected);
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(NewFile, LeavesWhatIsThereWhereItIsNotFinished) {
  const ScratchFolder folder;
  const std::string path = folder.file("file");
  write_bytes(path, "before");
  { NewFile(path).write("after", 5); }
  EXPECT_EQ(read_bytes(path), "before");
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  replace_file(path, "after");
  EXPECT_EQ(read_bytes(path), "after");
}

TEST(NewFile, IsWrittenByOneAtATime) {
  const ScratchFolder folder;
  const std::string path = folder.file("file");
  write_bytes(path + ".partial", "what a killed process has left");
  NewFile first(path);
  first.write("first", 5);
  const std::string refusal = error_of([&] { NewFile second(path); });
  EXPECT_EQ(refusal, "'" + path + ".partial' is being written by another process");
  EXPECT_TRUE(std::filesystem::exists(path + ".partial"));
  first.finish();
  EXPECT_EQ(read_bytes(path), "first");
  replace_file(path, "second");
  EXPECT_EQ(read_bytes(path), "second");
}

TEST(NewFile, GetsItsNameOnlyWhereItStillIsTheOneThatWasWritten) {
  const ScratchFolder folder;
  const std::string path = folder.file("file"), partial = path + ".partial";
  write_bytes(folder.file("other"), "other");
  const std::string refusal = error_of([&] {
    NewFile file(path);
    file.write("text", 4);
    std::filesystem::rename(folder.file("other"), partial);
    file.finish();
  });
  EXPECT_EQ(refusal, "'" + partial + "' was removed or replaced by another process");
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(read_bytes(partial), "other");
}

TEST(NewFile, SaysWhyItCanNotBeWritten) {
  const ScratchFolder folder;
  const std::string path = folder.file("file");
  std::filesystem::create_symlink("/dev/full", path + ".partial");
  const std::string error = error_of([&] { replace_file(path, "text"); });
  EXPECT_HAS(error, path);
  EXPECT_HAS(error, "No space left on device");
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace ostrakon
