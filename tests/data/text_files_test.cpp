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

/// Returns a sink that appends every document to `documents`.
DocumentSink collect(Documents& documents, std::string& open) {
  return {[&](std::string_view piece) {
            EXPECT_FALSE(piece.empty());
            open += piece;
          },
          [&] {
            EXPECT_FALSE(open.empty());
            documents.push_back(open);
            open.clear();
          }};
}

Documents documents_in(const std::string& path, const std::optional<std::string>& separator) {
  Documents documents;
  std::string open;
  read_documents(path, separator, collect(documents, open));
  EXPECT_EQ(open, "");
  return documents;
}

Documents split_text(const std::string& content, const std::optional<std::string>& separator) {
  const ScratchFolder folder;
  write_bytes(folder.file("text"), content);
  return documents_in(folder.file("text"), separator);
}

TEST(ReadDocuments, WholeFileWithoutSeparator) {
  EXPECT_EQ(split_text("one\n%\ntwo", std::nullopt), Documents({"one\n%\ntwo"}));
  EXPECT_EQ(split_text("", std::nullopt), Documents());
  const std::string large(3'000'000, 'x');
  EXPECT_EQ(split_text(large, std::nullopt), Documents({large}));
}

TEST(ReadDocuments, SplitsAtLinesThatEqualTheSeparator) {
  EXPECT_EQ(split_text("one\n%\ntwo\n%\n", "%"), Documents({"one\n", "two\n"}));
  EXPECT_EQ(split_text("%\n%\none\r\n%\r\ntwo\n%", "%"), Documents({"one\r\n", "two\n"}));
  EXPECT_EQ(split_text("100 %\n%%\n %\n%x\n%\n", "%"), Documents({"100 %\n%%\n %\n%x\n"}));
  EXPECT_EQ(split_text("%\rx\n%\r\r\n", "%"), Documents({"%\rx\n%\r\r\n"}));
  EXPECT_EQ(split_text("a\n---\nb\n--\n----\n-", "---"), Documents({"a\n", "b\n--\n----\n-"}));
  EXPECT_EQ(split_text("a\n\nb\n\n\nc", ""), Documents({"a\n", "b\n", "c"}));
  EXPECT_EQ(split_text("%", "%"), Documents());
}

TEST(ReadDocuments, SeparatorsAcrossBlocks) {
  // Blocks have 1 MiB: the separator, and lines that begin like it, are placed across their
  // boundary.
  for (std::size_t before = (1 << 20) - 8; before < (1 << 20) + 2; ++before) {
    std::string first(before, 'x');
    first.back() = '\n';
    EXPECT_EQ(split_text(first + "-=-=-\r\nsecond", "-=-=-"), Documents({first, "second"}));
    EXPECT_EQ(split_text(first + "-=-=-+\nsecond", "-=-=-"), Documents({first + "-=-=-+\nsecond"}));
  }
}

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

struct Sides {
  Documents training, validation;
};

Sides split(const ScratchFolder& folder, const std::string& content, CorpusSettings settings) {
  write_bytes(folder.file("text"), content);
  settings.paths = {folder.file("text")};
  Sides sides;
  std::string training_open, validation_open;
  split_corpus(settings, [&] {
    sides = {};
    training_open.clear();
    validation_open.clear();
    return SplitCorpus{collect(sides.training, training_open),
                       collect(sides.validation, validation_open)};
  });
  EXPECT_EQ(training_open + validation_open, "");
  return sides;
}

std::string numbered(int documents) {
  std::string content;
  for (int i = 0; i < documents; ++i) content += std::to_string(i) + "\n%\n";
  return content;
}

TEST(SplitCorpus, SendsEachDocumentToOneSide) {
  const ScratchFolder folder;
  CorpusSettings settings;
  settings.separator = "%";
  const Sides sides = split(folder, numbered(4000), settings);
  EXPECT_EQ(sides.training.size() + sides.validation.size(), 4000u);
  EXPECT_NEAR(static_cast<double>(sides.validation.size()), 200.0, 60.0);
  EXPECT_EQ(split(folder, numbered(4000), settings).validation, sides.validation);
  settings.seed = 2;
  EXPECT_NE(split(folder, numbered(4000), settings).validation, sides.validation);
}

TEST(SplitCorpus, LeavesNoSideEmpty) {
  const ScratchFolder folder;
  CorpusSettings settings;
  settings.separator = "%";
  for (int documents = 2; documents < 6; ++documents) {
    for (const double fraction : {1e-9, 0.05, 0.5, 0.95, 0.999999}) {
      for (settings.seed = 1; settings.seed < 6; ++settings.seed) {
        settings.validation_fraction = fraction;
        const Sides sides = split(folder, numbered(documents), settings);
        EXPECT_EQ(sides.training.size() + sides.validation.size(),
                  static_cast<std::size_t>(documents));
        EXPECT_GE(sides.training.size(), 1u);
        EXPECT_GE(sides.validation.size(), 1u);
      }
    }
  }
}

TEST(SplitCorpus, CutsASingleDocument) {
  const ScratchFolder folder;
  CorpusSettings settings;
  settings.validation_fraction = 0.25;
  Sides sides = split(folder, "12345678", settings);
  EXPECT_EQ(sides.training, Documents({"123456"}));
  EXPECT_EQ(sides.validation, Documents({"78"}));
  sides = split(folder,
                "12345\xC3\xA4"
                "8",
                settings);  // the cut is inside an a umlaut
  EXPECT_EQ(sides.training, Documents({"12345\xC3\xA4"}));
  EXPECT_EQ(sides.validation, Documents({"8"}));
  sides = split(folder, "12", settings);
  EXPECT_EQ(sides.training, Documents({"1"}));
  EXPECT_EQ(sides.validation, Documents({"2"}));
  const std::string large(5'000'000, 'x');
  sides = split(folder, large, settings);
  EXPECT_EQ(sides.training, Documents({std::string(3'750'000, 'x')}));
  EXPECT_EQ(sides.validation, Documents({std::string(1'250'000, 'x')}));
}

TEST(SplitCorpus, WithoutValidation) {
  const ScratchFolder folder;
  CorpusSettings settings;
  settings.validation_fraction = 0.0;
  const Sides sides = split(folder, "text", settings);
  EXPECT_EQ(sides.training, Documents({"text"}));
  EXPECT_EQ(sides.validation, Documents());
  settings.validation_fraction = 1.0;
  EXPECT_EQ(error_of([&] { split(folder, "text", settings); }),
            "a validation fraction of 1; expected at least 0 and less than 1");
}

}  // namespace
}  // namespace ostrakon::data
