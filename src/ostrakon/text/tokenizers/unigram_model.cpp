// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/unigram_model.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/tokenizers/byte_alphabet.hpp>
#include <ostrakon/text/tokenizers/unigram.hpp>

namespace ostrakon::texts {
namespace {

Unigram::Settings read_settings(JsonFields& fields) {
  Unigram::Settings settings;
  const nlohmann::json& list = fields.value("vocab");
  if (!list.is_array()) fields.refuse("vocab", "a list");
  for (const nlohmann::json& piece : list) {
    const bool is_good =
        piece.is_array() && piece.size() == 2 && piece[0].is_string() && piece[1].is_number();
    require(is_good, "'", fields.file(),
            "': ", fields.path(text("vocab[", settings.pieces.size(), "]")), " is ",
            without_middle(printable(piece.dump()), 120), "; expected a text and its score");
    settings.pieces.push_back({piece[0].get<std::string>(), piece[1].get<double>()});
  }
  if (fields.has("unk_id")) {
    settings.unknown = fields.count("unk_id");
    if (static_cast<std::size_t>(*settings.unknown) >= settings.pieces.size())
      fields.refuse("unk_id", text("an index of the ", settings.pieces.size(), " pieces in vocab"));
  }
  settings.byte_fallback = fields.boolean("byte_fallback", false);
  fields.finish();
  return settings;
}

class UnigramModel final : public JsonModel {
 public:
  UnigramModel(JsonFields& fields, bool takes_bytes)
      : takes_bytes_(takes_bytes), unigram_(read_settings(fields)) {}

  std::int64_t vocabulary() const override { return token_count(); }
  std::int64_t token_count() const override {
    return static_cast<std::int64_t>(unigram_.pieces().size());
  }
  std::optional<std::int32_t> id_of(std::string_view token) const override {
    return unigram_.id_of(token);
  }
  std::optional<std::string_view> token(std::int32_t id) const override {
    if (id < 0 || id >= token_count()) return std::nullopt;
    return unigram_.pieces()[static_cast<std::size_t>(id)].text;
  }
  std::unique_ptr<Encoder> encoder() const override { return std::make_unique<Own>(*this); }

 private:
  class Own final : public Encoder {
   public:
    explicit Own(const UnigramModel& model) : model_(model) {}
    void encode(std::string_view piece, std::vector<std::int32_t>& ids) override {
      if (!model_.takes_bytes_) return model_.unigram_.encode(piece, ids);
      characters_.clear();
      append_characters(piece, characters_);
      model_.unigram_.encode(characters_, ids);
    }

   private:
    const UnigramModel& model_;
    std::string characters_;
  };

  bool takes_bytes_;
  Unigram unigram_;
};

}  // namespace

std::unique_ptr<JsonModel> read_unigram(JsonFields& model, bool takes_bytes) {
  return std::make_unique<UnigramModel>(model, takes_bytes);
}

}  // namespace ostrakon::texts
