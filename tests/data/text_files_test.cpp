// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/data/text_files.hpp>

#include "../support/scratch_folder.hpp"

namespace ostrakon::data {
namespace {

using testing::error_of;
using testing::ScratchFolder;
using testing::write_bytes;

using Documents = std::vector<std::string>;

TEST(FindTextFiles, SortsAndPassesOver) {
  const ScratchFolder folder;
  write_bytes(folder.file("b"), "text");
  write_bytes(folder.file("a"), "text");
  write_bytes(folder.file(".hidden"), "text");
  write_bytes(folder.file("a.dat"), std::string("bin\0ary", 7));
  write_bytes(folder.file("none"), "");
  write_bytes(folder.file("pointer"), "version https://git-lfs.github.com/spec/v1\nsize 7\n");
  std::filesystem::create_symlink("b", folder.file("b.u8"));
  std::filesystem::create_directory(folder.file("deeper"));
  write_bytes(folder.file("deeper/c"), "text");
  std::filesystem::create_directory(folder.file(".git"));
  write_bytes(folder.file(".git/d"), "text");

  const TextFiles files = find_text_files({folder.file("")});
  EXPECT_EQ(files.paths, Documents({folder.file("a"), folder.file("b"), folder.file("deeper/c")}));
  EXPECT_EQ(files.binary, Documents({folder.file("a.dat")}));
  EXPECT_EQ(files.duplicate, Documents({folder.file("b.u8")}));
  EXPECT_EQ(files.empty, Documents({folder.file("none")}));
  EXPECT_EQ(files.pointers, Documents({folder.file("pointer")}));

  const TextFiles named =
      find_text_files({folder.file("b"), folder.file(".hidden"), folder.file("b")});
  EXPECT_EQ(named.paths, Documents({folder.file("b"), folder.file(".hidden")}));
  EXPECT_EQ(named.duplicate, Documents({folder.file("b")}));
  EXPECT_HAS(error_of([&] { find_text_files({folder.file("gone")}); }), "does not exist");
  EXPECT_HAS(error_of([&] { find_text_files({"/dev/null"}); }), "neither a file nor a folder");
}

TEST(FindTextFiles, CompressedFilesAreWhatTheyHold) {
  const ScratchFolder folder;
  for (const char* name : {"a.x", "b.x", "c", "d.x"}) write_bytes(folder.file(name), "packed");
  const UnpackHead unpack = [&](const PlainFile& file, const std::string&) {
    const std::string name = file.path().substr(file.path().size() - 3);
    std::optional<std::string> head;
    if (name == "a.x") head = "{\"text\": 1}\n{\"text\": 2}\n";
    if (name == "b.x") head = std::string("\0\1", 2);
    if (name == "d.x") head = "";
    return head;
  };
  const TextFiles files = find_text_files({folder.file(""), "-"}, unpack);
  EXPECT_EQ(files.paths, Documents({folder.file("a.x"), folder.file("c"), "-"}));
  EXPECT_EQ(files.objects, Documents({folder.file("a.x")}));
  EXPECT_EQ(files.json_lines, Documents({folder.file("a.x")}));
  EXPECT_EQ(files.binary, Documents({folder.file("b.x")}));
  EXPECT_EQ(files.empty, Documents({folder.file("d.x")}));
}

TEST(FindTextFiles, ParquetIsAmongThePathsIfAskedFor) {
  const ScratchFolder folder;
  write_bytes(folder.file("a"), "text");
  write_bytes(folder.file("b"), std::string("PAR1\x15\0PAR1", 10));
  write_bytes(folder.file("c"), "PAR1 is the mark of Parquet");
  const TextFiles plain = find_text_files({folder.file("")});
  EXPECT_EQ(plain.paths, Documents({folder.file("a"), folder.file("c")}));
  ASSERT_EQ(plain.binary, Documents({folder.file("b")}));
  EXPECT_EQ(plain.formats[0].what, "a Parquet file");
  EXPECT_HAS(plain.formats[0].advice, "if Ostrakon was built with Arrow");
  const TextFiles with = find_text_files({folder.file("")}, {}, true);
  EXPECT_EQ(with.paths, Documents({folder.file("a"), folder.file("b"), folder.file("c")}));
  EXPECT_EQ(with.parquet, Documents({folder.file("b")}));
  EXPECT_EQ(with.binary, Documents());
}

}  // namespace
}  // namespace ostrakon::data
