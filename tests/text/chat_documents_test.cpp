// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/chat_documents.hpp>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <random>

#include "support/messages.hpp"

namespace ostrakon::texts {
namespace {

using Json = nlohmann::ordered_json;

/// Tokens are pieces of bytes, of which the longest is taken; some end inside of a character. The
/// one of "<|close|>" is special. What is no piece is a token for each byte.
class PieceTokenizer : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces, bool tells_bytes = true)
      : pieces_(std::move(pieces)), tells_bytes_(tells_bytes) {
    for (int byte = 0; byte < 256; ++byte) pieces_.emplace_back(1, static_cast<char>(byte));
  }
  const std::string& name() const override { return name_; }
  std::int64_t vocabulary() const override { return static_cast<std::int64_t>(pieces_.size()) + 2; }

  struct Greedy : Encoder {
    const PieceTokenizer& all;
    explicit Greedy(const PieceTokenizer& t) : all(t) {}
    void encode(std::string_view text, bool finds_special,
                std::vector<std::int32_t>& ids) override {
      while (!text.empty()) {
        std::size_t best = 0, size = 0;
        for (std::size_t i = 0; i < all.pieces_.size(); ++i) {
          const std::string& piece = all.pieces_[i];
          const bool special = piece == "<|close|>";
          if (piece.size() <= size || (special && !finds_special)) continue;
          if (text.substr(0, piece.size()) != piece) continue;
          best = i;
          size = piece.size();
        }
        ids.push_back(static_cast<std::int32_t>(best));
        text.remove_prefix(size);
      }
    }
  };
  std::unique_ptr<Encoder> encoder() const override { return std::make_unique<Greedy>(*this); }
  Around around() const override { return {{begin_id()}, {}}; }
  std::optional<std::int32_t> begin() const override { return begin_id(); }
  std::optional<std::int32_t> end() const override { return begin_id() + 1; }
  std::vector<std::int32_t> ends() const override { return {begin_id() + 1}; }
  std::optional<std::int32_t> id_of(std::string_view) const override { return std::nullopt; }
  std::string token(std::int32_t id) const override { return piece(id); }
  bool is_special(std::int32_t) const override { return false; }
  std::string decode(const std::int32_t* ids, std::int64_t count, bool) const override {
    std::string bytes;
    for (std::int64_t i = 0; i < count; ++i) bytes += piece(ids[i]);
    std::string result;
    while (first_not_utf8(bytes) != bytes.size()) {
      const std::size_t bad = first_not_utf8(bytes);
      result += bytes.substr(0, bad) + "\xEF\xBF\xBD";
      bytes.erase(0, bad + 1);
    }
    return result + bytes;
  }

  struct Whole : Stream {
    const PieceTokenizer& all;
    std::string held;
    explicit Whole(const PieceTokenizer& t) : all(t) {}
    std::string next(std::int32_t id) override {
      held += all.piece(id);
      const std::size_t whole = first_not_utf8(held);
      std::string result = held.substr(0, whole);
      held.erase(0, whole);
      return result;
    }
    std::string finish() override { return held; }
  };
  std::unique_ptr<Stream> stream(bool) const override {
    return tells_bytes_ ? std::make_unique<Whole>(*this) : nullptr;
  }

  const std::string& piece(std::int32_t id) const { return pieces_[static_cast<std::size_t>(id)]; }

 private:
  std::int32_t begin_id() const { return static_cast<std::int32_t>(pieces_.size()); }
  std::vector<std::string> pieces_;
  bool tells_bytes_;
  std::string name_ = "pieces";
};

const char* const turns =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|close|>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

/// Returns the text of the ids, with what counts in brackets.
std::string marked(const PieceTokenizer& tokenizer, const TokenDocument& document) {
  std::string result;
  bool counted = false;
  for (std::size_t i = 0; i < document.ids.size(); ++i) {
    const bool counts = document.counts[i] != 0;
    if (counts != counted) result += counts ? "[" : "]";
    counted = counts;
    const std::int64_t id = document.ids[i], beyond = id - (tokenizer.vocabulary() - 2);
    result += beyond == 0   ? "BEGIN"
              : beyond == 1 ? "END"
                            : tokenizer.piece(static_cast<std::int32_t>(id));
  }
  return counted ? result + "]" : result;
}

TEST(ChatDocuments, WhatAnAssistantWroteCounts) {
  const PieceTokenizer tokenizer({"<|close|>", "<assistant>", "ab", "t>a"});
  const ChatTemplate turns_template(turns, "turns", Json::object());
  ChatDocuments documents(tokenizer, &turns_template, {});
  const std::pair<const char*, const char*> rows[] = {
      {R"({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "ab"}]})",
       "<user>x<|close|>\n<assistant>[ab<|close|>\n]"},
      {R"({"messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "ab"},
           {"role": "assistant", "content": "<|close|>"}], "id": 7})",
       "<assistant>[a<|close|>\n]<user>ab<|close|>\n<assistant>[<|close|><|close|>\n]"},
      {R"({"prompt": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"},
           {"role": "user", "content": "z"}], "completion": [{"role": "assistant", "content": "w"}]})",
       "<user>x<|close|>\n<assistant>y<|close|>\n<user>z<|close|>\n<assistant>[w<|close|>\n]"},
      {R"({"prompt": "x<|close|>", "completion": "y"})", "BEGINx<|close|>[yEND]"},
      // A token on both sides counts, as it has bytes of the completion.
      {R"({"prompt": "xa", "completion": "by"})", "BEGINx[abyEND]"},
  };
  for (const auto& [record, expected] : rows) {
    const TokenDocument document = documents.read(record);
    EXPECT_EQ(document.counts.size(), document.ids.size());
    EXPECT_EQ(marked(tokenizer, document), expected) << record;
  }
}

/// The two documents of a pair, as text.
std::string marked_pair(const PieceTokenizer& tokenizer, const TokenDocument& pair) {
  const auto second = std::find(pair.counts.begin(), pair.counts.end(), begins_second);
  const auto at = second - pair.counts.begin();
  TokenDocument first{{pair.ids.begin(), pair.ids.begin() + at}, {pair.counts.begin(), second}};
  TokenDocument other{{pair.ids.begin() + at, pair.ids.end()}, {second, pair.counts.end()}};
  other.counts.front() = 0;
  return marked(tokenizer, first) + " | " + marked(tokenizer, other);
}

TEST(ChatDocuments, OfPairsArePromptsWithEachAnswer) {
  const PieceTokenizer tokenizer({"<|close|>", "<assistant>", "ab", "t>a"});
  const ChatTemplate turns_template(turns, "turns", Json::object());
  ChatOptions options;
  options.pairs = true;
  ChatDocuments documents(tokenizer, &turns_template, options);
  const std::string user = R"({"role": "user", "content": "x"})";
  const auto assistant = [](const std::string& content) {
    return R"({"role": "assistant", "content": ")" + content + "\"}";
  };
  const std::string turn = "<user>x<|close|>\n<assistant>";
  const std::string of_messages = turn + "[y<|close|>\n] | " + turn + "[zz<|close|>\n]";
  EXPECT_EQ(
      marked_pair(tokenizer, documents.read(R"({"prompt": "p", "chosen": "ab", "rejected": "c"})")),
      "BEGINp[abEND] | BEGINp[cEND]");
  EXPECT_EQ(marked_pair(tokenizer, documents.read("{\"prompt\": [" + user + "], \"chosen\": [" +
                                                  assistant("y") + "], \"rejected\": [" +
                                                  assistant("zz") + "]}")),
            of_messages);
  // The prompt is what both lists begin with.
  EXPECT_EQ(marked_pair(tokenizer,
                        documents.read("{\"chosen\": [" + user + "," + assistant("y") +
                                       "], \"rejected\": [" + user + "," + assistant("zz") + "]}")),
            of_messages);
  const std::pair<std::string, const char*> refused[] = {
      {R"({"prompt": "p", "chosen": "a"})", "the record has not both 'chosen' and 'rejected'"},
      {R"({"chosen": "a", "rejected": "b"})",
       "no 'prompt', and 'chosen' is \"a\" and 'rejected' is \"b\"; expected a prompt, or two "
       "lists"},
      {"{\"chosen\": [" + assistant("y") + "], \"rejected\": [" + assistant("z") + "]}",
       "'chosen' and 'rejected' begin with different messages"},
      {R"({"prompt": "p", "chosen": "a", "rejected": ""})", "'rejected' is empty"},
      {"{\"prompt\": \"p\", \"chosen\": [" + assistant("y") + "], \"rejected\": \"a\"}",
       "expected two strings, or two lists of messages"},
      {"{\"chosen\": [" + user + "], \"rejected\": [" + user + "," + assistant("z") + "]}",
       "'chosen' has no messages"},
  };
  for (const auto& [record, message] : refused)
    EXPECT_HAS(ostrakon::testing::error_of([&, &json = record] { documents.read(json); }), message);
  options.longest_pair = 5;
  ChatDocuments short_ones(tokenizer, nullptr, options);
  EXPECT_EQ(short_ones.read(R"({"prompt": "", "chosen": "ab", "rejected": "c"})").ids.size(), 6u);
  EXPECT_HAS(ostrakon::testing::error_of(
                 [&] { short_ones.read(R"({"prompt": "p", "chosen": "cd", "rejected": "c"})"); }),
             "the pair has 7 tokens, with the prompt of each answer; expected at most 5");
}

TEST(ChatDocuments, TextAroundAPromptAndACompletionCanBeChosen) {
  const PieceTokenizer tokenizer({});
  ChatOptions options;
  options.before.emplace();
  options.after = std::vector<std::int32_t>{'.', '!'};
  ChatDocuments documents(tokenizer, nullptr, options);
  EXPECT_EQ(marked(tokenizer, documents.read(R"({"prompt": "a", "completion": "b"})")), "a[b.!]");
}

TEST(ChatDocuments, RecordsAreRefusedWithWhatIsWrong) {
  const PieceTokenizer tokenizer({});
  const ChatTemplate turns_template(turns, "turns", Json::object());
  const ChatTemplate silent("nothing", "s", Json::object());
  ChatDocuments documents(tokenizer, &turns_template, {});
  const std::pair<const char*, const char*> rows[] = {
      {R"({"messages": [1, })", "column 18: unexpected '}'"},
      {R"({"messages": [1e999]})", "number overflow parsing '1e999'"},
      {"[1]", "the record is [1]; expected a JSON object"},
      {R"({"text": "a"})", "the record has neither 'messages' nor both 'prompt' and 'completion'"},
      {R"({"prompt": "a"})",
       "the record has neither 'messages' nor both 'prompt' and 'completion'"},
      {R"({"conversations": []})", "it has 'conversations', which --field names if its messages"},
      {R"({"messages": [{"from": "human", "value": "a"}]})",
       "has no 'role' (it has 'from', as of another format); expected 'role'"},
      {R"({"messages": "a"})", R"('messages' is "a"; expected a list of messages)"},
      {R"({"messages": []})", "'messages' has no messages"},
      {R"({"messages": [3]})",
       "message 1 of 'messages' is 3; expected an object with 'role' and 'content'"},
      {R"({"messages": [{"content": "a"}]})", "message 1 of 'messages' has no 'role'"},
      {R"({"messages": [{"role": "", "content": "a"}]})",
       R"(message 1 of 'messages': 'role' is ""; expected the name of a role)"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant"}]})",
       "message 2 of 'messages' has no 'content'"},
      {R"({"messages": [{"role": "user", "content": 3}]})",
       "message 1 of 'messages': 'content' is 3; expected a string, or a list of parts"},
      {R"({"messages": [{"role": "user", "content": "a"}]})",
       R"(the last message of 'messages' is of role "user"; expected 'assistant', as it is )"
       "what a model learns to write"},
      {R"({"messages": [{"role": "assistant", "content": "a"}], "tools": "t"})",
       R"('tools' is "t"; expected a list of objects)"},
      {R"({"messages": [{"role": "assistant", "content": "a"}], "chat_template_kwargs": 1})",
       "'chat_template_kwargs' is 1; expected an object"},
      {R"({"prompt": "a", "completion": ""})", "'completion' is empty"},
      {R"({"prompt": "a", "completion": [{"role": "assistant", "content": "a"}]})",
       "expected two strings, or two lists of messages"},
  };
  for (const auto& [record, message] : rows) {
    EXPECT_HAS(ostrakon::testing::error_of([&, &json = record] { documents.read(json); }), message);
  }
  EXPECT_HAS(ostrakon::testing::error_of([&] {
               documents.read(R"({"messages": )" + std::string(100000, '[') + "1" +
                              std::string(100000, ']') + "}");
             }),
             "nested deeper than 200");
  const char* const chat = R"({"messages": [{"role": "assistant", "content": "a"}]})";
  EXPECT_THROW(ChatDocuments(tokenizer, nullptr, {}).read(chat), Error);
  EXPECT_THROW(ChatDocuments(tokenizer, &silent, {}).read(chat), Error);
  EXPECT_THROW(documents.read("{"), Error);
}

/// Texts whose tokens end inside of characters and on both sides of a span's ends, compared with
/// the bytes of the pieces.
TEST(ChatDocuments, TokensInSpansAreThoseWithBytesInThem) {
  const PieceTokenizer tokenizer({" \xE6", "\xBC", "\xA2\xE5", "\xBC\xA2", "ab", "b ", "\x9F\x99"});
  const auto encoder = tokenizer.encoder();
  const std::vector<std::string> parts = {
      "a", "b", " ", "\xE6\xBC\xA2", "\xE5\xAD\x97", "\xF0\x9F\x99\x82", "\xEF\xBF\xBD"};
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    std::vector<std::size_t> borders = {0};
    for (int i = 0; i < 12; ++i) {
      text += parts[random() % parts.size()];
      borders.push_back(text.size());
    }
    std::vector<ChatText::Span> spans;
    for (std::size_t at = 0, end; at + 1 < borders.size(); at = end + 1) {
      at += random() % (borders.size() - 1 - at);
      end = at + random() % (borders.size() - at);
      if (at < end) spans.push_back({borders[at], borders[end]});
    }
    std::vector<std::int32_t> ids;
    encoder->encode(text, false, ids);
    std::vector<std::uint8_t> expected;
    std::size_t begin = 0;
    for (const std::int32_t id : ids) {
      const std::size_t end = begin + tokenizer.piece(id).size();
      bool counts = false;
      for (const auto& span : spans) counts = counts || (begin < span.end && end > span.begin);
      expected.push_back(counts ? 1 : 0);
      begin = end;
    }
    EXPECT_EQ(tokens_in_spans(tokenizer, *encoder, text, false, ids, spans), expected) << text;
  }
}

TEST(ChatDocuments, WithoutBytesOfTokensPartsHaveToHaveTheirOwnIds) {
  const PieceTokenizer tokenizer({"ab"}, false);
  const auto encoder = tokenizer.encoder();
  std::vector<std::int32_t> ids;
  encoder->encode("xabab", false, ids);
  const std::vector<std::uint8_t> expected = {0, 1, 0};
  EXPECT_EQ(tokens_in_spans(tokenizer, *encoder, "xabab", false, ids, {{1, 3}}), expected);
  EXPECT_THROW(tokens_in_spans(tokenizer, *encoder, "xabab", false, ids, {{1, 2}}), Error);
}

}  // namespace
}  // namespace ostrakon::texts
