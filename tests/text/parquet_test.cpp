// SPDX-License-Identifier: Apache-2.0
#include <arrow/array.h>
#include <arrow/builder.h>
#include <arrow/io/file.h>
#include <arrow/table.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include <nlohmann/json.hpp>
#include <ostrakon/text/sources/corpus.hpp>

#include "../support/scratch_folder.hpp"
#include "letter_tokenizer.hpp"

namespace ostrakon::texts {
namespace {

using testing::error_of;
using testing::LetterTokenizer;
using testing::read_bytes;
using testing::ScratchFolder;
using testing::write_bytes;
using Json = nlohmann::ordered_json;
using Strings = std::vector<std::optional<std::string>>;
using Array = std::shared_ptr<arrow::Array>;

template <class Builder>
void append(Builder& builder, const Strings& values) {
  for (const auto& value : values)
    ASSERT_TRUE((value ? builder.Append(*value) : builder.AppendNull()).ok());
}

template <class Builder>
Array strings(const Strings& values) {
  Builder builder;
  append(builder, values);
  return builder.Finish().ValueOrDie();
}

/// Lists of objects with three fields, of which "name" may be null; nothing is null.
using Message = std::vector<std::optional<std::string>>;
using Messages = std::optional<std::vector<Message>>;

Array messages(const std::vector<Messages>& rows) {
  auto* pool = arrow::default_memory_pool();
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::vector<std::shared_ptr<arrow::ArrayBuilder>> builders;
  for (const char* name : {"role", "content", "name"}) {
    fields.push_back(arrow::field(name, arrow::utf8()));
    builders.push_back(std::make_shared<arrow::StringBuilder>());
  }
  const auto object =
      std::make_shared<arrow::StructBuilder>(arrow::struct_(fields), pool, std::move(builders));
  arrow::ListBuilder list(pool, object);
  for (const Messages& row : rows) {
    EXPECT_TRUE((row ? list.Append() : list.AppendNull()).ok());
    if (!row) continue;
    for (const Message& message : *row) {
      EXPECT_TRUE(object->Append().ok());
      for (int i = 0; i < 3; ++i)
        append(static_cast<arrow::StringBuilder&>(*object->field_builder(i)),
               {message[static_cast<std::size_t>(i)]});
    }
  }
  return list.Finish().ValueOrDie();
}

Array numbers(std::int64_t count) {
  arrow::Int64Builder builder;
  for (std::int64_t i = 0; i < count; ++i) EXPECT_TRUE(builder.Append(i).ok());
  return builder.Finish().ValueOrDie();
}

class Parquet : public ::testing::Test {
 protected:
  Source table(const std::string& name, const std::vector<std::pair<std::string, Array>>& columns,
               std::int64_t group_rows = 3) {
    std::vector<std::shared_ptr<arrow::Field>> fields;
    std::vector<Array> arrays;
    for (const auto& [column, array] : columns) {
      fields.push_back(arrow::field(column, array->type()));
      arrays.push_back(array);
    }
    const std::string path = folder_.file(name);
    const auto file = arrow::io::FileOutputStream::Open(path).ValueOrDie();
    // With Arrow's schema, so that types are read as they were written.
    const auto properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
    EXPECT_TRUE(parquet::arrow::WriteTable(*arrow::Table::Make(arrow::schema(fields), arrays),
                                           arrow::default_memory_pool(), file, group_rows,
                                           parquet::default_writer_properties(), properties)
                    .ok());
    EXPECT_TRUE(file->Close().ok());
    return Source::of(path, SourceKind::parquet);
  }

  /// The documents and the number of each row that has one.
  using Rows = std::vector<std::pair<std::int64_t, std::string>>;
  Rows read(const ReadSettings& settings, const Place& from = {},
            std::vector<Place>* places = nullptr) {
    Rows rows;
    RecordReader reader(settings, from);
    for (Portion portion; reader.next(portion);) {
      for (const Stretch& stretch : portion.stretches)
        rows.emplace_back(stretch.line,
                          portion.bytes.substr(stretch.begin, stretch.end - stretch.begin));
      if (places != nullptr) places->push_back(portion.after);
    }
    return rows;
  }

  ScratchFolder folder_;
};

TEST_F(Parquet, RowsAreDocumentsOfAnyTypeOfStrings) {
  const Strings values = {"one", "", std::nullopt, "\xC3\xA4\n\"", "two", "one", std::nullopt};
  const Rows expected = {{1, "one"}, {2, ""}, {4, "\xC3\xA4\n\""}, {5, "two"}, {6, "one"}};
  ReadSettings settings;
  settings.sources = {table("a", {{"id", numbers(7)},
                                  {"text", strings<arrow::StringBuilder>(values)},
                                  {"large", strings<arrow::LargeStringBuilder>(values)},
                                  {"view", strings<arrow::StringViewBuilder>(values)},
                                  {"code", strings<arrow::StringDictionaryBuilder>(values)}})};
  for (const char* column : {"text", "large", "view", "code"}) {
    settings.columns.field = column;
    EXPECT_EQ(read(settings), expected) << column;
  }
}

TEST_F(Parquet, WhatIsNotReadIsSaid) {
  ReadSettings settings;
  const auto refusal = [&](const std::string& field, bool chats) {
    settings.columns = {field, chats};
    return error_of([&] { read(settings); });
  };
  settings.sources = {table("a", {{"id", numbers(1)},
                                  {"list", messages({std::nullopt})},
                                  {"tools", numbers(1)},
                                  {"twice", numbers(1)},
                                  {"twice", numbers(1)}})};
  EXPECT_HAS(refusal("text", false), "a': no column \"text\"; the file has \"id\", \"list\", ");
  EXPECT_HAS(refusal("m", true), "no column \"m\", nor \"prompt\" and \"completion\"; the file");
  EXPECT_HAS(refusal("id", false), "a': column \"id\" is of type int64; expected strings");
  EXPECT_HAS(refusal("list", false), "column \"list\" is of type list<");
  EXPECT_HAS(refusal("id", true), "int64; expected lists of structs of strings, or strings of");
  EXPECT_HAS(refusal("list", true), "column \"tools\" is of type int64; expected strings of JSON");
  EXPECT_HAS(refusal("twice", false), "several columns have the name \"twice\"");
}

TEST_F(Parquet, GoesOnFromWhereverItEnded) {
  Strings values;
  for (int i = 0; i < 200; ++i)
    values.push_back(i % 7 == 0 ? std::nullopt
                                : std::optional<std::string>(std::string(i, 'x') + "\n"));
  const Array texts = strings<arrow::StringBuilder>(values);
  ReadSettings settings;
  settings.sources = {table("a", {{"text", texts}}, 30), table("b", {{"text", texts}}, 1000)};
  settings.portion_bytes = 1000;
  std::vector<Place> places;
  const Rows all = read(settings, {}, &places);
  EXPECT_EQ(all.size(), 2u * 171);
  ASSERT_GT(places.size(), 30u);
  std::size_t before = 0;
  RecordReader reader(settings, {});
  for (const Place& place : places) {
    Portion portion;
    ASSERT_TRUE(reader.next(portion));
    before += portion.stretches.size();
    EXPECT_EQ(read(settings, place),
              Rows(all.begin() + static_cast<std::ptrdiff_t>(before), all.end()));
  }
  EXPECT_HAS(error_of([&] {
               read(settings, {1, 0, 302, false, false, 0});
             }),
             "b' has 200 rows, but 301 were read of it before; it has changed");
}

const char* const turns =
    "{% for m in messages %}<{{ m.role }}{{ m.name is defined }}>"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}|{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}{{ tools }}";

TEST_F(Parquet, ChatsAreThoseOfJsonLines) {
  const auto tokenizer = open_tokenizer("byte");
  const ChatTemplate turns_template(turns, "turns", Json::object());
  EncodeSettings encode;
  encode.chats = true;
  encode.field = "messages";
  encode.chat_template = &turns_template;
  const auto encoded = [&](const Source& source) {
    ReadSettings settings;
    settings.sources = {source};
    settings.columns = {"messages", true};
    Portion portion;
    RecordReader reader(settings, {});
    if (!reader.next(portion)) return EncodedPortion();
    return DocumentEncoder(*tokenizer, settings.sources, encode).encode(portion);
  };
  const std::string quote = "\"\\\n\x01\xC3\xA4";
  const std::string first = R"([{"role": "user", "content": "a", "name": "x"},
                                {"role": "assistant", "content": "b"}])";
  const std::string second = Json{{{"role", "assistant"}, {"content", quote}}}.dump();
  const std::string tool = R"([{"name": "t"}])";
  const auto line = [&](const std::string& chat, const std::string& tools) {
    return Json{{"messages", Json::parse(chat)}, {"tools", Json::parse(tools)}}.dump() + "\n";
  };
  write_bytes(folder_.file("lines"), line(first, tool) + line(second, "null"));
  const EncodedPortion expected =
      encoded(Source::of(folder_.file("lines"), SourceKind::json_lines));
  ASSERT_EQ(expected.bad, std::vector<std::string>());
  ASSERT_EQ(expected.stretches.size(), 2u);

  const Array lists = messages({{{{"user", "a", "x"}, {"assistant", "b", std::nullopt}}},
                                std::nullopt,
                                {{{"assistant", quote, std::nullopt}}}});
  const Array tools = strings<arrow::StringBuilder>({tool, tool, std::nullopt});
  const Array texts = strings<arrow::StringBuilder>({first, std::nullopt, second});
  for (const Array& chats : {lists, texts}) {
    const EncodedPortion found = encoded(table("a", {{"tools", tools}, {"messages", chats}}));
    EXPECT_EQ(found.bad, std::vector<std::string>());
    EXPECT_EQ(found.ids, expected.ids);
    EXPECT_EQ(found.counts, expected.counts);
  }

  write_bytes(folder_.file("lines"), R"({"prompt": "a", "completion": "b"})");
  const auto columns = [&](const char* completion) {
    return std::vector<std::pair<std::string, Array>>{
        {"prompt", strings<arrow::StringBuilder>({"a"})},
        {"completion", strings<arrow::StringBuilder>({completion})}};
  };
  EXPECT_EQ(encoded(table("a", columns("b"))).ids,
            encoded(Source::of(folder_.file("lines"), SourceKind::json_lines)).ids);

  const auto bad = [&](const std::string& text) {
    return encoded(table("a", {{"messages", strings<arrow::StringBuilder>({text})}})).bad.at(0);
  };
  EXPECT_HAS(bad("[{]"), "a', row 1: the JSON in the column \"messages\": column 3: ");
  EXPECT_HAS(bad("{}"), "row 1: 'messages' is {}; expected a list of messages");
  EXPECT_HAS(encoded(table("a", columns("b\xff"))).bad.at(0), "row 1: its text is not UTF-8");
}

TEST_F(Parquet, BuildsWithAnyNumberOfWorkers) {
  Strings values;
  std::string lines;
  for (int i = 0; i < 300; ++i) {
    values.push_back(std::string(static_cast<std::size_t>(i), 'y') + "\xC3\xA4");
    lines += Json{{"text", *values.back()}}.dump() + "\n";
  }
  write_bytes(folder_.file("lines"), lines);
  values[7] = "\xff";
  const LetterTokenizer tokenizer;
  CorpusSettings settings;
  settings.read.portion_bytes = 1 << 12;
  settings.encode.after = {LetterTokenizer::special};
  settings.most_bad = 1;
  std::vector<std::string> bad;
  const auto built = [&](const Source& source, int workers) {
    settings.read.sources = {source};
    settings.workers = workers;
    TokenStore::Settings to;
    to.folder = folder_.file("store");
    to.vocabulary = tokenizer.vocabulary();
    const auto store = TokenStore::begin(to, {{"made", "of this"}});
    encode_corpus(
        settings, tokenizer, *store, [](const Progress&) {},
        [&](const std::string& what) { bad.push_back(what); });
    std::vector<std::vector<std::int32_t>> documents;
    store->read([&](const TokenStore::Document& document) {
      documents.emplace_back(document.ids, document.ids + document.count);
    });
    store->remove();
    return documents;
  };
  const Source rows = table("a", {{"text", strings<arrow::StringBuilder>(values)}}, 40);
  auto expected = built(Source::of(folder_.file("lines"), SourceKind::json_lines), 1);
  ASSERT_EQ(expected.size(), 300u);
  expected.erase(expected.begin() + 7);
  for (const int workers : {1, 3}) EXPECT_EQ(built(rows, workers), expected);
  ASSERT_EQ(bad.size(), 2u);
  EXPECT_HAS(bad[1], "a', row 8: byte 1 of its text is not UTF-8, which the tokenizer letters");
}

TEST_F(Parquet, DamagedFilesAreErrors) {
  Strings values;
  for (int i = 0; i < 50; ++i) values.push_back("text " + std::to_string(i));
  const Source source = table("a", {{"text", strings<arrow::StringBuilder>(values)}}, 20);
  const std::string bytes = read_bytes(source.path);
  ReadSettings settings;
  settings.sources = {source};
  const auto refusal = [&](const std::string& damaged) {
    write_bytes(source.path, damaged);
    return error_of([&] { read(settings); });
  };
  EXPECT_HAS(refusal(bytes.substr(0, bytes.size() / 2)), "a': Arrow can't read this Parquet file");
  EXPECT_HAS(refusal("PAR1"), "a': Arrow can't read this Parquet file");
  std::string zeros = bytes;
  std::fill_n(zeros.begin() + 4, 200, '\0');
  EXPECT_HAS(refusal(zeros), "a', row 1: Arrow can't read this Parquet file");
  for (std::size_t at = 0; at < bytes.size(); at += 7) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    const std::string error = refusal(damaged);
    EXPECT_TRUE(error == "no error" || testing::contains(error, "a'")) << error;
  }
}

}  // namespace
}  // namespace ostrakon::texts
