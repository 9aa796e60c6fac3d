// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <limits>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/files/input.hpp>

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
  rename_file(folder.file("new"), folder.file("old"));
  EXPECT_EQ(read_bytes(folder.file("old")), "new");
  EXPECT_FALSE(std::filesystem::exists(folder.file("new")));
}

TEST(Files, FailuresNameTheFile) {
  const ScratchFolder folder;
  const std::string none = folder.file("none"), other = folder.file("other");
  EXPECT_EQ(error_of([&] { rename_file(none, other); }),
            "can't rename '" + none + "' to '" + other + "': No such file or directory");
  EXPECT_EQ(error_of([&] { sync_folder(none); }),
            "can't open '" + none + "' to sync it: No such file or directory");
  write_bytes(other, "");
  EXPECT_EQ(error_of([&] { sync_folder(other); }),
            "can't open '" + other + "' to sync it: Not a directory");
}

TEST(Files, FreeBytes) {
  const ScratchFolder folder;
  EXPECT_GT(free_bytes(folder.file("")), 0);
  EXPECT_EQ(free_bytes(folder.file("none")), std::numeric_limits<std::int64_t>::max());
}

using Mode = PlainFile::Mode;

TEST(PlainFile, GitLfsPointersAreNamed) {
  const ScratchFolder folder;
  const std::string begin = "version https://git-lfs.github.com/spec/v1\n";
  const std::string pointer = begin + "oid sha256:" + std::string(64, 'a') + "\nsize 12345\n";
  const auto open = [&](const std::string& content) {
    write_bytes(folder.file("model.safetensors"), content);
    return error_of([&] { const PlainFile file(folder.file("model.safetensors"), Mode::read); });
  };
  const std::string error = open(pointer);
  EXPECT_HAS(error, "model.safetensors' is a Git LFS pointer");
  EXPECT_HAS(error, "`git lfs pull`");
  EXPECT_HAS(error_of([&] { read_text(folder.file("model.safetensors"), 1 << 20); }),
             "is a Git LFS pointer");
  EXPECT_THROW(PlainFile(folder.file("model.safetensors"), Mode::read), DamagedError);
  // A pointer file has less than 1024 bytes.
  for (const std::string& other : {" " + pointer, begin.substr(0, begin.size() - 1), std::string(),
                                   begin + std::string(1024, 'x')})
    EXPECT_EQ(open(other), "no error") << other.substr(0, 60);
  write_bytes(folder.file("written"), pointer);
  const PlainFile written(folder.file("written"), Mode::write);
}

TEST(PlainFile, WritesAndReadsAnywhere) {
  const ScratchFolder folder;
  const std::string path = folder.file("file");
  PlainFile made(path, Mode::create);
  PlainFile file(std::move(made));
  EXPECT_EQ(file.path(), path);
  file.write(4, 3, "efg");
  file.write(0, 2, "ab");
  file.write(100, 0, nullptr);
  EXPECT_EQ(file.size(), 7);
  file.begin_sync(0, 7);
  file.sync();
  file.drop_cache(0, 7);
  std::string bytes(5, '?');
  file.read(1, 5, bytes.data());
  EXPECT_EQ(bytes, std::string("b\0\0ef", 5));
  file.resize(9);
  file.close();
  file.close();
  EXPECT_EQ(read_bytes(path), std::string("ab\0\0efg\0\0", 9));
}

TEST(PlainFile, ModesKeepOrEmpty) {
  const ScratchFolder folder;
  const std::string path = folder.file("file");
  PlainFile(path, Mode::write).write(0, 5, "12345");
  PlainFile(path, Mode::write).write(1, 1, "x");
  EXPECT_EQ(read_bytes(path), "1x345");
  EXPECT_EQ(PlainFile(path, Mode::read).size(), 5);
  EXPECT_EQ(PlainFile(path, Mode::create).size(), 0);
  EXPECT_EQ(error_of([&] { PlainFile(path, Mode::read).write(0, 1, "a"); }),
            "can't write '" + path + "': Bad file descriptor");
}

TEST(PlainFile, FailuresNameTheFile) {
  const ScratchFolder folder;
  const std::string path = folder.file("file"), none = folder.file("none");
  write_bytes(path, "12345");
  char bytes[8];
  EXPECT_EQ(error_of([&] { PlainFile(path, Mode::read).read(3, 4, bytes); }),
            "'" + path + "' ends at byte 5; expected bytes 3 to 7");
  EXPECT_EQ(error_of([&] { PlainFile(none, Mode::read); }),
            "can't open '" + none + "': No such file or directory");
  EXPECT_EQ(error_of([&] { PlainFile(none + "/file", Mode::create); }),
            "can't write '" + none + "/file': No such file or directory");
  EXPECT_EQ(error_of([&] { PlainFile(folder.file(""), Mode::read); }),
            "can't read '" + folder.file("") + "': it is a folder");
  EXPECT_EQ(error_of([&] { PlainFile("/dev/zero", Mode::read); }),
            "can't read '/dev/zero': it is not a plain file");
  EXPECT_EQ(error_of([&] { PlainFile("/dev/full", Mode::write).write(0, 1, "a"); }),
            "can't write '/dev/full': No space left on device");
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { PlainFile(pipe, Mode::read); }),
            "can't read '" + pipe + "': it is not a plain file");
}

TEST(PlainFile, IsNotLeftToChildren) {
  const ScratchFolder folder;
  const int next = open("/dev/null", O_RDONLY);
  ASSERT_GE(next, 0);
  close(next);
  const PlainFile file(folder.file("file"), Mode::create);  // gets the lowest free descriptor
  EXPECT_NE(fcntl(next, F_GETFD) & FD_CLOEXEC, 0);
}

}  // namespace
}  // namespace ostrakon
