// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/text/sources/record_reader.hpp>
#include <random>

#include "../support/scratch_folder.hpp"
#include "compressed.hpp"

namespace ostrakon::texts {
namespace {

using testing::error_of;
using testing::ScratchFolder;
using testing::write_bytes;

using Documents = std::vector<std::string>;

/// Reads all portions from a place on, and joins the stretches of documents.
Documents read_all(const ReadSettings& settings, const Place& from = {},
                   std::vector<Place>* places = nullptr) {
  RecordReader reader(settings, from);
  Documents documents;
  bool is_open = from.inside_document;
  if (is_open) documents.emplace_back();
  for (Portion portion; reader.next(portion);) {
    EXPECT_FALSE(portion.stretches.empty());
    for (const Stretch& stretch : portion.stretches) {
      EXPECT_EQ(stretch.begins, !is_open);
      EXPECT_TRUE(stretch.ends || !settings.whole_documents);
      if (!is_open) documents.emplace_back();
      documents.back().append(portion.bytes, stretch.begin, stretch.end - stretch.begin);
      is_open = !stretch.ends;
    }
    if (places != nullptr) places->push_back(portion.after);
  }
  EXPECT_FALSE(is_open);
  return documents;
}

class Reading : public ::testing::Test {
 protected:
  /// Writes files and lists them as sources.
  ReadSettings of(const std::vector<std::string>& contents, SourceKind kind = SourceKind::text) {
    ReadSettings settings;
    for (const std::string& content : contents) {
      const std::string path = folder_.file("source" + std::to_string(files_++));
      write_bytes(path, content);
      settings.sources.push_back(Source::of(path, kind));
    }
    return settings;
  }
  /// The documents of a text, which are the same in stretches and as a whole.
  Documents split(const std::string& content, const std::optional<std::string>& separator) {
    ReadSettings settings = of({content});
    settings.separator = separator;
    const Documents whole = read_all(settings);
    settings.whole_documents = false;
    EXPECT_EQ(read_all(settings), whole);
    return whole;
  }

  ScratchFolder folder_;
  int files_ = 0;
};

TEST_F(Reading, AFileIsADocumentWithoutSeparator) {
  EXPECT_EQ(split("one\n%\ntwo", std::nullopt), Documents({"one\n%\ntwo"}));
  EXPECT_EQ(split("", std::nullopt), Documents());
  const std::string large(3'000'000, 'x');
  EXPECT_EQ(split(large, std::nullopt), Documents({large}));
  EXPECT_EQ(read_all(of({"a", "", "b\n"})), Documents({"a", "b\n"}));
}

TEST_F(Reading, DocumentsEndAtLinesThatEqualTheSeparator) {
  EXPECT_EQ(split("one\n%\ntwo\n%\n", "%"), Documents({"one\n", "two\n"}));
  EXPECT_EQ(split("%\n%\none\r\n%\r\ntwo\n%", "%"), Documents({"one\r\n", "two\n"}));
  EXPECT_EQ(split("100 %\n%%\n %\n%x\n%\n", "%"), Documents({"100 %\n%%\n %\n%x\n"}));
  EXPECT_EQ(split("%\rx\n%\r\r\n", "%"), Documents({"%\rx\n%\r\r\n"}));
  EXPECT_EQ(split("a\n---\nb\n--\n----\n-", "---"), Documents({"a\n", "b\n--\n----\n-"}));
  EXPECT_EQ(split("a\n\nb\n\n\nc", ""), Documents({"a\n", "b\n", "c"}));
  EXPECT_EQ(split("%", "%"), Documents());
}

TEST_F(Reading, SeparatorsAcrossBlocks) {
  // Blocks have 256 KiB: the separator, and lines that begin like it, are placed across their
  // boundary.
  for (std::size_t before = (1 << 18) - 8; before < (1 << 18) + 2; ++before) {
    std::string first(before, 'x');
    first.back() = '\n';
    EXPECT_EQ(split(first + "-=-=-\r\nsecond", "-=-=-"), Documents({first, "second"}));
    EXPECT_EQ(split(first + "-=-=-+\nsecond", "-=-=-"), Documents({first + "-=-=-+\nsecond"}));
  }
}

TEST_F(Reading, LinesOfJsonAreDocumentsWithTheirNumbers) {
  const ReadSettings settings = of({"{}\n\n{ }\r\n{\"a\":\n", "{1}"}, SourceKind::json_lines);
  RecordReader reader(settings, {});
  Portion portion;
  ASSERT_TRUE(reader.next(portion));
  std::vector<std::int64_t> lines;
  for (const Stretch& stretch : portion.stretches) lines.push_back(stretch.line);
  EXPECT_EQ(lines, std::vector<std::int64_t>({1, 3, 4, 1}));
  EXPECT_EQ(portion.stretches.back().source, 1u);
  EXPECT_FALSE(reader.next(portion));
  EXPECT_EQ(read_all(settings), Documents({"{}", "{ }\r", "{\"a\":", "{1}"}));
}

/// Random text of few letters, so that separators and line ends are everywhere.
std::string odd_text(std::mt19937& generator, std::size_t size) {
  std::string bytes(size, 'a');
  for (char& byte : bytes) byte = "a%%\n\r\xc3"[generator() % 6];
  return bytes;
}

TEST_F(Reading, GoesOnFromWhereverItEnded) {
  std::mt19937 generator(3);
  for (const SourceKind kind : {SourceKind::text, SourceKind::json_lines}) {
    for (const bool is_whole : {true, false}) {
      for (const std::optional<std::string>& separator :
           {std::optional<std::string>(), std::optional<std::string>("%"),
            std::optional<std::string>("a%a%")}) {
        if (kind == SourceKind::json_lines && (separator || !is_whole)) continue;
        ReadSettings settings = of({odd_text(generator, 700'000), odd_text(generator, 5),
                                    testing::gzipped(odd_text(generator, 900'000)), "",
                                    testing::zstd_compressed(odd_text(generator, 300'001))},
                                   kind);
        settings.separator = separator;
        settings.whole_documents = is_whole;
        settings.portion_bytes = 1 << 17;
        std::vector<Place> places;
        const Documents all = read_all(settings, {}, &places);
        ASSERT_GE(places.size(), 3u);
        std::size_t before = 0;  // documents that ended before a place
        std::string open;        // what was read of the document that is open there
        RecordReader reader(settings, {});
        for (const Place& place : places) {
          Portion portion;
          ASSERT_TRUE(reader.next(portion));
          for (const Stretch& stretch : portion.stretches) {
            open.append(portion.bytes, stretch.begin, stretch.end - stretch.begin);
            if (!stretch.ends) continue;
            ++before;
            open.clear();
          }
          Documents rest = read_all(settings, place);
          if (place.inside_document) rest[0] = open + rest[0];
          ASSERT_EQ(rest, Documents(all.begin() + static_cast<std::ptrdiff_t>(before), all.end()));
        }
      }
    }
  }
}

TEST_F(Reading, ADocumentIsCutAtACharacter) {
  ReadSettings settings =
      of({"12345\xC3\xA4"
          "8"});
  const struct {
    std::int64_t cut;
    Documents expected;
  } cases[] = {{-1,
                {"12345\xC3\xA4"
                 "8"}},
               {1,
                {"1",
                 "2345\xC3\xA4"
                 "8"}},
               {5,
                {"12345",
                 "\xC3\xA4"
                 "8"}},
               {6, {"12345\xC3\xA4", "8"}},
               {7, {"12345\xC3\xA4", "8"}}};
  for (const auto& entry : cases) {
    settings.cut = entry.cut;
    for (const bool is_whole : {true, false}) {
      settings.whole_documents = is_whole;
      EXPECT_EQ(read_all(settings), entry.expected) << entry.cut;
    }
  }
  const std::string large(3'000'000, 'x');
  settings = of({large});
  settings.whole_documents = false;
  settings.cut = 2'500'000;
  std::vector<Place> places;
  EXPECT_EQ(read_all(settings, {}, &places),
            Documents({std::string(2'500'000, 'x'), std::string(500'000, 'x')}));
  for (const Place& place : places) {
    const Documents rest = read_all(settings, place);
    if (place.source > 0) continue;
    if (place.offset < 2'500'000)
      EXPECT_EQ(rest.size(), 2u) << place.offset;
    else
      EXPECT_EQ(rest.back().size(), static_cast<std::size_t>(3'000'000 - place.offset));
  }
}

TEST_F(Reading, EmptyLinesOfJsonTakeNoMemory) {
  RecordReader reader(of({"1\n" + std::string(3'000'000, '\n') + "2\n\n"}, SourceKind::json_lines),
                      {});
  Portion portion;
  ASSERT_TRUE(reader.next(portion));
  EXPECT_EQ(portion.bytes, "12");
  ASSERT_EQ(portion.stretches.size(), 2u);
  EXPECT_EQ(portion.stretches[1].line, 3'000'002);
  EXPECT_FALSE(reader.next(portion));
}

TEST_F(Reading, WhatCantBeReadIsNamedWithItsLine) {
  const std::string lines = "{}\n{}\n{}\n";
  const std::string damaged = testing::gzipped(lines);
  const ReadSettings settings = of({damaged.substr(0, damaged.size() - 3)}, SourceKind::json_lines);
  const std::string error = error_of([&] { read_all(settings); });
  EXPECT_HAS(error, "source0', line 4: its gzip data is truncated");
  EXPECT_HAS(error_of([&] {
               read_all(of({"short"}), {0, 9, 1, false, false, 0});
             }),
             "ends at byte 5 of its text, but 9 bytes were read of it before");
}

}  // namespace
}  // namespace ostrakon::texts
