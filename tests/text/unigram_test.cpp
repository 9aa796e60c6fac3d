// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/text/tokenizers/unigram.hpp>

#include "../support/scratch_folder.hpp"
#include "pieces_cases.hpp"

namespace ostrakon::texts {
namespace {

using testing::error_of;

TEST(Unigram, IdsAndTextsAreThoseOfTheLibrary) {
  for (const char* const file : {"scores.json", "ties.json"}) expect_ids_of_library(file);
}

std::vector<std::int32_t> ids_of(const Unigram& unigram, const char* text) {
  std::vector<std::int32_t> ids;
  unigram.encode(text, ids);
  return ids;
}

TEST(Unigram, TakesTheLargestSum) {
  const Unigram unigram(
      {{{"?", -5}, {"a", -1}, {"b", -1}, {"ab", -2.5}, {"abc", -0.5}, {"c", -4}}, 0, false});
  EXPECT_EQ(ids_of(unigram, "ab"), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(ids_of(unigram, "aabc"), (std::vector<std::int32_t>{1, 4}));
  EXPECT_EQ(ids_of(unigram, ""), std::vector<std::int32_t>{});
}

TEST(Unigram, OfEqualSumsTheLongestLastPieceWins) {
  const Unigram unigram({{{"?", -9}, {"a", -1}, {"aa", -2}, {"aaa", -3}}, 0, false});
  EXPECT_EQ(ids_of(unigram, "aa"), (std::vector<std::int32_t>{2}));
  EXPECT_EQ(ids_of(unigram, "aaaa"), (std::vector<std::int32_t>{1, 3}));
}

TEST(Unigram, TheUnknownCostsTenMoreThanTheLeastScore) {
  const Unigram unigram({{{"?", 0}, {"a", 9.5}, {"ab", -1}, {"c", 10.5}, {"cb", -1}}, 0, false});
  EXPECT_EQ(ids_of(unigram, "ab"), (std::vector<std::int32_t>{2}));
  EXPECT_EQ(ids_of(unigram, "cb"), (std::vector<std::int32_t>{3, 0}));
}

TEST(Unigram, NeighboursThatAreUnknownAreOne) {
  const Unigram unigram({{{"?", 0}, {"a", -1}}, 0, false});
  EXPECT_EQ(ids_of(unigram, "xya\xE2\x82\xACz"), (std::vector<std::int32_t>{0, 1, 0}));
}

TEST(Unigram, BytesStandForTheUnknownWhereAllAreThere) {
  const Unigram unigram({{{"?", 0}, {"<0x78>", -1}, {"<0x79>", -1}, {"a", -1}}, 0, true});
  EXPECT_EQ(ids_of(unigram, "xya"), (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(ids_of(unigram, "xyza"), (std::vector<std::int32_t>{0, 3}));
}

TEST(Unigram, RefusesTheUnknownWithoutAnId) {
  const Unigram unigram({{{"a", -1}}, std::nullopt, false});
  EXPECT_EQ(error_of([&] { ids_of(unigram, "ab"); }),
            "no piece covers \"b\", and the tokenizer has no unk_id");
  EXPECT_NE(error_of([] { Unigram({{{"a", -1}}, 1, false}); }), "no error");
}

TEST(Unigram, RefusesFilesByTheNameOfTheField) {
  struct Row {
    const char* field;
    nlohmann::json value;
    const char* expected;
  };
  const Row rows[] = {
      {"unk_id", 99999, "model.unk_id is 99999; expected an index"},
      {"unk_id", -1, "model.unk_id is -1; expected an integer"},
      {"vocab", 3, "model.vocab is 3; expected a list"},
      {"vocab", nlohmann::json::parse(R"([["a", "b"]])"),
       "model.vocab[0] is [\"a\",\"b\"]; expected a text and its score"},
      {"byte_fallback", 1, "model.byte_fallback is 1; expected true or false"},
      {"alpha", 0.1, "the field model.alpha (0.1) is not implemented"},
  };
  for (const Row& row : rows) {
    nlohmann::json json = pieces_json("scores.json");
    json["model"][row.field] = row.value;
    const testing::ScratchFolder scratch;
    testing::write_bytes(scratch.file("tokenizer.json"), json.dump());
    const std::string error = error_of([&] { open_tokenizer(scratch.file("tokenizer.json")); });
    EXPECT_NE(error.find(row.expected), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace ostrakon::texts
