// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <ostrakon/base/names.hpp>
#include <ostrakon/text/tokenizers/bpe_trainer.hpp>
#include <ostrakon/text/tokenizers/normalizer.hpp>
#include <ostrakon/text/tokenizers/pre_tokenizer.hpp>
#include <string>
#include <string_view>

namespace ostrakon::texts {

/// How a byte-level tokenizer cuts text into words, within which tokens are: as the published
/// tokenizer.json of these models say.
enum class WordPattern {
  gpt2,    ///< GPT-2: letters, digits and other characters apart, each with a space before it
  llama3,  ///< Llama 3: up to three digits, and a mark before letters, in one word
  qwen2,   ///< Qwen 2: as Llama 3, but digits one by one, after normalization form C
  o200k    ///< GPT-4o and gpt-oss: also where a capital letter follows a small one
};
inline constexpr Named<WordPattern> word_pattern_names[] = {{WordPattern::gpt2, "gpt2"},
                                                            {WordPattern::llama3, "llama3"},
                                                            {WordPattern::qwen2, "qwen2"},
                                                            {WordPattern::o200k, "o200k"}};

/// Counts the words of texts. Used by one thread.
class WordCutter {
 public:
  explicit WordCutter(WordPattern pattern);

  /// Cuts `text`, UTF-8, by itself: a word never reaches from one text into the next.
  void count(std::string_view text, WordCounts& words);

 private:
  std::unique_ptr<Normalizer> normalizer_;
  PreTokenizerSteps steps_;
  Pieces pieces_;
};

/// The tokens of a trained tokenizer that are not words.
struct SpecialTokens {
  std::string end;    ///< ends a text
  std::string begin;  ///< begins a text; empty: nothing does
  std::vector<std::string> others;

  std::vector<std::string> all() const;
};

/// Returns what tokenizer.json says of a tokenizer that was trained on words of `pattern`. `bpe`
/// has the tokens of `special` first.
nlohmann::ordered_json tokenizer_json(WordPattern pattern, const SpecialTokens& special,
                                      const TrainedBpe& bpe);

/// Returns what tokenizer_config.json says of it.
nlohmann::ordered_json tokenizer_config(const SpecialTokens& special);

}  // namespace ostrakon::texts
