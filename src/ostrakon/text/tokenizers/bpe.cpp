// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/tokenizers/bpe_merges.hpp>
#include <ostrakon/text/tokenizers/byte_alphabet.hpp>
#include <ostrakon/text/tokenizers/json_model.hpp>
#include <ostrakon/text/tokenizers/vocabulary.hpp>
#include <ostrakon/text/utf8.hpp>
#include <unordered_map>
#include <utility>

namespace ostrakon::texts {
namespace {

constexpr std::int32_t no_token_id = -1;

class Bpe : public JsonModel {
 public:
  Bpe(JsonFields& fields, bool takes_bytes) : file_(fields.file()), takes_bytes_(takes_bytes) {
    read_options(fields);
    read_vocabulary(fields);
    read_merges(fields);
    find_characters();
    fields.finish();
  }

  std::int64_t vocabulary() const override { return vocabulary_.end(); }
  std::int64_t token_count() const override { return vocabulary_.count(); }
  std::optional<std::int32_t> id_of(std::string_view token) const override {
    return vocabulary_.id_of(token);
  }
  std::optional<std::string_view> token(std::int32_t id) const override {
    return vocabulary_.token(id);
  }
  std::unique_ptr<Encoder> encoder() const override;

 private:
  class Pieces;
  /// Ids of characters that are not in the vocabulary, before a merge.
  struct Unknown {
    bool pending = false;  ///< the unknown token is yet to be appended
  };

  void read_options(JsonFields& fields) {
    if (fields.has("dropout") && fields.value("dropout") != 0.0)
      fields.refuse("dropout", "null or 0: ids would be random");
    for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (fields.has(key) && !fields.string(key).empty())
        fields.refuse(key, "null or an empty text: others are not implemented");
    if (fields.has("unk_token")) unknown_ = fields.string("unk_token");
    fuses_unknown_ = fields.boolean("fuse_unk", false);
    falls_back_to_bytes_ = fields.boolean("byte_fallback", false);
    ignores_merges_ = fields.boolean("ignore_merges", false);
  }

  void read_vocabulary(JsonFields& fields) {
    JsonFields vocabulary = fields.object("vocab");
    for (const auto& [token, id] : vocabulary.json().items()) {
      const bool is_id =
          id.is_number_unsigned() && id.get<std::uint64_t>() < std::uint64_t{Vocabulary::most_ids};
      if (!is_id || !vocabulary_.add(token, id.get<std::int32_t>()))
        vocabulary.refuse(token, "an id less than 16777216 that no other token has");
    }
    if (unknown_) unknown_id_ = vocabulary_.id_of(*unknown_).value_or(no_token_id);
  }

  void read_merges(JsonFields& fields) {
    const nlohmann::json& list = fields.value("merges");
    if (!list.is_array()) fields.refuse("merges", "a list");
    merges_ = std::make_unique<BpeMerges>(list.size());
    std::uint32_t rank = 0;
    std::size_t index = 0;
    for (const nlohmann::json& merge : list) {
      const std::string where = text("merges[", index++, "]");
      const auto refuse = [&](const char* expected) {
        throw Error(text("'", file_, "': ", fields.path(where), " is ",
                         without_middle(printable(merge.dump()), 120), "; expected ", expected));
      };
      std::string left, right;
      if (merge.is_string()) {
        const auto& line = merge.get_ref<const std::string&>();
        if (line.rfind("#version", 0) == 0) continue;
        const std::size_t space = line.find(' ');
        if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
          refuse("two tokens with a space between them");
        left = line.substr(0, space);
        right = line.substr(space + 1);
      } else {
        const bool is_pair =
            merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
        if (!is_pair) refuse("two tokens");
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
      }
      const auto left_id = vocabulary_.id_of(left), right_id = vocabulary_.id_of(right);
      const auto both = vocabulary_.id_of(left + right);
      if (!left_id || !right_id || !both) refuse("tokens of the vocabulary that make another one");
      merges_->add(*left_id, *right_id, {rank++, *both});
    }
  }

  /// Finds the tokens of single characters, and what stands for characters without one.
  void find_characters() {
    ascii_.fill(no_token_id);
    bytes_.fill(no_token_id);
    fallback_.fill(no_token_id);
    constexpr char digits[] = "0123456789ABCDEF";
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::string name = {'<', '0', 'x', digits[byte / 16], digits[byte % 16], '>'};
      fallback_[byte] = vocabulary_.id_of(name).value_or(no_token_id);
      const auto character = character_of(static_cast<std::uint8_t>(byte));
      bytes_[byte] = vocabulary_.id_of(character).value_or(no_token_id);
    }
    for (std::int32_t id = 0; id < vocabulary_.end(); ++id) {
      const auto token = vocabulary_.token(id);
      if (!token || token->empty()) continue;
      if (utf8_length((*token)[0]) == token->size()) {
        const std::uint32_t character = code_point(*token, 0);
        if (character < ascii_.size()) {
          ascii_[character] = id;
        } else {
          characters_[character] = id;
        }
      }
      if (!takes_bytes_ || !ignores_merges_) continue;
      auto bytes = bytes_of(*token);
      if (bytes) whole_words_.emplace(std::move(*bytes), id);
    }
  }

  std::int32_t character_id(std::uint32_t character) const {
    if (character < ascii_.size()) return ascii_[character];
    const auto found = characters_.find(character);
    return found == characters_.end() ? no_token_id : found->second;
  }

  std::int32_t whole_word(const std::string& piece) const {
    if (!takes_bytes_) return vocabulary_.id_of(piece).value_or(no_token_id);
    const auto found = whole_words_.find(piece);
    return found == whole_words_.end() ? no_token_id : found->second;
  }

  /// Appends the ids of single characters.
  void start(std::string_view piece, std::vector<std::int32_t>& ids) const {
    Unknown unknown;
    const auto add = [&](std::int32_t id, std::string_view character) {
      if (id == no_token_id) return add_unknown(character, unknown, ids);
      if (unknown.pending) ids.push_back(unknown_id_);
      unknown.pending = false;
      ids.push_back(id);
    };
    if (takes_bytes_) {
      for (const char c : piece) {
        const auto byte = static_cast<std::uint8_t>(c);
        add(bytes_[byte], character_of(byte));
      }
    } else {
      for (std::size_t at = 0; at < piece.size();) {
        const std::string_view character = piece.substr(at, utf8_length(piece[at]));
        add(character_id(code_point(piece, at)), character);
        at += character.size();
      }
    }
    if (unknown.pending) ids.push_back(unknown_id_);
  }

  /// A pending unknown token comes after the bytes that follow it: as in the library.
  void add_unknown(std::string_view character, Unknown& unknown,
                   std::vector<std::int32_t>& ids) const {
    bool has_bytes = falls_back_to_bytes_;
    for (const char c : character)
      has_bytes = has_bytes && fallback_[static_cast<std::uint8_t>(c)] != no_token_id;
    if (has_bytes) {
      for (const char c : character) ids.push_back(fallback_[static_cast<std::uint8_t>(c)]);
      return;
    }
    if (!unknown_) return;  // without one such characters have no ids
    require(unknown_id_ != no_token_id, "'", file_, "': ", shown(std::string(character)),
            " is not in the vocabulary, nor is model.unk_token, ", shown(*unknown_));
    if (unknown.pending && !fuses_unknown_) ids.push_back(unknown_id_);
    unknown.pending = true;
  }

  std::string file_;
  bool takes_bytes_, fuses_unknown_ = false, falls_back_to_bytes_ = false, ignores_merges_ = false;
  std::optional<std::string> unknown_;
  std::int32_t unknown_id_ = no_token_id;
  Vocabulary vocabulary_;
  std::unique_ptr<BpeMerges> merges_;
  std::array<std::int32_t, 128> ascii_{};
  std::array<std::int32_t, 256> bytes_{}, fallback_{};
  std::unordered_map<std::uint32_t, std::int32_t> characters_;
  std::unordered_map<std::string, std::int32_t> whole_words_;  ///< by their bytes
};

class Bpe::Pieces : public JsonModel::Encoder {
 public:
  explicit Pieces(const Bpe& bpe) : bpe_(&bpe), merger_(*bpe.merges_) {}
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) override {
    if (bpe_->ignores_merges_) {
      word_.assign(piece);
      const std::int32_t id = bpe_->whole_word(word_);
      if (id != no_token_id) return ids.push_back(id);
    }
    symbols_.clear();
    bpe_->start(piece, symbols_);
    merger_.merge(symbols_);
    ids.insert(ids.end(), symbols_.begin(), symbols_.end());
  }

 private:
  const Bpe* bpe_;
  BpeMerger merger_;
  std::string word_;
  std::vector<std::int32_t> symbols_;
};

std::unique_ptr<JsonModel::Encoder> Bpe::encoder() const { return std::make_unique<Pieces>(*this); }

}  // namespace

std::unique_ptr<JsonModel> read_bpe(JsonFields& model, bool takes_bytes) {
  return std::make_unique<Bpe>(model, takes_bytes);
}

}  // namespace ostrakon::texts
