// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_tokenizer.hpp>
#include <ostrakon/text/tokenizer.hpp>
#include <thread>

#include "support/messages.hpp"
#include "support/scratch_folder.hpp"
#include "support/table.hpp"

namespace ostrakon::texts {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;
using testing::error_of;
using testing::read_bytes;
using testing::ScratchFolder;
using testing::write_bytes;

const std::string folder = std::string(OSTRAKON_SOURCE_DIR) + "/tests/text/tokenizers/";

Ids encoded(const Tokenizer& tokenizer, const std::string& text, bool finds_special = false) {
  Ids ids;
  tokenizer.encoder()->encode(text, finds_special, ids);
  return ids;
}

std::string decoded(const Tokenizer& tokenizer, const Ids& ids, bool skips_special) {
  return tokenizer.decode(ids.data(), static_cast<std::int64_t>(ids.size()), skips_special);
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skips_special) {
  const auto stream = tokenizer.stream(skips_special);
  std::string text;
  for (const std::int32_t id : ids) text += stream->next(id);
  return text + stream->finish();
}

Json described(const std::string& name) {
  return Json::parse(read_bytes(folder + name + "/tokenizer.json"));
}

/// Opens a tokenizer.json in a folder of its own, with what lies beside it.
std::unique_ptr<Tokenizer> opened(const Json& json,
                                  const std::map<std::string, Json>& beside = {}) {
  const ScratchFolder scratch;
  write_bytes(scratch.file("tokenizer.json"), json.dump());
  for (const auto& [name, content] : beside) write_bytes(scratch.file(name), content.dump());
  return open_tokenizer(scratch.file(""));
}

// compare_tokenizers.py: what the library `tokenizers` makes of the texts.
TEST(TokenizerJson, IdsAndTextsAreThoseOfTheLibrary) {
  int cases = 0, with_special = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const auto tokenizer = open_tokenizer(entry.path().string());
    const auto encoder = tokenizer->encoder();
    for (const Json& row : Json::parse(read_bytes((entry.path() / "cases.json").string()))) {
      SCOPED_TRACE(entry.path().filename().string() + " " + row.dump());
      const std::string text = row[0];
      Ids ids, found;
      encoder->encode(text, false, ids);
      encoder->encode(text, true, found);
      EXPECT_EQ(ids, row[1].get<Ids>());
      EXPECT_EQ(found, (row[2].is_null() ? row[1] : row[2]).get<Ids>());
      const auto expected = [&](int i) {
        return row[i].is_null() ? text : row[i].get<std::string>();
      };
      EXPECT_EQ(decoded(*tokenizer, found, true), expected(3));
      EXPECT_EQ(decoded(*tokenizer, found, false), expected(4));
      EXPECT_EQ(streamed(*tokenizer, found, true), expected(3));
      EXPECT_EQ(streamed(*tokenizer, found, false), expected(4));
      ++cases;
      with_special += row[2].is_null() ? 0 : 1;
    }
  }
  EXPECT_GE(cases, 2500);
  EXPECT_GE(with_special, 100);
}

TEST(TokenizerJson, StreamsHoldBackPartsOfCharacters) {
  const auto tokenizer = open_tokenizer(folder + "gpt2");
  const std::string bead = "\U0001f9ff";
  const Ids ids = encoded(*tokenizer, bead);
  ASSERT_GE(ids.size(), 2U);
  const auto stream = tokenizer->stream(false);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(stream->next(ids[i]), "");
  EXPECT_EQ(stream->next(ids.back()), bead);
  EXPECT_EQ(stream->next(ids[0]), "");
  EXPECT_EQ(stream->finish(), "\ufffd");
}

// A row: the tokenizer, the field of its file that is changed, and what the message says.
TEST(TokenizerJson, WhatIsNotImplementedIsRefusedByName) {
  const std::string table = R"(
    gpt2 | /version = "2.0" | version is "2.0"; expected 1.0
    gpt2 | /truncation = {"max_length": 5} | truncation is {"max_length":5}; expected null
    gpt2 | /padding = {"strategy": "BatchLongest"} | padding is .. expected null
    gpt2 | /extra = 1 | the field extra (1) is not implemented
    gpt2 | /model/type = "WordPiece" | model.type "WordPiece" is not implemented
    gpt2 | /model/type = "WordLevel" | model.type "WordLevel" is not implemented
    gpt2 | /model/dropout = 0.1 | model.dropout is 0.1; expected null or 0
    gpt2 | /model/continuing_subword_prefix = "##" | model.continuing_subword_prefix is "##"
    gpt2 | /model/end_of_word_suffix = "</w>" | model.end_of_word_suffix is "</w>"
    gpt2 | /model/cache_capacity = 5 | the field model.cache_capacity (5) is not implemented
    gpt2 | /model/vocab/the = 3 | model.vocab.the is 3; expected an id
    gpt2 | /model/vocab/the = -3 | model.vocab.the is -3; expected an id less
    gpt2 | /model/merges/2 = "a b c" | model.merges[2] is "a b c"; expected two tokens
    gpt2 | /model/merges/2 = ["a"] | model.merges[2] is ["a"]; expected two tokens
    gpt2 | /model/merges/2 = ["q", "\u0120zq"] | model.merges[2] is .. tokens of the vocabulary
    gpt2 | /added_tokens/0/id = 7 | added_tokens[0].id is 7; expected 500
    gpt2 | /added_tokens/0/content = "" | added_tokens[0].content is ""
    gpt2 | /added_tokens/0/color = 1 | the field added_tokens[0].color (1) is not implemented
    gpt2 | /added_tokens/0/lstrip = 1 | added_tokens[0].lstrip is 1; expected true or false
    gpt2 | /normalizer = {"type": "Nmt"} | normalizer.type "Nmt" is not implemented
    gpt2 | /normalizer = {"type": "BertNormalizer"} | normalizer.type "BertNormalizer"
    gpt2 | /normalizer = {"type": "ByteLevel"} | normalizer.type "ByteLevel" is not implemented
    gpt2 | /normalizer = {"type": "NFC", "form": 1} | the field normalizer.form (1)
    gpt2 | /pre_tokenizer = {"type": "BertPreTokenizer"} | pre_tokenizer.type "BertPreTokenizer"
    gpt2 | /pre_tokenizer = {"type": "UnicodeScripts"} | pre_tokenizer.type "UnicodeScripts"
    gpt2 | /pre_tokenizer = {"type": "FixedLength", "length": 5} | pre_tokenizer.type "FixedLength"
    gpt2 | /pre_tokenizer = {"type": "CharDelimiterSplit", "delimiter": "-"} | pre_tokenizer.type
    gpt2 | /pre_tokenizer/use_regex = 1 | pre_tokenizer.use_regex is 1; expected true or false
    llama3 | /pre_tokenizer/pretokenizers/0/behavior = "Glued" | [0].behavior is "Glued"
    llama3 | /pre_tokenizer/pretokenizers/0/pattern = {"String": ""} | pattern.String is ""
    llama3 | /pre_tokenizer/pretokenizers/0/pattern = {"Glob": "*"} | pattern.String is missing
    llama3 | /post_processor/processors/1/type = "Pairs" | post_processor.processors[1].type "Pairs"
    llama3 | /post_processor/processors/1/single = [] | processors[1].single is []; expected one
    gpt2 | /decoder = {"type": "WordPiece"} | decoder.type "WordPiece" is not implemented
    gpt2 | /decoder = {"type": "BPEDecoder"} | decoder.type "BPEDecoder" is not implemented
    gpt2 | /decoder = {"type": "CTC"} | decoder.type "CTC" is not implemented
    llama2 | /decoder/decoders/3/stop = 1 | decoder.decoders[3].stop is 1; expected 0
    mistral | /normalizer = {"type": "StripAccents"} | normalizer is .. prepend_scheme first
    mistral | /pre_tokenizer/prepend_scheme = "last" | pre_tokenizer.prepend_scheme is "last"
    mistral | /pre_tokenizer/replacement = "ab" | pre_tokenizer.replacement is "ab"; expected one)";
  for (const auto& row : testing::rows_of(table)) {
    SCOPED_TRACE(row[0] + " " + row[1]);
    Json json = described(row[0]);
    const auto change = testing::split(row[1], " = ");
    json[Json::json_pointer(change.at(0))] = Json::parse(change.at(1));
    const std::string message = error_of([&] { opened(json); });
    EXPECT_HAS(message, "tokenizer.json': ");
    EXPECT_PRED2(testing::says, message, row[2]);
  }
}

// Each is either no regular expression of Oniguruma, or one of which PCRE2 would make another.
TEST(TokenizerJson, RegularExpressionsOfAnotherMeaningAreRefused) {
  for (const char* const regex :
       {"a*",          "(",       ")",     "[",         "[]",      "[^]",           "a**",
        "\\w+",        "\\b",     "\\h+",  "\\R",       "\\X",     "\\K",           "\\1(a)",
        "(?<x>a)",     "(?<=a)b", "(?i)a", "(?m:.)",    "(?#a)",   "[[:alpha:]]",   "[a&&b]",
        "[a[^b]]",     "[b-a]",   "a{2}?", "a{3,2}",    "a{",      "a{x}",          "\\p{Han}",
        "\\p{Foo}",    "\\pL",    "\\x41", "\\x{d800}", "(?i:ss)", "(?i:\xc3\xa4)", "(?i:[a-z])",
        "(?i:\\p{L})", "\\"}) {
    Json json = described("llama3");
    json["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"Regex", regex}};
    EXPECT_HAS(error_of([&] { opened(json); }), "pre_tokenizer.pretokenizers[0].pattern.Regex is ");
  }
}

TEST(TokenizerJson, EndsComeFromTheFilesBesideIt) {
  const Json json = described("llama3");
  const std::int32_t begin = 500, eot = 501;  // <|begin_of_text|>, <|eot_id|>
  EXPECT_EQ(opened(json)->begin(), std::nullopt);
  EXPECT_EQ(opened(json)->ends(), Ids());

  const Json config = {{"bos_token_id", 3}, {"eos_token_id", {4, 5}}};
  auto tokenizer = opened(json, {{"config.json", config}});
  EXPECT_EQ(tokenizer->begin(), 3);
  EXPECT_EQ(tokenizer->end(), 4);
  EXPECT_EQ(tokenizer->ends(), (Ids{4, 5}));

  const Json map = {{"bos_token", "<|begin_of_text|>"}, {"eos_token", "a"}};
  const Json own = {{"bos_token", nullptr}, {"eos_token", {{"content", "<|eot_id|>"}}}};
  tokenizer = opened(json, {{"config.json", config},
                            {"special_tokens_map.json", map},
                            {"tokenizer_config.json", own},
                            {"generation_config.json", {{"eos_token_id", {7, eot}}}}});
  EXPECT_EQ(tokenizer->begin(), std::nullopt);
  EXPECT_EQ(tokenizer->end(), eot);
  EXPECT_EQ(tokenizer->ends(), (Ids{eot, 7}));
  EXPECT_EQ(opened(json, {{"special_tokens_map.json", map}})->begin(), begin);

  const auto error_with = [&](const char* name, const Json& content) {
    return error_of([&] { opened(json, {{name, content}}); });
  };
  EXPECT_HAS(error_with("tokenizer_config.json", {{"eos_token", "<none>"}}),
             "tokenizer_config.json': eos_token is \"<none>\"; expected a token of the tokenizer");
  EXPECT_HAS(error_with("config.json", {{"eos_token_id", 502}}),
             "config.json': eos_token_id is 502; expected ids of the tokenizer");
  EXPECT_HAS(error_with("tokenizer_config.json",
                        {{"added_tokens_decoder", {{"7", {{"content", "<|eot_id|>"}}}}}}),
             "added_tokens_decoder.7.content is \"<|eot_id|>\"");
}

TEST(TokenizerJson, SaysWhatItsTokensAre) {
  const std::string path = folder + "llama3";
  const auto tokenizer = open_tokenizer(path);
  EXPECT_EQ(tokenizer->name(), checkpoint::huggingface_tokenizer(path));
  EXPECT_EQ(tokenizer->vocabulary(), 502);
  EXPECT_EQ(tokenizer->around().before, (Ids{500}));
  EXPECT_EQ(tokenizer->around().after, Ids());
  EXPECT_EQ(tokenizer->id_of("<|eot_id|>"), 501);
  EXPECT_EQ(tokenizer->id_of("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer->token(501), "<|eot_id|>");
  EXPECT_EQ(tokenizer->token(*tokenizer->id_of("\u0120")), "\u0120");
  EXPECT_TRUE(tokenizer->is_special(501));
  EXPECT_FALSE(tokenizer->is_special(0));
  EXPECT_HAS(error_of([&] { decoded(*tokenizer, {502}, false); }),
             "token 502 is not in the tokenizer's vocabulary of 502");
  EXPECT_HAS(error_of([&] { encoded(*tokenizer, "ab\xff"); }), "byte 2 of a text is not UTF-8");
  EXPECT_EQ(open_tokenizer(folder + "roberta")->around().after, (Ids{2}));
}

TEST(TokenizerJson, LongPiecesTakeTimeInProportion) {
  const auto tokenizer = open_tokenizer(folder + "llama2");  // all of a text is one piece
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(decoded(*tokenizer, encoded(*tokenizer, text), false), text);
}

TEST(TokenizerJson, ThreadsEncodeAtOnce) {
  const auto tokenizer = open_tokenizer(folder + "qwen2");
  const Json rows = Json::parse(read_bytes(folder + "qwen2/cases.json"));
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (int& count : wrong)
    threads.emplace_back([&] {
      for (const Json& row : rows)
        if (encoded(*tokenizer, row[0].get<std::string>()) != row[1].get<Ids>()) ++count;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(ByteTokenizer, IsATokenizerOfBytes) {
  const auto tokenizer = open_tokenizer("byte");
  EXPECT_EQ(tokenizer->name(), "byte");
  EXPECT_EQ(encoded(*tokenizer, "a\xff"), (Ids{97, 255}));
  EXPECT_EQ(tokenizer->end(), 256);
  EXPECT_EQ(decoded(*tokenizer, {97, 256, 255}, false), "a\xff");
  const auto stream = tokenizer->stream(false);
  EXPECT_EQ(stream->next(0xc3), "");
  EXPECT_EQ(stream->next(0xa9), "\u00e9");
  EXPECT_EQ(stream->next(0xc3), "");
  EXPECT_EQ(stream->finish(), "\xc3");
}

TEST(OpenTokenizer, SaysWhatItExpects) {
  const ScratchFolder scratch;
  EXPECT_HAS(error_of([&] { open_tokenizer(scratch.file("")); }),
             "has no tokenizer; expected tokenizer.json or tokenizer.model");
  EXPECT_HAS(error_of([] { open_tokenizer("bytes"); }), "'bytes' is no tokenizer; expected byte,");
  EXPECT_HAS(error_of([] { open_tokenizer("none.json"); }), "none.json");
}

}  // namespace
}  // namespace ostrakon::texts
