// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/text/chat_template.hpp>
#include <ostrakon/text/token_document.hpp>
#include <ostrakon/text/tokenizer.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ostrakon::texts {

/// A record needs a chat template, and there is none: which no other record can make good.
class NoTemplate : public Error {
 public:
  using Error::Error;
};

struct ChatOptions {
  /// What is said where a record has messages, and there is no template.
  std::string no_template = "there is no chat template";
  std::string field = "messages";  ///< the key of a record's messages
  /// Whether special tokens are found by their text in a prompt and a completion that are strings.
  /// They always are in messages, as the template writes them.
  bool finds_special = false;
  /// What stands before and after a prompt and a completion that are strings; empty: as the
  /// tokenizer says, its end of text included.
  std::optional<std::vector<std::int32_t>> before, after;
  /// Whether records are of pairs of answers: "prompt", "chosen" and "rejected".
  bool pairs = false;
  /// Tokens that a pair may have, without the first of each document; 0: any number.
  std::int64_t longest_pair = 0;
};

/// Makes documents of records of chats. A record is a JSON object with
///   - "messages" (or ChatOptions::field): a list of {"role": ..., "content": ...}, or
///   - "prompt" and "completion": two strings, or two lists of messages;
/// and, with messages, perhaps "tools", a list, and "chat_template_kwargs", an object of further
/// variables of the template. Other keys are not read.
///
/// With ChatOptions::pairs it has "prompt", "chosen" and "rejected": three strings, or three lists
/// of messages; or "chosen" and "rejected" alone, lists of messages that begin alike, with the
/// prompt. Its document is a pair then: that of the prompt with the chosen answer as completion,
/// and that with the rejected one.
///
/// What counts in the loss is what an assistant wrote with the mark that ends its turn; of a prompt
/// and a completion, only what belongs to the completion. A token counts if any of its bytes does,
/// as `return_assistant_tokens_mask` of transformers has it.
///
/// Used by one thread.
class ChatDocuments {
 public:
  /// `chat_template`: null if there is none, then records with messages are refused. Both must
  /// outlive the object.
  ChatDocuments(const Tokenizer& tokenizer, const ChatTemplate* chat_template, ChatOptions options);
  ~ChatDocuments();

  /// Returns the document of a record. Throws Error that says what is wrong with the record: which
  /// key of which message, and what was expected. read() takes its JSON text.
  TokenDocument read(std::string_view record);
  TokenDocument document(const nlohmann::ordered_json& record);

 private:
  TokenDocument pair(const nlohmann::ordered_json& record);
  /// `key`: of the completion, for messages.
  TokenDocument of_completion(const nlohmann::ordered_json& record,
                              const nlohmann::ordered_json& prompt,
                              const nlohmann::ordered_json& completion, const std::string& key);
  TokenDocument of_chat(const ChatText& chat);
  TokenDocument of_texts(const std::string& prompt, const std::string& completion);
  ChatText text_of_messages(const nlohmann::ordered_json& record,
                            const nlohmann::ordered_json& prompt,
                            const nlohmann::ordered_json& completion) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate* template_;
  const ChatOptions options_;
  std::unique_ptr<Tokenizer::Encoder> encoder_;
};

/// Returns for each of the ids of `text` whether it has bytes in `spans`, which are in order and
/// begin and end between characters. Where the tokenizer changes text, so that the bytes of a token
/// are not known, the text up to each begin and end must have ids with which `ids` begin; throws
/// Error otherwise.
std::vector<std::uint8_t> tokens_in_spans(const Tokenizer& tokenizer, Tokenizer::Encoder& encoder,
                                          const std::string& text, bool finds_special,
                                          const std::vector<std::int32_t>& ids,
                                          const std::vector<ChatText::Span>& spans);

}  // namespace ostrakon::texts
