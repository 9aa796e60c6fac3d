// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/text/tokenizer.hpp>
#include <ostrakon/text/tokenizers/tokenizer_trainer.hpp>

#include "../support/scratch_folder.hpp"
#include "pieces_cases.hpp"

namespace ostrakon::texts {
namespace {

using testing::error_of;

TEST(TrainBpe, TokensAndMergesAreThoseOfTheLibrary) {
  const nlohmann::json cases = pieces_json("training.json");
  EXPECT_GE(cases.size(), 8u);
  for (const nlohmann::json& row : cases) {
    WordCounts words;
    for (const auto& word : row["words"]) words.add(word.get<std::string>());
    BpeTraining training;
    training.vocabulary = row["vocabulary"];
    training.special = row["special"].get<std::vector<std::string>>();
    const TrainedBpe bpe = train_bpe(words, training);
    const std::size_t first = training.special.size() + 256;
    EXPECT_EQ(std::vector<std::string>(bpe.tokens.begin() + static_cast<std::ptrdiff_t>(first),
                                       bpe.tokens.end()),
              row["tokens"].get<std::vector<std::string>>());
    const nlohmann::json merges = bpe.merges;
    EXPECT_EQ(merges, row["merges"]);
  }
}

TEST(TrainBpe, RareAreNoTokens) {
  WordCounts words;
  words.add("ab", 3);
  words.add("cd", 2);
  BpeTraining training;
  training.vocabulary = 1000;
  EXPECT_EQ(train_bpe(words, training).merges.size(), 2u);
  training.least_occurrences = 3;
  EXPECT_EQ(train_bpe(words, training).tokens.back(), "ab");
}

TEST(TrainBpe, RefusesWhatCanNotBeTrained) {
  const auto error = [](std::int64_t vocabulary, std::vector<std::string> special) {
    return error_of([&] {
      BpeTraining training;
      training.vocabulary = vocabulary;
      training.special = std::move(special);
      require_trainable(training);
    });
  };
  EXPECT_EQ(error(258, {"<s>", "</s>"}), "no error");
  EXPECT_NE(error(257, {"<s>", "</s>"}).find("expected at least 258"), std::string::npos);
  EXPECT_NE(error(300, {"<s>", "<s>"}).find("is there twice"), std::string::npos);
  EXPECT_NE(error(300, {""}).find("is empty"), std::string::npos);
  EXPECT_NE(error(300, {"a"}).find("is the token of a byte"), std::string::npos);
}

TEST(WordCutter, CutsAsThePatternSays) {
  struct Row {
    WordPattern pattern;
    std::vector<std::string> words;
  };
  const std::string text = "It's 1234  camelCase\u0065\u0301\n\n x";
  const Row rows[] = {
      {WordPattern::gpt2, {"It", "'s", " 1234", " ", " camelCasee", "\u0301", "\n\n", " x"}},
      {WordPattern::llama3, {"It", "'s", " ", "123", "4", " ", " camelCasee", "\u0301\n\n", " x"}},
      {WordPattern::qwen2,
       {"It", "'s", " ", "1", "2", "3", "4", " ", " camelCase\u00e9", "\n\n", " x"}},
      {WordPattern::o200k, {"It's", " ", "123", "4", " ", " camel", "Casee\u0301", "\n\n", " x"}},
  };
  for (const Row& row : rows) {
    WordCounts words, expected;
    WordCutter(row.pattern).count(text, words);
    for (const std::string& word : row.words) expected.add(word);
    const auto list = [](const WordCounts& counts) {
      std::vector<std::pair<std::string, std::int64_t>> all;
      for (const auto& [word, count] : counts.sorted()) all.emplace_back(word, count);
      return all;
    };
    EXPECT_EQ(list(words), list(expected)) << name_in(word_pattern_names, row.pattern);
  }
}

TEST(TokenizerJson, IsReadAsItWasTrained) {
  const SpecialTokens special{"</s>", "<s>", {"<|user|>"}};
  for (const auto& [pattern, name] : word_pattern_names) {
    WordCounts words;
    WordCutter(pattern).count("to be or not to be, to do or not to do", words);
    BpeTraining training;
    training.vocabulary = 290;
    training.special = special.all();
    const TrainedBpe bpe = train_bpe(words, training);

    const testing::ScratchFolder scratch;
    testing::write_bytes(scratch.file("tokenizer.json"),
                         tokenizer_json(pattern, special, bpe).dump());
    testing::write_bytes(scratch.file("tokenizer_config.json"), tokenizer_config(special).dump());
    const auto tokenizer = open_tokenizer(scratch.file(""));
    EXPECT_EQ(tokenizer->vocabulary(), static_cast<std::int64_t>(bpe.tokens.size())) << name;
    EXPECT_EQ(tokenizer->end(), 0);
    EXPECT_EQ(tokenizer->begin(), 1);
    EXPECT_TRUE(tokenizer->is_special(2));
    std::vector<std::int32_t> ids;
    tokenizer->encoder()->encode("to be<|user|>", true, ids);
    const std::vector<std::int32_t> expected = {tokenizer->id_of("to").value(),
                                                tokenizer->id_of("\u0120be").value(), 2};
    EXPECT_EQ(ids, expected) << name;
    EXPECT_EQ(tokenizer->decode(ids.data(), 3, false), "to be<|user|>");
  }
}

}  // namespace
}  // namespace ostrakon::texts
