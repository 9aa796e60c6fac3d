// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/chat_documents.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/jinja/value.hpp>
#include <ostrakon/text/json_record.hpp>
#include <tuple>
#include <utility>

namespace ostrakon::texts {
namespace {

using Record = nlohmann::ordered_json;

std::string shown_value(const Record& value) {
  if (value.is_string()) return shown(value.get<std::string>());
  constexpr std::size_t most = 100;
  const std::string all = value.dump(-1, ' ', true, Record::error_handler_t::replace);
  return printable(all.size() > most ? all.substr(0, most) + "..." : all);
}

void check_message(const Record& message, const std::string& where) {
  require(message.is_object(), where, " is ", shown_value(message),
          "; expected an object with 'role' and 'content'");
  require(message.contains("role"), where, " has no 'role'",
          message.contains("from")
              ? " (it has 'from', as of another format); expected 'role', such "
                "as user or assistant, and 'content'"
              : "");
  const Record& role = message["role"];
  require(role.is_string() && !role.get_ref<const std::string&>().empty(), where, ": 'role' is ",
          shown_value(role), "; expected the name of a role");
  const bool calls = message.contains("tool_calls") && !message["tool_calls"].is_null();
  const Record content = message.value("content", Record());
  require(calls || !content.is_null(), where, " has no 'content'");
  require(content.is_null() || content.is_string() || content.is_array(), where, ": 'content' is ",
          shown_value(content), "; expected a string, or a list of parts");
}

void check_messages(const Record& messages, const std::string& key) {
  require(messages.is_array(), "'", key, "' is ", shown_value(messages),
          "; expected a list of messages");
  require(!messages.empty(), "'", key, "' has no messages");
  for (std::size_t i = 0; i < messages.size(); ++i)
    check_message(messages[i], ostrakon::text("message ", i + 1, " of '", key, "'"));
}

void check_last(const Record& messages, const std::string& key) {
  const Record& role = messages.back()["role"];
  require(role == "assistant", "the last message of '", key, "' is of role ", shown_value(role),
          "; expected 'assistant', as it is what a model learns to write");
}

/// Returns the messages with which both lists begin, and the rest of each.
std::tuple<Record, Record, Record> split_prompt(const Record& chosen, const Record& rejected) {
  require(chosen.is_array() && rejected.is_array(), "the record has no 'prompt', and 'chosen' is ",
          shown_value(chosen), " and 'rejected' is ", shown_value(rejected),
          "; expected a prompt, or two lists of messages that begin with it");
  std::tuple<Record, Record, Record> parts = {Record::array(), Record::array(), Record::array()};
  auto& [prompt, rest, other] = parts;
  std::size_t same = 0;
  while (same < std::min(chosen.size(), rejected.size()) && chosen[same] == rejected[same])
    prompt.push_back(chosen[same++]);
  require(same > 0, "the record has no 'prompt', and 'chosen' and 'rejected' begin with different ",
          "messages; expected a prompt, or that both begin with it");
  for (std::size_t i = same; i < chosen.size(); ++i) rest.push_back(chosen[i]);
  for (std::size_t i = same; i < rejected.size(); ++i) other.push_back(rejected[i]);
  return parts;
}

/// The further variables of a template that a record gives.
Record further_variables(const Record& record) {
  Record more = Record::object();
  if (record.contains("chat_template_kwargs") && !record["chat_template_kwargs"].is_null()) {
    more = record["chat_template_kwargs"];
    require(more.is_object(), "'chat_template_kwargs' is ", shown_value(more),
            "; expected an object");
  }
  if (!record.contains("tools") || record["tools"].is_null()) return more;
  const Record& tools = record["tools"];
  require(tools.is_array() && std::all_of(tools.begin(), tools.end(),
                                          [](const Record& tool) { return tool.is_object(); }),
          "'tools' is ", shown_value(tools), "; expected a list of objects");
  more["tools"] = tools;
  return more;
}

/// Where each token of a text begins, as far as whole characters tell: a token that begins inside
/// of a character has the offset of that character. The last entry is the text's size. Empty if the
/// tokenizer does not give back the text of its ids.
struct TokenBegins {
  std::vector<std::size_t> begins;
  std::vector<bool> ends_inside;  ///< of a character
};

TokenBegins find_begins(const Tokenizer& tokenizer, const std::string& text,
                        const std::vector<std::int32_t>& ids) {
  const auto stream = tokenizer.stream(false);
  if (!stream) return {};
  TokenBegins result;
  std::size_t at = 0;
  const auto goes_on = [&](const std::string& part) {
    const bool same = text.compare(at, part.size(), part) == 0;
    at += part.size();
    return same;
  };
  constexpr std::string_view unknown = "\xEF\xBF\xBD";
  bool inside = false;
  for (const std::int32_t id : ids) {
    const std::size_t begin = at;
    result.begins.push_back(begin);
    const std::string part = stream->next(id);
    if (!goes_on(part)) return {};
    // A token that ends inside of a character, or begins there, can't be shown in full by itself.
    const std::string alone = tokenizer.decode(&id, 1, false);
    const bool broken =
        alone.size() >= unknown.size() &&
        alone.compare(alone.size() - unknown.size(), unknown.size(), unknown) == 0 &&
        text.compare(begin, alone.size(), alone) != 0;
    inside = part.empty() ? inside || broken : broken && !inside;
    result.ends_inside.push_back(inside);
  }
  if (!goes_on(stream->finish()) || at != text.size()) return {};
  result.begins.push_back(at);
  return result;
}

/// Returns how many ids stand for the text up to `at`.
std::size_t ids_up_to(Tokenizer::Encoder& encoder, const std::string& text, std::size_t at,
                      bool finds_special, const std::vector<std::int32_t>& ids) {
  std::vector<std::int32_t> before;
  encoder.encode(std::string_view(text).substr(0, at), finds_special, before);
  require(before.size() <= ids.size() && std::equal(before.begin(), before.end(), ids.begin()),
          "the tokenizer changes text, and has a token on both sides of byte ", at,
          " of a chat, where what an assistant wrote begins or ends: which tokens count is not "
          "known");
  return before.size();
}

}  // namespace

std::vector<std::uint8_t> tokens_in_spans(const Tokenizer& tokenizer, Tokenizer::Encoder& encoder,
                                          const std::string& text, bool finds_special,
                                          const std::vector<std::int32_t>& ids,
                                          const std::vector<ChatText::Span>& spans) {
  std::vector<std::uint8_t> counts(ids.size(), 0);
  const TokenBegins found = find_begins(tokenizer, text, ids);
  for (const ChatText::Span& span : spans) {
    if (span.begin == span.end) continue;
    if (found.begins.empty()) {
      const std::size_t first = ids_up_to(encoder, text, span.begin, finds_special, ids);
      const std::size_t last = ids_up_to(encoder, text, span.end, finds_special, ids);
      std::fill(counts.begin() + static_cast<std::ptrdiff_t>(first),
                counts.begin() + static_cast<std::ptrdiff_t>(std::max(first, last)), 1);
      continue;
    }
    // Tokens begin in order: from the last one that begins at or before the span.
    const auto first = std::upper_bound(found.begins.begin(), found.begins.end() - 1, span.begin);
    auto i = static_cast<std::size_t>(first - found.begins.begin());
    while (i > 0 && found.begins[i] >= span.begin) --i;
    for (; i < ids.size() && found.begins[i] < span.end; ++i) {
      const std::size_t end = found.begins[i + 1];
      const bool reaches = end > span.begin || (end == span.begin && found.ends_inside[i]);
      if (found.begins[i] >= span.begin || reaches) counts[i] = 1;
    }
  }
  return counts;
}

ChatDocuments::ChatDocuments(const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                             ChatOptions options)
    : tokenizer_(tokenizer),
      template_(chat_template),
      options_(std::move(options)),
      encoder_(tokenizer.encoder()) {}

ChatDocuments::~ChatDocuments() = default;

TokenDocument ChatDocuments::read(std::string_view record) {
  return document(parse_record(record));
}

TokenDocument ChatDocuments::document(const Record& record) {
  try {
    jinja::check_depth(record);
  } catch (const jinja::Problem& problem) {
    throw Error(problem.what());
  }
  require(record.is_object(), "the record is ", shown_value(record), "; expected a JSON object");
  if (options_.pairs) return pair(record);
  const auto value = [&record](const std::string& key) { return record.value(key, Record()); };
  const Record messages = value(options_.field);
  if (!messages.is_null()) {
    check_messages(messages, options_.field);
    check_last(messages, options_.field);
    return of_chat(text_of_messages(record, Record::array(), messages));
  }
  const Record prompt = value("prompt"), completion = value("completion");
  require(!prompt.is_null() && !completion.is_null(), "the record has neither '", options_.field,
          "' nor both 'prompt' and 'completion'",
          value("conversations").is_null()
              ? ""
              : "; it has 'conversations', which --field names if its messages have 'role' and "
                "'content' (not 'from' and 'value')");
  return of_completion(record, prompt, completion, "completion");
}

TokenDocument ChatDocuments::of_completion(const Record& record, const Record& prompt,
                                           const Record& completion, const std::string& key) {
  if (prompt.is_string() && completion.is_string()) {
    require(!completion.get_ref<const std::string&>().empty(), "'", key, "' is empty");
    return of_texts(prompt.get<std::string>(), completion.get<std::string>());
  }
  require(prompt.is_array() && completion.is_array(), "'prompt' is ", shown_value(prompt), " and '",
          key, "' is ", shown_value(completion),
          "; expected two strings, or two lists of messages");
  check_messages(prompt, "prompt");
  check_messages(completion, key);
  check_last(completion, key);
  return of_chat(text_of_messages(record, prompt, completion));
}

TokenDocument ChatDocuments::pair(const Record& record) {
  const auto value = [&record](const std::string& key) { return record.value(key, Record()); };
  Record prompt = value("prompt"), chosen = value("chosen"), rejected = value("rejected");
  require(!chosen.is_null() && !rejected.is_null(),
          "the record has not both 'chosen' and 'rejected'");
  if (prompt.is_null()) std::tie(prompt, chosen, rejected) = split_prompt(chosen, rejected);
  TokenDocument both = of_completion(record, prompt, chosen, "chosen");
  TokenDocument second = of_completion(record, prompt, rejected, "rejected");
  for (const auto& [document, key] : {std::pair{&both, "chosen"}, {&second, "rejected"}})
    require(document->ids.size() >= 2 &&
                std::count(document->counts.begin() + 1, document->counts.end(), 1) > 0,
            "'", key, "' has no token behind another one; expected at least one");
  const auto places = static_cast<std::int64_t>(both.ids.size() + second.ids.size()) - 2;
  require(options_.longest_pair == 0 || places <= options_.longest_pair, "the pair has ", places,
          " tokens, with the prompt of each answer; expected at most ", options_.longest_pair);
  second.counts.front() = begins_second;
  both.ids.insert(both.ids.end(), second.ids.begin(), second.ids.end());
  both.counts.insert(both.counts.end(), second.counts.begin(), second.counts.end());
  both.text_bytes += second.text_bytes;
  return both;
}

ChatText ChatDocuments::text_of_messages(const Record& record, const Record& prompt,
                                         const Record& completion) const {
  if (template_ == nullptr)
    throw NoTemplate("the record has messages, but " + options_.no_template);
  const Record more = further_variables(record);
  Record all = prompt;
  for (const Record& message : completion) all.push_back(message);
  ChatText chat = template_->render_for_training(all, more);
  if (!prompt.empty()) {
    const std::string before = template_->render(prompt, true, more);
    require(chat.text.compare(0, before.size(), before) == 0,
            "the text of 'prompt' does not begin that of 'prompt' and 'completion': the template "
            "writes it in another way when others follow");
    auto& spans = chat.assistant;
    spans.erase(std::remove_if(spans.begin(), spans.end(),
                               [&](const auto& span) { return span.begin < before.size(); }),
                spans.end());
  }
  const bool any = std::any_of(chat.assistant.begin(), chat.assistant.end(),
                               [](const auto& span) { return span.begin < span.end; });
  require(any, "the template writes no text of an assistant");
  return chat;
}

TokenDocument ChatDocuments::of_chat(const ChatText& chat) {
  TokenDocument document;
  document.text_bytes = static_cast<std::int64_t>(chat.text.size());
  encoder_->encode(chat.text, true, document.ids);
  document.counts =
      tokens_in_spans(tokenizer_, *encoder_, chat.text, true, document.ids, chat.assistant);
  return document;
}

TokenDocument ChatDocuments::of_texts(const std::string& prompt, const std::string& completion) {
  const std::string all = prompt + completion;
  const auto around = tokenizer_.around();
  const std::vector<std::int32_t> before = options_.before.value_or(around.before);
  std::vector<std::int32_t> after = around.after;
  const auto end = tokenizer_.end();
  if (end && (after.empty() || after.back() != *end)) after.push_back(*end);
  if (options_.after) after = *options_.after;

  std::vector<std::int32_t> ids;
  encoder_->encode(all, options_.finds_special, ids);
  const std::vector<std::uint8_t> counts = tokens_in_spans(
      tokenizer_, *encoder_, all, options_.finds_special, ids, {{prompt.size(), all.size()}});
  TokenDocument document;
  document.text_bytes = static_cast<std::int64_t>(all.size());
  document.ids = before;
  document.ids.insert(document.ids.end(), ids.begin(), ids.end());
  document.ids.insert(document.ids.end(), after.begin(), after.end());
  document.counts.assign(before.size(), 0);
  document.counts.insert(document.counts.end(), counts.begin(), counts.end());
  document.counts.insert(document.counts.end(), after.size(), 1);
  return document;
}

}  // namespace ostrakon::texts
