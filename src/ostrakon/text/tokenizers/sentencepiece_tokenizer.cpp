// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/sentencepiece_tokenizer.hpp>

#include <sentencepiece_processor.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/text/json_fields.hpp>
#include <ostrakon/text/tokenizers/tokenizer_folder.hpp>
#include <ostrakon/text/utf8.hpp>
#include <set>
#include <unordered_map>

namespace ostrakon::texts {
namespace {

using Processor = sentencepiece::SentencePieceProcessor;

/// What stands for a byte that is part of no character: U+FFFD.
constexpr const char* replacement = "\xEF\xBF\xBD";

/// The library counts bytes by int, also those of the normalized text, which may be several times
/// as long.
constexpr std::size_t most_text_bytes = std::size_t{1} << 28;

std::string read_model_file(const std::string& path) {
  const PlainFile file(path, PlainFile::Mode::read);
  std::string content(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, file.size(), content.data());
  return content;
}

std::string checksum_of_model(const std::string& content) {
  hdf5::Checksum checksum;
  checksum.add(content.data(), static_cast<std::int64_t>(content.size()));
  return checksum.hex();
}

/// Takes a number off the front of protobuf's wire format: 7 bits a byte, the lowest first.
std::uint64_t take_protobuf_number(std::string_view& bytes) {
  std::uint64_t number = 0;
  for (unsigned shift = 0; !bytes.empty() && shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    number |= std::uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) break;
  }
  return number;
}

/// Returns the bytes of the field `number`, text or a message, of a message in protobuf's wire
/// format; empty if there is none.
std::string_view field_of_message(std::string_view message, std::uint64_t number) {
  std::string_view found;
  while (!message.empty()) {
    const std::uint64_t key = take_protobuf_number(message);
    const std::uint64_t type = key & 7;
    std::uint64_t size = type == 1 ? 8 : type == 5 ? 4 : 0;
    if (type == 0 || type == 2) size = take_protobuf_number(message);
    const std::string_view value = type == 0 ? "" : message.substr(0, size);
    if (type == 2 && key >> 3 == number) found = value;
    message.remove_prefix(value.size());
  }
  return found;
}

/// Returns the last number in the field `number` of a message; nothing if there is none.
std::optional<std::uint64_t> number_of_message(std::string_view message, std::uint64_t number) {
  std::optional<std::uint64_t> found;
  while (!message.empty()) {
    const std::uint64_t key = take_protobuf_number(message);
    const std::uint64_t type = key & 7;
    std::uint64_t value = type == 1 ? 8 : type == 5 ? 4 : 0;
    if (type == 0 || type == 2) value = take_protobuf_number(message);
    if (type == 0 && key >> 3 == number) found = value;
    if (type != 0) message.remove_prefix(std::min<std::uint64_t>(value, message.size()));
  }
  return found;
}

/// Whether the model puts a space before a text (ModelProto.normalizer_spec.add_dummy_prefix).
bool adds_prefix(std::string_view model) {
  return number_of_message(field_of_message(model, 3), 3).value_or(1) != 0;
}

/// Whether the model changes nothing of a text but what it makes of spaces
/// (sentencepiece_model.proto: ModelProto.normalizer_spec).
bool keeps_text(std::string_view model) {
  constexpr std::uint64_t normalizer_spec = 3, precompiled_charsmap = 2,
                          remove_extra_whitespaces = 4;
  const std::string_view spec = field_of_message(model, normalizer_spec);
  return field_of_message(spec, precompiled_charsmap).empty() &&
         number_of_message(spec, remove_extra_whitespaces).value_or(1) == 0;
}

/// Whether the model changes the text that it has decoded (sentencepiece_model.proto:
/// ModelProto.denormalizer_spec.precompiled_charsmap).
bool has_denormalizer(std::string_view model) {
  constexpr std::uint64_t denormalizer_spec = 5, precompiled_charsmap = 2;
  return !field_of_message(field_of_message(model, denormalizer_spec), precompiled_charsmap)
              .empty();
}

void require_ok(const sentencepiece::util::Status& status, const std::string& what) {
  require(status.ok(), what, ": ", status.ToString());
}

/// Special tokens by their texts.
class SpecialTexts {
 public:
  void add(const std::string& text, std::int32_t id) {
    if (text.empty() || !ids_.emplace(text, id).second) return;
    sizes_.insert(text.size());
  }

  struct Found {
    std::size_t begin, end;
    std::int32_t id;
  };
  /// Returns the first one in `text` from `begin` on, the longest of those that begin there.
  std::optional<Found> find(std::string_view text, std::size_t begin) const {
    for (; begin < text.size(); ++begin)
      for (const std::size_t size : sizes_) {
        if (size > text.size() - begin) continue;
        const auto found = ids_.find(std::string(text.substr(begin, size)));
        if (found != ids_.end()) return Found{begin, begin + size, found->second};
      }
    return std::nullopt;
  }

 private:
  std::unordered_map<std::string, std::int32_t> ids_;
  std::set<std::size_t, std::greater<>> sizes_;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path) : path_(path) {
    const std::string model = read_model_file(path);
    name_ = "tokenizer.model-" + checksum_of_model(model);
    require_ok(processor_.LoadFromSerializedProto(model),
               text("'", path, "' is no model of SentencePiece"));
    require(!has_denormalizer(model), "'", path,
            "': denormalizer_spec has a precompiled_charsmap; expected none, as a denormalizer is "
            "not implemented");
    for (std::int32_t id = 0; id < vocabulary(); ++id) {
      if (is_special(id) || processor_.IsUnknown(id)) special_.add(processor_.IdToPiece(id), id);
      if (!anchor_ && !processor_.IsByte(id) && !decode_with_library({id}).empty()) anchor_ = id;
    }
    read_companions(parent_folder(path));
    if (prefixes_ == Prefixes::unknown && !adds_prefix(model)) prefixes_ = Prefixes::all;
    if (prefixes_ != Prefixes::first) return;
    keeps_text_ = keeps_text(model);
    // A message that is appended is merged: normalizer_spec { add_dummy_prefix: false }.
    require_ok(inner_.LoadFromSerializedProto(model + std::string("\x1A\x02\x18\x00", 4)),
               text("'", path, "' without add_dummy_prefix"));
  }

  const std::string& name() const override { return name_; }
  std::int64_t vocabulary() const override { return processor_.GetPieceSize(); }

  std::unique_ptr<Encoder> encoder() const override { return std::make_unique<OwnEncoder>(*this); }
  Around around() const override { return around_; }
  std::optional<std::int32_t> begin() const override { return ends_.begin; }
  std::optional<std::int32_t> end() const override { return ends_.end; }
  std::vector<std::int32_t> ends() const override { return ends_.ends; }

  std::optional<std::int32_t> id_of(std::string_view token) const override {
    const std::int32_t id = processor_.PieceToId(token);
    return processor_.IdToPiece(id) == token ? std::optional(id) : std::nullopt;
  }
  std::string token(std::int32_t id) const override {
    return has(id) ? processor_.IdToPiece(id) : "";
  }
  bool is_special(std::int32_t id) const override { return has(id) && processor_.IsControl(id); }

  std::string decode(const std::int32_t* ids, std::int64_t count,
                     bool skips_special) const override {
    for (std::int64_t i = 0; i < count; ++i) require_known(ids[i], i);
    sentencepiece::ImmutableSentencePieceText decoded;
    require_ok(processor_.Decode(std::vector<int>(ids, ids + count), decoded.mutable_proto()),
               "decoding");
    std::string text;
    for (std::int64_t i = 0; i < count; ++i) {
      const bool shows_token = !skips_special && is_special(ids[i]);
      text += shows_token ? processor_.IdToPiece(ids[i])
                          : decoded.pieces(static_cast<int>(i)).surface();
    }
    return text;
  }

  std::unique_ptr<Stream> stream(bool skips_special) const override {
    return std::make_unique<OwnStream>(*this, skips_special);
  }

 private:
  class OwnEncoder final : public Encoder {
   public:
    explicit OwnEncoder(const SentencePieceTokenizer& tokenizer) : tokenizer_(tokenizer) {}

    void encode(std::string_view text, bool finds_special,
                std::vector<std::int32_t>& ids) override {
      require(text.size() <= most_text_bytes, "a text has ", text.size(),
              " bytes; SentencePiece's library takes up to ", most_text_bytes,
              ": split it into documents");
      require_utf8(text);
      std::size_t at = 0;
      if (finds_special)
        while (const auto found = tokenizer_.special_.find(text, at)) {
          tokenizer_.require_known_prefixes();
          encode_part(text.substr(at, found->begin - at), at, ids);
          ids.push_back(found->id);
          at = found->end;
        }
      encode_part(text.substr(at), at, ids);
    }

   private:
    static void require_utf8(std::string_view text) {
      const std::size_t at = valid_utf8(text);
      require(at == text.size(), "byte ", at, " of a text is not UTF-8");
    }

    /// `at`: where the part begins in its text.
    void encode_part(std::string_view part, std::size_t at, std::vector<std::int32_t>& ids) {
      if (part.empty()) return;
      const Processor& processor =
          tokenizer_.is_inner(part, at) ? tokenizer_.inner_ : tokenizer_.processor_;
      require_ok(processor.Encode(part, &part_ids_), "encoding");
      ids.insert(ids.end(), part_ids_.begin(), part_ids_.end());
    }

    const SentencePieceTokenizer& tokenizer_;
    std::vector<int> part_ids_;
  };

  /// The library decodes whole texts. What it makes of a piece depends on those before only as long
  /// as these have made no text (a space at the beginning is left out), and for bytes.
  class OwnStream final : public Stream {
   public:
    OwnStream(const SentencePieceTokenizer& tokenizer, bool skips_special)
        : tokenizer_(tokenizer), skips_special_(skips_special) {}

    std::string next(std::int32_t id) override {
      tokenizer_.require_known(id, position_++);
      if (tokenizer_.processor_.IsByte(id)) {
        bytes_ += byte_of(tokenizer_.processor_.IdToPiece(id));
        return noted(take_characters(false));
      }
      std::string text = noted(take_characters(true));
      const std::string own = noted(has_text_ ? tokenizer_.decode_inside(id) : decode_leading(id));
      const bool shows_token = !skips_special_ && tokenizer_.is_special(id);
      return text + (shows_token ? tokenizer_.processor_.IdToPiece(id) : own);
    }

    std::string finish() override { return noted(take_characters(true)); }

   private:
    static char byte_of(const std::string& piece) {  // "<0x0A>"
      return static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
    }

    std::string noted(std::string text) {
      has_text_ |= !text.empty();
      return text;
    }

    std::string decode_leading(std::int32_t id) {
      std::vector<int> ids = leading_;
      ids.push_back(id);
      std::string text = tokenizer_.decode_with_library(ids);
      // One that is repeated without text changes nothing.
      if (text.empty() && (leading_.empty() || leading_.back() != id)) leading_ = std::move(ids);
      return text;
    }

    /// Takes the characters whose bytes are all there; with `all`, the bytes of others, too.
    std::string take_characters(bool all) {
      std::string text;
      while (!bytes_.empty()) {
        const auto first = static_cast<unsigned char>(bytes_.front());
        const std::size_t wanted = first < 0xC2   ? 1
                                   : first < 0xE0 ? 2
                                   : first < 0xF0 ? 3
                                   : first < 0xF5 ? 4
                                                  : 1;
        const std::string character = bytes_.substr(0, wanted);
        const bool continues = std::all_of(character.begin() + 1, character.end(),
                                           [](char byte) { return (byte & 0xC0) == 0x80; });
        const bool is_whole =
            character.size() == wanted && valid_utf8(character) == character.size();
        if (!all && character.size() < wanted && continues) break;
        text += is_whole ? character : replacement;
        bytes_.erase(0, is_whole ? wanted : 1);
      }
      return text;
    }

    const SentencePieceTokenizer& tokenizer_;
    bool skips_special_;
    std::int64_t position_ = 0;
    bool has_text_ = false;
    std::vector<int> leading_;  ///< ids so far, while they have made no text
    std::string bytes_;         ///< of a character of which some are to come
  };

  /// Reads the files beside the model. Where they name no tokens that begin and end a text, those
  /// of the model do.
  void read_companions(const std::string& folder) {
    const std::string added = (std::filesystem::path(folder) / "added_tokens.json").string();
    const nlohmann::json tokens =
        is_plain_file(added) ? read_companion(added) : nlohmann::json::object();
    for (const auto& [token, id] : tokens.items())
      require(id_of(token) && id == *id_of(token), "'", added, "': ", shown(token), " is ",
              printable(id.dump()), "; expected a piece of '", path_, "' and its id");
    ends_ = read_text_ends(folder, vocabulary(), [this](auto& token) { return id_of(token); });
    if (!ends_.begin) ends_.begin = id_or_none(processor_.bos_id());
    if (!ends_.end) ends_.end = id_or_none(processor_.eos_id());
    if (ends_.end && ends_.ends.empty()) ends_.ends = {*ends_.end};

    config_path_ = (std::filesystem::path(folder) / "tokenizer_config.json").string();
    if (!is_plain_file(config_path_)) return;
    const nlohmann::json json = read_companion(config_path_);
    JsonFields fields(json, config_path_, "");
    prefixes_ = read_prefixes(fields);
    if (ends_.begin && fields.boolean("add_bos_token", false)) around_.before = {*ends_.begin};
    if (ends_.end && fields.boolean("add_eos_token", false)) around_.after = {*ends_.end};
  }

  /// Before which parts of a text, as special tokens cut it, the model puts a space.
  enum class Prefixes { all, first, unknown };

  /// Returns what transformers 5 does: what `legacy` says; without it what the class does.
  static Prefixes read_prefixes(JsonFields& fields) {
    if (fields.has("legacy")) return fields.boolean("legacy") ? Prefixes::all : Prefixes::first;
    if (!fields.has("tokenizer_class")) return Prefixes::all;
    const std::string name = fields.string("tokenizer_class");
    const bool is_llama = name == "LlamaTokenizer" || name == "LlamaTokenizerFast";
    return is_llama ? Prefixes::first : Prefixes::unknown;
  }

  /// For a text with special tokens. Throws Error where its ids are not known.
  void require_known_prefixes() const {
    require(prefixes_ != Prefixes::unknown, "'", config_path_,
            "' has no 'legacy'; expected true or false, which says whether a space is put before "
            "each part of a text between special tokens, or only at its beginning");
    require(prefixes_ != Prefixes::first || keeps_text_,
            "special tokens are to be found in text, "
            "which is not implemented where 'legacy' of '",
            config_path_, "' is false (or missing) and '", path_,
            "' normalizes text or removes spaces; expected 'legacy' true");
  }

  /// Whether no space is put before the part of a text that begins at `at`.
  bool is_inner(std::string_view part, std::size_t at) const {
    if (prefixes_ != Prefixes::first || !keeps_text_) return false;
    constexpr std::string_view mark = "\xE2\x96\x81";  // U+2581, which stands for a space
    return at > 0 || part.front() == ' ' || part.substr(0, mark.size()) == mark;
  }

  static nlohmann::json read_companion(const std::string& path) {
    constexpr std::int64_t most_bytes = 1 << 26;
    return checkpoint::read_json_object(path, "tokenizer", most_bytes);
  }

  bool has(std::int32_t id) const { return id >= 0 && id < vocabulary(); }
  void require_known(std::int32_t id, std::int64_t position) const {
    require(has(id), "token ", id, " at position ", position, " is not in the vocabulary of ",
            vocabulary(), " of '", path_, "'");
  }
  std::optional<std::int32_t> id_or_none(std::int32_t id) const {
    return has(id) ? std::optional(id) : std::nullopt;
  }

  std::string decode_with_library(const std::vector<int>& ids) const {
    std::string text;
    require_ok(processor_.Decode(ids, &text), "decoding");
    return text;
  }

  /// Returns the text of a piece that is no byte where other text comes before it.
  std::string decode_inside(std::int32_t id) const {
    if (!anchor_) return decode_with_library({id});
    return decode_with_library({*anchor_, id}).substr(decode_with_library({*anchor_}).size());
  }

  std::string path_, name_, config_path_;
  TextEnds ends_;
  Around around_;
  Processor processor_;
  Prefixes prefixes_ = Prefixes::all;
  bool keeps_text_ = false;
  Processor inner_;  ///< puts no space before a text; loaded for Prefixes::first
  SpecialTexts special_;
  std::optional<std::int32_t> anchor_;  ///< a piece that makes text also at the beginning
};

}  // namespace

std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& path) {
  return std::make_unique<SentencePieceTokenizer>(path);
}

}  // namespace ostrakon::texts
