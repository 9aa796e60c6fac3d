// SPDX-License-Identifier: Apache-2.0

// Records as they come from anywhere: whatever is in a file, it is read, or a message says where it
// is wrong.

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <ostrakon/text/sources/document_encoder.hpp>
#include <random>

#include "../support/scratch_folder.hpp"
#include "../support/trials.hpp"
#include "compressed.hpp"
#include "letter_tokenizer.hpp"

namespace ostrakon::texts {
namespace {

using testing::error_of;
using testing::ScratchFolder;
using testing::write_bytes;

TEST(TextOfRecord, FieldsAreFoundByNameAndByPath) {
  const struct {
    const char *line, *field, *text;
  } cases[] = {
      {R"({"text": "a\n\u00e4\ud83d\ude00"})", "text", "a\n\xc3\xa4\xf0\x9f\x98\x80"},
      {R"({"a": {"b": {"c": "x"}}, "c": 3})", "a.b.c", "x"},
      {R"({"a.b": "literal", "a": {"b": "path"}})", "a.b", "literal"},
      {R"({"text": "first", "text": "last"})", "text", "last"},
      {R"( {"": "empty name"} )", "", "empty name"},
      {"\xEF\xBB\xBF{\"text\": \"after a mark\"}", "text", "after a mark"},
      {R"({"n": 123456789012345678901234567890, "text": "big"})", "text", "big"},
  };
  for (const auto& entry : cases)
    EXPECT_EQ(text_of_record(entry.line, entry.field), entry.text) << entry.line;
}

TEST(TextOfRecord, WhatIsWrongIsSaid) {
  const struct {
    const char *line, *field, *message;
  } cases[] = {
      {R"({"text": "a)", "text", "column 12: invalid string: missing closing quote"},
      {R"({"text": "a"} x)", "text", "column 15: invalid literal; expected end of input"},
      {R"({"text": "\ud800"})", "text", "column 17: invalid string: surrogate"},
      {"{\"text\": \"a\xff\"}", "text", "column 12: invalid string: ill-formed UTF-8 byte"},
      {"{\"text\": \"a\tb\"}", "text", "control character"},
      {R"({'text': 1})", "text", "column 2: "},
      {"{", "text", "column 2: unexpected end of input; expected string literal"},
      {R"({"n": 1e999, "text": "a"})", "text", "number overflow"},
      {R"({"text": null})", "text", "field \"text\" is null; expected a string"},
      {R"({"text": ["a"]})", "text", "field \"text\" is an array; expected a string"},
      {R"({"id": 1, "body": ""})", "text", "no field \"text\"; the record has \"id\", \"body\""},
      {"{}", "text", "no field \"text\"; the record has none"},
      {R"(["text"])", "text", "an array where an object with the field \"text\" was expected"},
      {R"({"a": {"c": "x"}})", "a.b", "no field \"b\"; the record has \"c\""},
      {R"({"a": 3})", "a.b", "a number where an object with the field \"b\" was expected"},
  };
  for (const auto& entry : cases)
    EXPECT_HAS(error_of([&] { text_of_record(entry.line, entry.field); }), entry.message)
        << entry.line;
}

/// A file of JSON lines or text that is sound, then changed at random.
class OddFile {
 public:
  explicit OddFile(unsigned seed) : generator_(seed) {
    is_json_ = pick(2) == 0;
    std::string bytes;
    for (unsigned i = pick(8); i-- > 0;) bytes += line();
    if (pick(3) > 0) change(bytes);
    compression_ = pick(3);
    if (compression_ == 1) bytes = testing::gzipped(bytes);
    if (compression_ == 2) bytes = testing::zstd_compressed(bytes);
    if (compression_ > 0 && pick(2) > 0) change(bytes);
    bytes_ = bytes;
  }

  const std::string& bytes() const { return bytes_; }
  bool is_json() const { return is_json_; }

 private:
  unsigned pick(unsigned below) { return static_cast<unsigned>(generator_() % below); }

  std::string line() {
    static const char* const words[] = {"word ", "\xc3\xa4", "\xf0\x9f\x98\x80", "\\",
                                        "\"",    "\x01",     "\xed\xa0\x80",     "%",
                                        "{",     "\xff"};
    std::string text;
    for (unsigned i = pick(30); i-- > 0;) text += words[pick(pick(4) == 0 ? 10 : 3)];
    if (!is_json_) return text + "\n";
    nlohmann::json record = {{pick(9) == 0 ? "body" : "text", text}, {"n", pick(9)}};
    if (pick(9) == 0) record["text"] = {{"text", text}};
    return record.dump(-1, ' ', pick(2) == 0, nlohmann::json::error_handler_t::replace) +
           (pick(20) == 0 ? "\r\n" : "\n");
  }
  /// Flips bits, cuts, repeats and inserts.
  void change(std::string& bytes) {
    for (unsigned i = 1 + pick(3); i-- > 0 && !bytes.empty();) {
      const unsigned at = pick(static_cast<unsigned>(bytes.size()));
      switch (pick(5)) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << pick(8)));
          break;
        case 1:
          bytes.resize(at);
          break;
        case 2:
          bytes.erase(at, 1 + pick(9));
          break;
        case 3:
          bytes.insert(at, bytes.substr(at, 1 + pick(40)));
          break;
        default:
          bytes.insert(at, 1, static_cast<char>(pick(256)));
      }
    }
  }

  std::mt19937 generator_;
  bool is_json_ = false;
  unsigned compression_ = 0;
  std::string bytes_;
};

/// Whether a message begins with the file and a line in it.
bool names_place(const std::string& message, const std::string& path) {
  const std::string begin = "'" + path + "', line ";
  return message.rfind(begin, 0) == 0 && std::isdigit(message[begin.size()]) != 0;
}

// OSTRAKON_ODD_FILES sets their number.
TEST(OddRecords, EachIsReadOrNamedWithItsPlace) {
  const char* const wanted = std::getenv("OSTRAKON_ODD_FILES");
  const int files = wanted != nullptr ? std::atoi(wanted) : tests::trials(4000);
  const ScratchFolder folder;
  const std::string path = folder.file("odd");
  const testing::LetterTokenizer tokenizer;
  EncodeSettings encode;
  encode.after = {300};
  int read = 0, bad = 0, damaged = 0;
  for (int file = 0; file < files; ++file) {
    const OddFile odd(static_cast<unsigned>(file));
    write_bytes(path, odd.bytes());
    ReadSettings settings;
    settings.sources = {
        Source::of(path, odd.is_json() ? SourceKind::json_lines : SourceKind::text)};
    if (file % 3 == 0) settings.separator = "%";
    settings.whole_documents = odd.is_json() || file % 2 == 0;
    settings.portion_bytes = 100;
    try {
      DocumentEncoder encoder(tokenizer, settings.sources, encode);
      RecordReader reader(settings, {});
      for (Portion portion; reader.next(portion);) {
        const EncodedPortion encoded = encoder.encode(portion);
        std::int64_t ids = 0;
        for (const EncodedPortion::Stretch& stretch : encoded.stretches) ids += stretch.ids;
        ASSERT_EQ(ids, static_cast<std::int64_t>(encoded.ids.size())) << file;
        ASSERT_LE(encoded.stretches.size() + encoded.bad.size(), portion.stretches.size()) << file;
        for (const std::string& message : encoded.bad)
          ASSERT_TRUE(names_place(message, path)) << file << "\n" << message;
        read += static_cast<int>(encoded.stretches.size());
        bad += static_cast<int>(encoded.bad.size());
      }
    } catch (const DamagedError& error) {
      ASSERT_TRUE(names_place(error.what(), path)) << file << "\n" << error.what();
      ++damaged;
    }
  }
  EXPECT_GT(read, files / 4);
  EXPECT_GT(bad, files / 4);
  EXPECT_GT(damaged, files / 20);
}

}  // namespace
}  // namespace ostrakon::texts
