// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostrakon/text/json_fields.hpp>
#include <ostrakon/text/tokenizers/json_model.hpp>
#include <ostrakon/text/tokenizers/normalizer.hpp>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ostrakon::texts {

/// Texts, each with a number, of which the longest is found that begins at a place.
class TextTrie {
 public:
  TextTrie() { first_.fill(none); }
  /// Returns false, and adds nothing, if the text is empty or already there.
  bool add(std::string_view text, std::uint32_t value);
  bool empty() const { return size_ == 0; }

  struct Match {
    std::size_t begin, end;
    std::uint32_t value;
  };
  /// Returns the leftmost match from `from` on, of those that begin there the longest.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  static constexpr std::uint32_t none = 0xffffffff;
  std::optional<Match> match_at(std::string_view text, std::size_t begin) const;

  std::array<std::uint32_t, 256> first_{};                  ///< nodes of the first byte
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;  ///< by node and byte
  std::vector<std::uint32_t> values_;                       ///< of the texts that end at nodes
  std::size_t size_ = 0;
};

/// The `added_tokens` of a tokenizer.json: those that are found by their text before a model sees
/// it.
class AddedTokens {
 public:
  struct Token {
    std::int32_t id;
    std::string content;
    std::string decoded;  ///< what it is when ids are decoded: as its text is normalized
    bool single_word, strips_left, strips_right, normalized, special;
  };

  /// Throws Error for ids that the library would not give the tokens, and tokens that are there
  /// twice. `normalizer` may be nullptr.
  AddedTokens(std::vector<JsonFields> list, const JsonModel& model, const Normalizer* normalizer);

  const std::vector<Token>& tokens() const { return tokens_; }
  const Token* by_id(std::int32_t id) const;
  const Token* by_content(std::string_view content) const;
  /// Whether this is the text of a special token.
  bool is_special(std::string_view text) const { return special_.count(text) == 1; }

  /// Which tokens are looked for: those that are not normalized, in text as it is, or those that
  /// are, in normalized text.
  enum class Kind { as_they_are, normalized };
  /// Calls `take(begin, end, token)` for the tokens in `text`, and with nullptr for what is between
  /// them. Special tokens are text as any other unless `finds_special`.
  void split(std::string_view text, Kind kind, bool finds_special,
             const std::function<void(std::size_t, std::size_t, const Token*)>& take) const;

 private:
  bool applies(std::string_view text, const TextTrie::Match& match, bool finds_special) const;

  std::vector<Token> tokens_;
  std::unordered_map<std::int32_t, std::uint32_t> by_id_;
  std::unordered_map<std::string, std::uint32_t> by_content_;
  std::set<std::string, std::less<>> special_;
  TextTrie as_they_are_, normalized_;
};

}  // namespace ostrakon::texts
