// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/text/chat_documents.hpp>
#include <ostrakon/text/sources/record_reader.hpp>
#include <ostrakon/text/token_document.hpp>
#include <ostrakon/text/tokenizer.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ostrakon::texts {

/// How documents become tokens.
struct EncodeSettings {
  std::string field = "text";  ///< of JSON: a name, or names of nested objects with dots between
  std::vector<std::int32_t> before, after;  ///< ids that begin and end each document
  bool finds_special = false;               ///< whether special tokens are found by their text
  /// Whether the records of JSON and Parquet are chats, as ChatDocuments has them, with messages in
  /// `field`.
  bool chats = false;
  bool pairs = false;                           ///< of chats: as ChatOptions has it, and
  std::int64_t longest_pair = 0;                ///< as there
  const ChatTemplate* chat_template = nullptr;  ///< null: there is none
  std::string no_template;  ///< what is said of that, as in ChatOptions; empty: as there
};

/// The ids of the stretches of a portion, one after the other.
struct EncodedPortion {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> counts;  ///< of chats, as in TokenDocument; of all ids or none
  struct Stretch {
    std::int64_t ids = 0, text_bytes = 0;
    bool ends = true;  ///< whether its document ends with it
  };
  std::vector<Stretch> stretches;
  std::vector<std::string> bad;   ///< what is wrong with records that have no ids, in order
  std::int64_t without_text = 0;  ///< documents without text, which have no ids either
  Place after;
  std::int64_t taken = 0, text_bytes = 0;  ///< of the portion
};

/// Makes ids of portions. Used by one thread; several may share the tokenizer.
class DocumentEncoder {
 public:
  DocumentEncoder(const Tokenizer& tokenizer, const std::vector<Source>& sources,
                  const EncodeSettings& settings);

  /// Encodes all stretches of a portion. Records that are no JSON, lack the field, or are no UTF-8
  /// where the tokenizer takes that alone, are among `bad`. Throws NoTemplate where a record needs
  /// a template, and there is none.
  EncodedPortion encode(const Portion& portion);

 private:
  void encode_stretch(const Portion& portion, const Stretch& stretch, EncodedPortion& to);
  void encode_record(std::string_view record, const Stretch& stretch, EncodedPortion& to);
  void encode_row(std::string_view row, const Stretch& stretch, EncodedPortion& to);
  void encode_text(std::string_view text, const Stretch& stretch, EncodedPortion& to);
  static void add_chat(const TokenDocument& document, EncodedPortion& to);

  const Tokenizer& tokenizer_;
  const std::vector<Source>& sources_;
  const EncodeSettings& settings_;
  std::unique_ptr<Tokenizer::Encoder> encoder_;
  std::unique_ptr<ChatDocuments> chats_;  // null unless records are chats
};

/// Returns the text of a field of a line of JSON. Throws Error, without the place, that says what
/// is wrong: "column 7: ..." where it is no JSON.
std::string text_of_record(std::string_view line, const std::string& field);

/// Whether a line has nothing but white space.
bool is_blank(std::string_view line);

}  // namespace ostrakon::texts
