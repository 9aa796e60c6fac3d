// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/tokenizer_trainer.hpp>

#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/text/utf8.hpp>

namespace ostrakon::texts {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* llama3_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* qwen2_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* o200k_words =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

Json words_by(const char* regex) {
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", regex}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level(false)})}};
}

Json pre_tokenizer_of(WordPattern pattern) {
  switch (pattern) {
    case WordPattern::llama3:
      return words_by(llama3_words);
    case WordPattern::qwen2:
      return words_by(qwen2_words);
    case WordPattern::o200k:
      return words_by(o200k_words);
    case WordPattern::gpt2:
      break;
  }
  return byte_level(true);
}

Json normalizer_of(WordPattern pattern) {
  return pattern == WordPattern::qwen2 ? Json{{"type", "NFC"}} : Json();
}

}  // namespace

WordCutter::WordCutter(WordPattern pattern) {
  const nlohmann::json parts = {{"pre_tokenizer", pre_tokenizer_of(pattern)},
                                {"normalizer", normalizer_of(pattern)}};
  JsonFields fields(parts, "tokenizer.json", "");
  if (fields.has("normalizer")) {
    JsonFields normalizer = fields.object("normalizer");
    normalizer_ = read_normalizer(normalizer);
  }
  JsonFields pre_tokenizer = fields.object("pre_tokenizer");
  steps_ = read_pre_tokenizer(pre_tokenizer);
}

void WordCutter::count(std::string_view text, WordCounts& words) {
  constexpr std::size_t most_bytes = 1U << 30;  // spans have 32 bits, normal forms grow
  require(text.size() <= most_bytes, "a text has ", text.size(), " bytes; expected at most ",
          most_bytes);
  if (text.empty()) return;
  pieces_.text.assign(text);
  if (normalizer_ != nullptr) normalizer_->normalize(pieces_.text);
  require_spans(pieces_.text.size());
  pieces_.spans.assign(1, {0, static_cast<std::uint32_t>(pieces_.text.size())});
  for (const auto& step : steps_.steps) step->cut(pieces_);
  for (const Span& span : pieces_.spans) words.add(pieces_.piece(span));
}

std::vector<std::string> SpecialTokens::all() const {
  std::vector<std::string> tokens = {end};
  if (!begin.empty()) tokens.push_back(begin);
  tokens.insert(tokens.end(), others.begin(), others.end());
  return tokens;
}

Json tokenizer_json(WordPattern pattern, const SpecialTokens& special, const TrainedBpe& bpe) {
  Json added = Json::array();
  for (const std::string& token : special.all())
    added.push_back({{"id", added.size()},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  // Lists, as objects of nlohmann::ordered_json compare each new key with all others.
  Json::object_t vocabulary;
  vocabulary.reserve(bpe.tokens.size());
  for (std::size_t id = 0; id < bpe.tokens.size(); ++id)
    static_cast<std::vector<std::pair<const std::string, Json>>&>(vocabulary)
        .emplace_back(bpe.tokens[id], id);
  Json merges = Json::array();
  const auto token = [&](std::int32_t id) { return bpe.tokens[static_cast<std::size_t>(id)]; };
  for (const auto& [first, second] : bpe.merges)
    merges.push_back(token(first) + " " + token(second));
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", normalizer_of(pattern)},
          {"pre_tokenizer", pre_tokenizer_of(pattern)},
          {"post_processor", nullptr},
          {"decoder", byte_level(true)},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", std::move(vocabulary)},
            {"merges", std::move(merges)}}}};
}

Json tokenizer_config(const SpecialTokens& special) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false},
                 {"eos_token", special.end}};
  if (!special.begin.empty()) config["bos_token"] = special.begin;
  if (!special.others.empty()) config["additional_special_tokens"] = special.others;
  return config;
}

}  // namespace ostrakon::texts
