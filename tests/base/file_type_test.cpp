// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <ostrakon/base/files/append_file.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>

#include "../support/no_files.hpp"
#include "../support/scratch_folder.hpp"

namespace ostrakon {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::read_bytes;
using testing::ScratchFolder;
using testing::write_bytes;

TEST(FileType, TellsWhatIsMissingFromWhatIsNotKnown) {
  const ScratchFolder folder;
  const std::string file = folder.file("file"), link = folder.file("link"),
                    lost = folder.file("lost"), loop = folder.file("loop");
  write_bytes(file, "");
  fs::create_symlink("file", link);
  fs::create_symlink("none", lost);
  fs::create_symlink("loop", loop);
  EXPECT_TRUE(is_plain_file(file));
  EXPECT_TRUE(is_plain_file(link));
  EXPECT_FALSE(is_folder(file));
  EXPECT_TRUE(is_folder(folder.file("")));
  for (const std::string& none : {folder.file("none"), lost, file + "/none"}) {
    EXPECT_EQ(type_of(none), fs::file_type::not_found);
    EXPECT_FALSE(is_plain_file(none));
  }
  EXPECT_EQ(type_of_name(lost), fs::file_type::symlink);
  EXPECT_EQ(type_of_name(loop), fs::file_type::symlink);
  const std::string expected = "can't look at '" + loop + "': Too many levels of symbolic links";
  EXPECT_EQ(error_of([&] { type_of(loop); }), expected);
  EXPECT_EQ(error_of([&] { is_folder(loop); }), expected);
  EXPECT_TRUE(are_same(file, link));
  EXPECT_TRUE(are_same(folder.file(""), folder.file(".")));
  EXPECT_FALSE(are_same(file, folder.file("")));
  EXPECT_FALSE(are_same(file, lost));
  EXPECT_FALSE(are_same(file + "/none", file));
  EXPECT_EQ(error_of([&] { are_same(file, loop); }), expected);
}

TEST(AppendFile, OnlyAdds) {
  const ScratchFolder folder;
  const std::string path = folder.file("file");
  AppendFile first(path);
  first.append("one\n");
  AppendFile second(path);
  second.append("two\n");
  first.append("three\n");
  EXPECT_EQ(read_bytes(path), "one\ntwo\nthree\n");
  EXPECT_EQ(error_of([&] { AppendFile(folder.file("none/file")); }),
            "can't write '" + folder.file("none/file") + "': No such file or directory");
  AppendFile full("/dev/full");
  EXPECT_EQ(error_of([&] { full.append("x"); }),
            "can't write '/dev/full': No space left on device");
}

TEST(AppendFile, AddsAllOrNothing) {
  const ScratchFolder folder;
  const std::string path = folder.file("file");
  AppendFile file(path);
  file.append("one\n");
  {
    const tests::NoFiles beyond(6);
    EXPECT_EQ(error_of([&] { file.append("two\n"); }),
              "can't write '" + path + "': File too large");
  }
  EXPECT_EQ(read_bytes(path), "one\n");
  file.append("two\n");
  file.close();
  EXPECT_EQ(read_bytes(path), "one\ntwo\n");
}

TEST(BrokenLink, IsNamedWhereItIs) {
  const ScratchFolder folder;
  const std::string link = folder.file("link");
  std::filesystem::create_symlink("nowhere", link);
  const std::string words =
      "'" + link + "' is a link whose target does not exist, or is not mounted on this host";
  EXPECT_EQ(broken_link(link), words);
  EXPECT_EQ(broken_link(link + "/below/it"), words);
  EXPECT_EQ(broken_link(folder.file("none/below")), "");
  EXPECT_EQ(broken_link(folder.file("")), "");
  EXPECT_EQ(error_of([&] { require_plain_file(link, "token file"); }), words);
  EXPECT_EQ(error_of([&] { PlainFile(link, PlainFile::Mode::read); }),
            "can't open '" + link + "': " + words);
}

TEST(PlainFile, KnowsWhereReadingEnds) {
  const ScratchFolder folder;
  const std::string path = folder.file("file");
  for (const std::int64_t bytes : {0, 1, 5}) {
    write_bytes(path, std::string(static_cast<std::size_t>(bytes), 'x'));
    const PlainFile file(path, PlainFile::Mode::read);
    for (std::int64_t end = 0; end < 8; ++end) EXPECT_EQ(file.ends_at(end), end == bytes);
  }
}

}  // namespace
}  // namespace ostrakon
