// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/text/tokenizer.hpp>
#include <random>

#include "../support/scratch_folder.hpp"
#include "pieces_cases.hpp"

namespace ostrakon::texts {
namespace {

using testing::error_of;
using testing::ScratchFolder;
using testing::write_bytes;

TEST(SentencePiece, IdsAndTextsAreThoseOfTheLibrary) {
  for (const char* const file : {"bpe.model", "no-prefix.model", "unigram.model"})
    expect_ids_of_library(file);
}

std::string decoded(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids, bool skips) {
  return tokenizer.decode(ids.data(), static_cast<std::int64_t>(ids.size()), skips);
}

// Random ids are sequences that no text has: bytes of half a character, spaces and control pieces
// at the begin.
TEST(SentencePiece, StreamIsWhatDecodeReturns) {
  std::mt19937 random(7);
  for (const char* const file : {"bpe.model", "no-prefix.model", "unigram.model"}) {
    const auto tokenizer = open_tokenizer(pieces_file(file));
    const std::int32_t last_byte = tokenizer->id_of("<0xFF>").value_or(8);
    for (int round = 0; round < 2000; ++round) {
      const auto most = round % 2 == 0 ? last_byte  // often
                                       : static_cast<std::int32_t>(tokenizer->vocabulary() - 1);
      std::vector<std::int32_t> ids(round % 23);
      for (std::int32_t& id : ids)
        id = std::uniform_int_distribution<std::int32_t>(0, most)(random);
      for (const bool skips : {false, true}) {
        const auto stream = tokenizer->stream(skips);
        std::string text;
        for (const std::int32_t id : ids) {
          const std::string part = stream->next(id);
          EXPECT_EQ(first_not_utf8(part), part.size());
          text += part;
        }
        text += stream->finish();
        EXPECT_EQ(text, decoded(*tokenizer, ids, skips)) << file << ", round " << round;
      }
    }
  }
}

TEST(SentencePiece, CharactersComeAsSoonAsTheirBytesAreThere) {
  const auto tokenizer = open_tokenizer(pieces_file("bpe.model"));
  const auto byte = [&](const char* piece) { return tokenizer->id_of(piece).value(); };
  const auto stream = tokenizer->stream(true);
  EXPECT_EQ(stream->next(byte("<0xE2>")), "");
  EXPECT_EQ(stream->next(byte("<0x82>")), "");
  EXPECT_EQ(stream->next(byte("<0xAC>")), "\xE2\x82\xAC");
  EXPECT_EQ(stream->next(byte("<0xC3>")), "");
  EXPECT_EQ(stream->next(byte("<0x41>")),
            "\xEF\xBF\xBD"
            "A");
  EXPECT_EQ(stream->next(byte("<0xC3>")), "");
  EXPECT_EQ(stream->finish(), "\xEF\xBF\xBD");
}

TEST(SentencePiece, SpecialTokensAreFoundOnRequestAlone) {
  const auto tokenizer = open_tokenizer(pieces_file("bpe.model"));
  const auto encoder = tokenizer->encoder();
  const auto ids_of = [&](const char* text, bool finds_special) {
    std::vector<std::int32_t> ids;
    encoder->encode(text, finds_special, ids);
    return ids;
  };
  std::vector<std::int32_t> expected = ids_of("a b", false);
  expected.insert(expected.begin(), 1);  // <s>
  expected.push_back(2);                 // </s>
  EXPECT_EQ(ids_of("<s>a b</s>", true), expected);
  for (const std::int32_t id : ids_of("<s>a b</s>", false)) EXPECT_FALSE(tokenizer->is_special(id));
  EXPECT_EQ(decoded(*tokenizer, expected, true), "a b");
  EXPECT_EQ(decoded(*tokenizer, expected, false), "<s>a b</s>");
}

/// A folder with a model.
struct ModelFolder {
  ScratchFolder scratch;
  std::string path = scratch.file("");
  explicit ModelFolder(const std::string& suffix = "") {
    write_bytes(scratch.file("tokenizer.model"),
                testing::read_bytes(pieces_file("bpe.model")) + suffix);
  }
};

TEST(SentencePiece, SpacesBeforePartsAreThoseOfTransformers) {
  struct Row {
    const char *config, *text;
    std::vector<std::string> tokens;
  };
  // Tokens of transformers 5.24.0, LlamaTokenizer, with the same files.
  const std::vector<Row> rows = {
      {R"({"legacy": false})", "<s>a b</s>a", {"<s>", "a", "▁", "<0x62>", "</s>", "a"}},
      {R"({"legacy": false})", "<s> a", {"<s>", "▁a"}},
      {R"({"legacy": false})", " a<s>", {"▁a", "<s>"}},
      {R"({"tokenizer_class": "LlamaTokenizer"})",
       "a<s>a</s> a<unk>a",
       {"▁a", "<s>", "a", "</s>", "▁a", "<unk>", "a"}},
      {R"({"legacy": true})", "<s>a b</s>a", {"<s>", "▁a", "▁", "<0x62>", "</s>", "▁a"}}};
  for (const Row& row : rows) {
    ModelFolder folder;
    write_bytes(folder.scratch.file("tokenizer_config.json"), row.config);
    const auto tokenizer = open_tokenizer(folder.path);
    std::vector<std::int32_t> ids;
    tokenizer->encoder()->encode(row.text, true, ids);
    std::vector<std::string> tokens;
    for (const std::int32_t id : ids) tokens.push_back(tokenizer->token(id));
    EXPECT_EQ(tokens, row.tokens) << row.config << ", " << row.text;
  }
  ModelFolder other;
  write_bytes(other.scratch.file("tokenizer_config.json"), R"({"tokenizer_class": "Other"})");
  std::vector<std::int32_t> ids;
  const auto tokenizer = open_tokenizer(other.path);
  EXPECT_NE(error_of([&] {
              tokenizer->encoder()->encode("<s>a", true, ids);
            }).find("tokenizer_config.json' has no 'legacy'; expected true or false"),
            std::string::npos);
  tokenizer->encoder()->encode("<s>a", false, ids);
  // One that puts no space anywhere needs no key.
  write_bytes(other.scratch.file("tokenizer.model"),
              testing::read_bytes(pieces_file("no-prefix.model")));
  open_tokenizer(other.path)->encoder()->encode("<s>a", true, ids);
}

TEST(SentencePiece, TokensByTextAndId) {
  const auto tokenizer = open_tokenizer(pieces_file("bpe.model"));
  EXPECT_EQ(tokenizer->token(1), "<s>");
  EXPECT_EQ(tokenizer->id_of("</s>"), 2);
  EXPECT_EQ(tokenizer->id_of("no such piece"), std::nullopt);
  EXPECT_EQ(tokenizer->id_of("<unk>"), 0);
  EXPECT_EQ(tokenizer->token(-1), "");
  EXPECT_EQ(tokenizer->begin(), 1);
  EXPECT_EQ(tokenizer->end(), 2);
  EXPECT_EQ(tokenizer->ends(), std::vector<std::int32_t>{2});
  EXPECT_TRUE(tokenizer->around().before.empty());
  EXPECT_EQ(tokenizer->name().rfind("tokenizer.model-", 0), 0u);
  const std::int32_t ids[] = {5, static_cast<std::int32_t>(tokenizer->vocabulary())};
  EXPECT_NE(error_of([&] { tokenizer->decode(ids, 2, true); }).find("at position 1 is not in the"),
            std::string::npos);
}

TEST(SentencePiece, FilesBesideTheModelCount) {
  ModelFolder folder;
  write_bytes(folder.scratch.file("tokenizer_config.json"),
              R"({"add_bos_token": true, "eos_token": "<unk>", "add_eos_token": false})");
  write_bytes(folder.scratch.file("generation_config.json"), R"({"eos_token_id": [0, 2]})");
  const auto tokenizer = open_tokenizer(folder.path);
  EXPECT_EQ(tokenizer->around().before, std::vector<std::int32_t>{1});
  EXPECT_TRUE(tokenizer->around().after.empty());
  EXPECT_EQ(tokenizer->end(), 0);
  EXPECT_EQ(tokenizer->ends(), (std::vector<std::int32_t>{0, 2}));
}

TEST(SentencePiece, RefusesWhatItDoesNotDo) {
  ModelFolder added;
  write_bytes(added.scratch.file("added_tokens.json"), R"({"<s>": 1, "<pad>": 32000})");
  EXPECT_NE(error_of([&] { open_tokenizer(added.path); }).find("\"<pad>\" is 32000; expected"),
            std::string::npos);
  // Another field of ModelProto: denormalizer_spec { precompiled_charsmap: "x" }.
  ModelFolder denormalizer("\x2A\x03\x12\x01x");
  EXPECT_NE(error_of([&] { open_tokenizer(denormalizer.path); }).find("denormalizer_spec"),
            std::string::npos);
  ModelFolder broken("\xFF\xFF");
  EXPECT_NE(error_of([&] { open_tokenizer(broken.path); }).find("is no model of SentencePiece"),
            std::string::npos);
}

TEST(SentencePiece, RefusesWhatIsNotUtf8) {
  const auto tokenizer = open_tokenizer(pieces_file("bpe.model"));
  const auto encoder = tokenizer->encoder();
  std::vector<std::int32_t> ids;
  EXPECT_EQ(error_of([&] { encoder->encode("ab\xFF", false, ids); }),
            "byte 2 of a text is not UTF-8");
  EXPECT_TRUE(ids.empty());
}

}  // namespace
}  // namespace ostrakon::texts
