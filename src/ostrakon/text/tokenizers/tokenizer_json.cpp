// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/tokenizer_json.hpp>

#include <xxhash.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/input_file.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/text/tokenizers/added_tokens.hpp>
#include <ostrakon/text/tokenizers/decoder.hpp>
#include <ostrakon/text/tokenizers/json_model.hpp>
#include <ostrakon/text/tokenizers/normalizer.hpp>
#include <ostrakon/text/tokenizers/post_processor.hpp>
#include <ostrakon/text/tokenizers/pre_tokenizer.hpp>
#include <ostrakon/text/tokenizers/tokenizer_folder.hpp>
#include <ostrakon/text/tokenizers/unigram_model.hpp>
#include <ostrakon/text/tokenizers/word_cache.hpp>
#include <ostrakon/text/utf8.hpp>
#include <utility>

namespace ostrakon::texts {
namespace {

constexpr std::int64_t largest_tokenizer = 1 << 28;

class JsonTokenizer : public Tokenizer {
 public:
  JsonTokenizer(const std::string& path, const std::string& contents)
      : name_("tokenizer.json-" + format_hex(XXH3_64bits(contents.data(), contents.size()))) {
    const nlohmann::json json = checkpoint::parse_json_object(contents, "tokenizer", path);
    JsonFields fields(json, path, "");
    read(fields);
    fields.finish();
    const auto ids = [&](const std::string& token) { return id_of(token); };
    ends_ = read_text_ends(parent_folder(path), vocabulary_, ids);
  }

  const std::string& name() const override { return name_; }
  std::int64_t vocabulary() const override { return vocabulary_; }
  std::unique_ptr<Tokenizer::Encoder> encoder() const override;
  Around around() const override { return around_; }
  std::optional<std::int32_t> begin() const override { return ends_.begin; }
  std::optional<std::int32_t> end() const override { return ends_.end; }
  std::vector<std::int32_t> ends() const override { return ends_.ends; }

  std::optional<std::int32_t> id_of(std::string_view token) const override {
    const AddedTokens::Token* const added = added_->by_content(token);
    return added != nullptr ? std::optional(added->id) : model_->id_of(token);
  }

  std::string token(std::int32_t id) const override {
    const AddedTokens::Token* const added = added_->by_id(id);
    return added != nullptr ? added->content : std::string(model_->token(id).value_or(""));
  }

  bool is_special(std::int32_t id) const override {
    const auto text = decoded(id);
    return text && added_->is_special(*text);
  }

  std::string decode(const std::int32_t* ids, std::int64_t count,
                     bool skips_special) const override {
    std::string text;
    const auto sink = decoder_->start(text);
    for (std::int64_t i = 0; i < count; ++i) hand_on(ids[i], skips_special, *sink);
    sink->finish();
    return text;
  }

  std::unique_ptr<Tokenizer::Stream> stream(bool skips_special) const override;

 private:
  class Words;
  class Characters;

  void read(JsonFields& fields) {
    if (fields.string("version") != "1.0") fields.refuse("version", "1.0");
    for (const char* const key : {"truncation", "padding"})
      if (fields.has(key)) fields.refuse(key, "null: it is not implemented");
    if (fields.has("normalizer")) {
      JsonFields normalizer = fields.object("normalizer");
      normalizer_ = read_normalizer(normalizer);
    }
    if (fields.has("pre_tokenizer")) {
      JsonFields pre_tokenizer = fields.object("pre_tokenizer");
      steps_ = read_pre_tokenizer(pre_tokenizer);
      if (steps_.knows_begin && normalizer_ != nullptr && normalizer_->moves_begin())
        fields.refuse("normalizer",
                      "none that changes the begin of a text, as pre_tokenizer has "
                      "prepend_scheme first: both are not implemented");
    }
    read_model(fields);
    added_ = std::make_unique<AddedTokens>(
        fields.has("added_tokens") ? fields.objects("added_tokens") : std::vector<JsonFields>(),
        *model_, normalizer_.get());
    vocabulary_ = model_->vocabulary();
    for (const AddedTokens::Token& token : added_->tokens())
      vocabulary_ = std::max<std::int64_t>(vocabulary_, token.id + std::int64_t{1});
    if (fields.has("post_processor")) {
      JsonFields post_processor = fields.object("post_processor");
      around_ = read_post_processor(post_processor);
      for (const std::vector<std::int32_t>* const ids : {&around_.before, &around_.after})
        for (const std::int32_t id : *ids)
          if (id >= vocabulary_) fields.refuse("post_processor", "ids of the vocabulary");
    }
    if (fields.has("decoder")) {
      JsonFields decoder = fields.object("decoder");
      decoder_ = read_decoder(decoder);
    } else {
      decoder_ = joining_decoder();
    }
  }

  void read_model(JsonFields& fields) {
    JsonFields model = fields.object("model");
    // Older files do not say it.
    const std::string type = model.has("type") || !model.has("merges") ? model.type() : "BPE";
    if (type == "BPE") {
      model_ = read_bpe(model, steps_.ends_with_bytes);
    } else if (type == "Unigram") {
      model_ = read_unigram(model, steps_.ends_with_bytes);
    } else {
      model.refuse_type("BPE or Unigram");
    }
  }

  /// The text of a token for the decoder; nothing for an id without a token.
  std::optional<std::string_view> decoded(std::int32_t id) const {
    require(id >= 0 && id < vocabulary_, "token ", id, " is not in the tokenizer's vocabulary of ",
            vocabulary_);
    const AddedTokens::Token* const added = added_->by_id(id);
    return added != nullptr ? std::optional<std::string_view>(added->decoded) : model_->token(id);
  }

  void hand_on(std::int32_t id, bool skips_special, TokenSink& sink) const {
    const auto text = decoded(id);
    if (!text || (skips_special && added_->is_special(*text))) return;
    sink.begin();
    sink.part(*text);
    sink.end();
  }

  std::string name_;
  std::unique_ptr<Normalizer> normalizer_;
  PreTokenizerSteps steps_;
  std::unique_ptr<JsonModel> model_;
  std::unique_ptr<AddedTokens> added_;
  std::optional<Decoder> decoder_;
  std::int64_t vocabulary_ = 0;
  Around around_;
  TextEnds ends_;
};

class JsonTokenizer::Words : public Tokenizer::Encoder {
 public:
  explicit Words(const JsonTokenizer& tokenizer)
      : tokenizer_(&tokenizer), model_(tokenizer.model_->encoder()) {}

  void encode(std::string_view text, bool finds_special, std::vector<std::int32_t>& ids) override {
    constexpr std::size_t most_bytes = 1U << 30;  // pieces have 32-bit offsets, normal forms grow
    require(text.size() <= most_bytes, "a text has ", text.size(), " bytes; expected at most ",
            most_bytes);
    const std::size_t valid = valid_utf8(text);
    require(valid == text.size(), "byte ", valid, " of a text is not UTF-8");
    const AddedTokens& added = *tokenizer_->added_;
    using Kind = AddedTokens::Kind;
    added.split(text, Kind::as_they_are, finds_special,
                [&](std::size_t begin, std::size_t end, const AddedTokens::Token* token) {
                  if (token != nullptr) return ids.push_back(token->id);
                  section_.assign(text, begin, end - begin);
                  if (tokenizer_->normalizer_ != nullptr)
                    tokenizer_->normalizer_->normalize(section_);
                  require_spans(section_.size());
                  encode_normalized(begin == 0, finds_special, ids);
                });
  }

 private:
  /// `begins`: whether section_ begins the text.
  void encode_normalized(bool begins, bool finds_special, std::vector<std::int32_t>& ids) {
    using Kind = AddedTokens::Kind;
    tokenizer_->added_->split(
        section_, Kind::normalized, finds_special,
        [&](std::size_t begin, std::size_t end, const AddedTokens::Token* token) {
          if (token != nullptr) return ids.push_back(token->id);
          pieces_.text.assign(section_, begin, end - begin);
          pieces_.begins_document = begins && begin == 0;
          encode_pieces(ids);
        });
  }

  void encode_pieces(std::vector<std::int32_t>& ids) {
    pieces_.spans.assign(1, {0, static_cast<std::uint32_t>(pieces_.text.size())});
    for (const auto& step : tokenizer_->steps_.steps) step->cut(pieces_);
    for (const Span& span : pieces_.spans) {
      const std::string_view piece = pieces_.piece(span);
      if (cache_.find(piece, ids)) continue;
      const std::size_t first = ids.size();
      model_->encode(piece, ids);
      cache_.add(piece, ids.data() + first, ids.data() + ids.size());
    }
  }

  const JsonTokenizer* tokenizer_;
  std::unique_ptr<JsonModel::Encoder> model_;
  WordCache cache_;
  std::string section_;
  Pieces pieces_;
};

std::unique_ptr<Tokenizer::Encoder> JsonTokenizer::encoder() const {
  return std::make_unique<Words>(*this);
}

class JsonTokenizer::Characters : public Tokenizer::Stream {
 public:
  Characters(const JsonTokenizer& tokenizer, bool skips_special)
      : tokenizer_(&tokenizer),
        skips_special_(skips_special),
        sink_(tokenizer.decoder_->start(text_)) {}

  std::string next(std::int32_t id) override {
    text_.clear();
    tokenizer_->hand_on(id, skips_special_, *sink_);
    return text_;
  }
  std::string finish() override {
    text_.clear();
    sink_->finish();
    return text_;
  }

 private:
  const JsonTokenizer* tokenizer_;
  bool skips_special_;
  std::string text_;
  std::unique_ptr<TokenSink> sink_;
};

std::unique_ptr<Tokenizer::Stream> JsonTokenizer::stream(bool skips_special) const {
  return std::make_unique<Characters>(*this, skips_special);
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer_json(const std::string& path) {
  return std::make_unique<JsonTokenizer>(
      path, checkpoint::read_plain_file(path, "tokenizer", largest_tokenizer));
}

}  // namespace ostrakon::texts
