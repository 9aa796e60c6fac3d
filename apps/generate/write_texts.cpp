// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/generate/stop_string_filter.hpp>

#include "texts.hpp"

namespace ostrakon::apps {
namespace {

using Json = nlohmann::ordered_json;
using Tokens = train::Generator::Tokens;

/// What comes of one text: characters as soon as they are whole, or ids.
class OneText {
 public:
  OneText(const TextModel& model, const Line& line, const Tokens& beginning)
      : tokenizer_(model.tokenizer.get()), line_(line), until_(line.stops) {
    if (tokenizer_ == nullptr) return;
    begin_stream();
    // Spaces at the beginning of a text may be dropped, and characters may be begun there.
    for (const std::int32_t token : beginning) decode(token);
  }

  /// Takes a token, of which `ends` end the text, and returns whether there are more.
  bool take(std::int32_t token, const Tokens& ends) {
    const bool is_end = std::find(ends.begin(), ends.end(), token) != ends.end();
    if (is_end && !line_.ignore_end) return end("end");
    ids_.push_back(token);
    if (tokenizer_ == nullptr) {
      add(text(" ", token));
    } else if (is_end) {
      add(until_.add(stream_->finish() + "\n----\n"));
      begin_stream();
    } else {
      add(until_.add(decode(token)));
    }
    if (until_.is_stopped()) return end("stop");
    return static_cast<std::int64_t>(ids_.size()) < line_.tokens || end("tokens");
  }

  bool is_ended() const { return !ended_by_.empty(); }
  /// Returns what is known of the text and was not returned before.
  std::string take_new() {
    const std::string some = text_.substr(shown_);
    shown_ = text_.size();
    return some;
  }
  /// Adds what is written of the text.
  void describe(Json& to) const {
    if (tokenizer_ == nullptr)
      to["ids"] = ids_;
    else
      to["text"] = text_;
    to["tokens"] = ids_.size();
    to["ended_by"] = ended_by_;
  }

 private:
  void begin_stream() { stream_ = tokenizer_->stream(true); }
  /// A model may have more ids than its tokenizer: padding, which has no text.
  std::string decode(std::int32_t token) {
    return token < tokenizer_->vocabulary() ? stream_->next(token) : "";
  }
  void add(const std::string& some) { text_ += some; }
  bool end(const char* by) {
    ended_by_ = by;
    if (tokenizer_ != nullptr && !until_.is_stopped()) {
      add(until_.add(stream_->finish()));
      add(until_.finish());
      if (until_.is_stopped()) ended_by_ = "stop";
    }
    return false;
  }

  const texts::Tokenizer* tokenizer_;
  const Line& line_;
  train::StopStringFilter until_;
  std::unique_ptr<texts::Tokenizer::Stream> stream_;
  Tokens ids_;
  std::string text_, ended_by_;
  std::size_t shown_ = 0;
};

/// Writes texts in their order, the first one that has not ended as far as it is known.
class Writer {
 public:
  Writer(const TextModel& model, const Line& line, const Texts& texts)
      : line_(line), texts_(texts) {
    for (const train::TokenPrompt& one : texts.beginnings)
      all_.emplace_back(model, line, one.tokens);
    begin();
  }

  bool take(std::size_t which, std::int32_t token) {
    const bool goes_on = all_[which].take(token, texts_.ends);
    while (at_ < all_.size()) {
      write(line_.json ? "" : all_[at_].take_new());
      if (!all_[at_].is_ended()) break;
      write((line_.json ? json_of(at_) : "") + "\n");
      ++at_;
      begin();
    }
    return goes_on;
  }

 private:
  static void write(const std::string& some) {
    if (!some.empty()) std::cout << some << std::flush;
    require(std::cout.good(), "can't write to the standard output");
  }
  /// Writes what a text begins with.
  void begin() const {
    if (at_ == all_.size() || line_.json) return;
    if (at_ > 0 && !line_.ids) write("----\n");
    if (!line_.ids) return write(texts_.prompt_of(at_).text);
    const char* between = "";
    std::string ids;
    for (const std::int32_t token : texts_.beginnings[at_].tokens) {
      ids += text(between, token);
      between = " ";
    }
    write(ids);
  }
  std::string json_of(std::size_t which) const {
    const Prompt& prompt = texts_.prompt_of(which);
    Json json;
    if (line_.ids)
      json["prompt"] = texts_.beginnings[which].tokens;
    else if (prompt.is_chat())
      json["messages"] = prompt.chat.at("messages");
    else
      json["prompt"] = prompt.text;
    json["sample"] = texts_.beginnings[which].sampling.sample;
    all_[which].describe(json);
    // A text of bytes need not be UTF-8.
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  const Line& line_;
  const Texts& texts_;
  std::vector<OneText> all_;
  std::size_t at_ = 0;  ///< the text that is written
};

}  // namespace

void write_texts(train::Generator& generator, const TextModel& model, const Line& line,
                 const Texts& texts) {
  Writer writer(model, line, texts);
  train::continue_texts(
      generator, texts.beginnings, line.tokens,
      [&](std::size_t which, std::int32_t token) { return writer.take(which, token); });
}

}  // namespace ostrakon::apps
