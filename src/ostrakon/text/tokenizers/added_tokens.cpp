// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/added_tokens.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/tokenizers/unicode.hpp>
#include <ostrakon/text/utf8.hpp>
#include <utility>

namespace ostrakon::texts {
namespace {

/// Where the white space begins that ends `text`.
std::size_t without_space_at_end(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t at = last_character(text.substr(0, end));
    if (!white_space().contains(code_point(text, at))) break;
    end = at;
  }
  return end;
}

std::size_t space_at_begin(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && white_space().contains(code_point(text, at)))
    at += utf8_length(text[at]);
  return at;
}

}  // namespace

bool TextTrie::add(std::string_view text, std::uint32_t value) {
  if (text.empty()) return false;
  const auto new_node = [&] {
    values_.push_back(none);
    return static_cast<std::uint32_t>(values_.size() - 1);
  };
  std::uint32_t& first = first_[static_cast<unsigned char>(text[0])];
  if (first == none) first = new_node();
  std::uint32_t node = first;
  for (const char c : text.substr(1)) {
    const auto edge = std::uint64_t{node} << 8 | static_cast<unsigned char>(c);
    const auto found = edges_.find(edge);
    node = found != edges_.end() ? found->second : edges_[edge] = new_node();
  }
  if (values_[node] != none) return false;
  values_[node] = value;
  ++size_;
  return true;
}

std::optional<TextTrie::Match> TextTrie::match_at(std::string_view text, std::size_t begin) const {
  std::optional<Match> longest;
  std::uint32_t node = first_[static_cast<unsigned char>(text[begin])];
  for (std::size_t at = begin + 1;; ++at) {
    if (values_[node] != none) longest = {begin, at, values_[node]};
    if (at == text.size()) return longest;
    const auto edge = edges_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(text[at]));
    if (edge == edges_.end()) return longest;
    node = edge->second;
  }
}

std::optional<TextTrie::Match> TextTrie::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (first_[static_cast<unsigned char>(text[begin])] == none) continue;
    const auto match = match_at(text, begin);
    if (match) return match;
  }
  return std::nullopt;
}

AddedTokens::AddedTokens(std::vector<JsonFields> list, const JsonModel& model,
                         const Normalizer* normalizer) {
  // The library numbers what the model does not have from the model's size on.
  std::int64_t next = model.token_count();
  for (JsonFields& fields : list) {
    Token token{fields.count("id"),
                fields.string("content"),
                {},
                fields.boolean("single_word"),
                fields.boolean("lstrip"),
                fields.boolean("rstrip"),
                fields.boolean("normalized"),
                fields.boolean("special")};
    fields.finish();
    const auto index = static_cast<std::uint32_t>(tokens_.size());
    const auto known = model.id_of(token.content);
    const std::int64_t expected = known ? *known : next++;
    if (token.id != expected)
      fields.refuse("id", text(expected, ", the id that the library `tokenizers` gives it"));
    token.decoded = token.content;
    if (token.normalized && normalizer != nullptr) normalizer->normalize(token.decoded);
    TextTrie& trie = token.normalized ? normalized_ : as_they_are_;
    const bool is_new = by_content_.emplace(token.content, index).second &&
                        by_id_.emplace(token.id, index).second && trie.add(token.decoded, index);
    if (!is_new) fields.refuse("content", "a text, not empty, that no other added token has");
    if (token.special) special_.insert(token.content);
    tokens_.push_back(std::move(token));
  }
}

const AddedTokens::Token* AddedTokens::by_id(std::int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedTokens::Token* AddedTokens::by_content(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

bool AddedTokens::applies(std::string_view text, const TextTrie::Match& match,
                          bool finds_special) const {
  const Token& token = tokens_[match.value];
  if (token.special && !finds_special) return false;
  if (!token.single_word) return true;
  const auto is_word = [&](std::size_t at) {
    return word_characters().contains(code_point(text, at));
  };
  const bool after_word = match.begin > 0 && is_word(last_character(text.substr(0, match.begin)));
  const bool before_word = match.end < text.size() && is_word(match.end);
  return !after_word && !before_word;
}

void AddedTokens::split(
    std::string_view text, Kind kind, bool finds_special,
    const std::function<void(std::size_t, std::size_t, const Token*)>& take) const {
  const TextTrie& trie = kind == Kind::normalized ? normalized_ : as_they_are_;
  std::size_t done = 0;
  if (!trie.empty()) {
    std::size_t from = 0;
    while (const auto match = trie.find(text, from)) {
      from = match->end;
      if (!applies(text, *match, finds_special)) continue;
      const Token& token = tokens_[match->value];
      std::size_t begin = match->begin, end = match->end;
      if (token.strips_left) begin = std::max(without_space_at_end(text.substr(0, begin)), done);
      if (token.strips_right) end += space_at_begin(text.substr(end));
      if (done < begin) take(done, begin, nullptr);
      take(begin, end, &token);
      // A token may lie in the white space that the one before it has taken: as in the library.
      done = end;
    }
  }
  if (done != text.size()) take(done, text.size(), nullptr);
}

}  // namespace ostrakon::texts
