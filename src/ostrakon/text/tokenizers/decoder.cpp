// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/decoder.hpp>

#include <algorithm>
#include <ostrakon/text/tokenizers/byte_alphabet.hpp>
#include <ostrakon/text/tokenizers/pattern.hpp>
#include <ostrakon/text/utf8.hpp>
#include <utility>

namespace ostrakon::texts {
namespace {

using NextSink = std::unique_ptr<TokenSink>;
constexpr const char* replacement_character = "\xef\xbf\xbd";  // U+FFFD

class AppendSink : public TokenSink {
 public:
  explicit AppendSink(std::string& text) : text_(&text) {}
  void begin() override {}
  void part(std::string_view text) override { *text_ += text; }
  void end() override {}
  void finish() override {}

 private:
  std::string* text_;
};

/// Hands each token on as it is; steps override what they change.
class Through : public TokenSink {
 public:
  explicit Through(NextSink next) : next_(std::move(next)) {}
  void begin() override { next_->begin(); }
  void part(std::string_view text) override { next_->part(text); }
  void end() override { next_->end(); }
  void finish() override { next_->finish(); }

 protected:
  void whole(std::string_view text) {
    next_->begin();
    next_->part(text);
    next_->end();
  }
  TokenSink& next() { return *next_; }

 private:
  NextSink next_;
};

/// Collects the parts of each token.
class ByToken : public Through {
 public:
  using Through::Through;
  void begin() override { token_.clear(); }
  void part(std::string_view text) override { token_ += text; }
  void end() override { take(token_); }

 protected:
  virtual void take(const std::string& token) = 0;

 private:
  std::string token_;
};

class FuseTokens : public Through {
 public:
  using Through::Through;
  void begin() override {
    if (!begun_) next().begin();
    begun_ = true;
  }
  void end() override {}
  void finish() override {
    begin();
    next().end();
    next().finish();
  }

 private:
  bool begun_ = false;
};

class SpaceTokens : public Through {
 public:
  using Through::Through;
  void begin() override {
    next().begin();
    if (!is_first_) next().part(" ");
    is_first_ = false;
  }

 private:
  bool is_first_ = true;
};

/// Makes bytes of the characters that stand for them, and of all bytes one text.
class JoinBytes : public ByToken {
 public:
  using ByToken::ByToken;
  void finish() override {
    hand_on(true);
    begin_once();
    next().end();
    next().finish();
  }

 private:
  void take(const std::string& token) override {
    bytes_ += bytes_of(token).value_or(token);
    hand_on(false);
  }

  void begin_once() {
    if (!begun_) next().begin();
    begun_ = true;
  }

  void hand_on(bool is_all) {
    std::string text;
    std::size_t at = 0;
    while (at < bytes_.size()) {
      bool complete = false;
      const std::size_t bytes = subpart(bytes_, at, complete);
      const bool may_go_on = !complete && at + bytes == bytes_.size() && begins_character(at);
      if (may_go_on && !is_all) break;
      text += complete ? bytes_.substr(at, bytes) : replacement_character;
      at += bytes;
    }
    bytes_.erase(0, at);
    begin_once();
    if (!text.empty()) next().part(text);
  }

  bool begins_character(std::size_t at) const {
    const auto byte = static_cast<unsigned char>(bytes_[at]);
    return byte >= 0xc2 && byte <= 0xf4;
  }

  std::string bytes_;
  bool begun_ = false;
};

class MetaspaceToSpaces : public Through {
 public:
  MetaspaceToSpaces(NextSink next, std::string replacement, bool drops_in_first)
      : Through(std::move(next)),
        replacement_(std::move(replacement)),
        drops_in_first_(drops_in_first) {}
  void begin() override {
    ++tokens_;
    Through::begin();
  }
  void part(std::string_view text) override {
    std::string changed;
    for (std::size_t at = 0; at < text.size();) {
      const std::string_view character = text.substr(at, utf8_length(text[at]));
      if (character != replacement_) {
        changed += character;
      } else if (tokens_ > 1 || !drops_in_first_) {
        changed += ' ';
      }
      at += character.size();
    }
    next().part(changed);
  }

 private:
  std::string replacement_;
  bool drops_in_first_;
  std::int64_t tokens_ = 0;
};

/// Makes text of tokens such as <0xE2>. Those that follow each other are text together, or each is
/// replaced: so none is certain before a token that is no byte.
class JoinByteTokens : public ByToken {
 public:
  using ByToken::ByToken;
  void finish() override {
    flush();
    next().finish();
  }

 private:
  static int hex_digit(char c) {
    const std::size_t digit = std::string_view("0123456789abcdef0123456789ABCDEF").find(c);
    return digit == std::string_view::npos ? -1 : static_cast<int>(digit % 16);
  }

  /// The byte that a token stands for; -1: none. As the library, which takes "<0x+A>", too.
  static int byte_of(const std::string& token) {
    if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return -1;
    const int high = token[3] == '+' ? 0 : hex_digit(token[3]), low = hex_digit(token[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
  }

  void take(const std::string& token) override {
    const int byte = byte_of(token);
    if (byte >= 0) {
      bytes_ += static_cast<char>(byte);
    } else {
      flush();
      whole(token);
    }
  }

  void flush() {
    if (valid_utf8(bytes_) == bytes_.size()) {
      if (!bytes_.empty()) whole(bytes_);
    } else {
      for (std::size_t i = 0; i < bytes_.size(); ++i) whole(replacement_character);
    }
    bytes_.clear();
  }

  std::string bytes_;
};

/// Drops up to a number of a character at the beginning of each token.
class StripTokens : public Through {
 public:
  StripTokens(NextSink next, std::string content, std::int32_t most)
      : Through(std::move(next)), content_(std::move(content)), most_(most) {}
  void begin() override {
    left_ = most_;
    Through::begin();
  }
  void part(std::string_view text) override {
    for (; left_ > 0 && !text.empty(); --left_) {
      if (text.substr(0, content_.size()) != content_) {
        left_ = 0;
        break;
      }
      text.remove_prefix(content_.size());
    }
    if (!text.empty()) next().part(text);
  }

 private:
  std::string content_;
  std::int32_t most_, left_ = 0;
};

class ReplaceInTokens : public ByToken {
 public:
  ReplaceInTokens(NextSink next, std::shared_ptr<const Pattern> pattern, std::string content)
      : ByToken(std::move(next)), pattern_(std::move(pattern)), content_(std::move(content)) {}

 private:
  void take(const std::string& token) override {
    std::vector<Span> matches;
    pattern_->find(token, 0, matches);
    std::string changed;
    std::size_t at = 0;
    for (const Span& match : matches) {
      changed.append(token, at, match.begin - at).append(content_);
      at = match.end;
    }
    whole(changed.append(token, at, token.npos));
  }

  std::shared_ptr<const Pattern> pattern_;
  std::string content_;
};

template <class Sink, class... Arguments>
Decoder::Step decoder_step(const Arguments&... arguments) {
  return [arguments...](NextSink next) {
    return std::make_unique<Sink>(std::move(next), arguments...);
  };
}

Decoder::Step read_metaspace_step(JsonFields& fields) {
  const std::string replacement = fields.character("replacement");
  std::string scheme = "always";
  if (fields.has("prepend_scheme")) scheme = fields.string("prepend_scheme");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    fields.refuse("prepend_scheme", "always, first or never");
  if (!fields.boolean("add_prefix_space", scheme != "never") && scheme != "never")
    fields.refuse("add_prefix_space", "true, as prepend_scheme is not never");
  fields.boolean("split", true);  // says nothing to a decoder
  if (fields.has("str_rep") && fields.string("str_rep") != replacement)
    fields.refuse("str_rep", "the same as replacement");
  return decoder_step<MetaspaceToSpaces>(replacement, scheme != "never");
}

void read_steps(JsonFields& fields, std::vector<Decoder::Step>& steps) {
  const std::string type = fields.type();
  if (type == "Sequence") {
    for (JsonFields& each : fields.objects("decoders")) read_steps(each, steps);
  } else if (type == "ByteLevel") {
    for (const char* const key : {"add_prefix_space", "trim_offsets", "use_regex"})
      fields.boolean(key, true);  // say nothing to a decoder
    steps.push_back(decoder_step<JoinBytes>());
  } else if (type == "Metaspace") {
    steps.push_back(read_metaspace_step(fields));
  } else if (type == "ByteFallback") {
    steps.push_back(decoder_step<JoinByteTokens>());
  } else if (type == "Fuse") {
    steps.push_back(decoder_step<FuseTokens>());
  } else if (type == "Strip") {
    if (fields.count("stop") != 0) fields.refuse("stop", "0: others are not implemented");
    steps.push_back(decoder_step<StripTokens>(fields.character("content"), fields.count("start")));
  } else if (type == "Replace") {
    const std::shared_ptr<const Pattern> pattern = read_pattern(fields.object("pattern"));
    steps.push_back(decoder_step<ReplaceInTokens>(pattern, fields.string("content")));
  } else {
    fields.refuse_type("ByteLevel, Metaspace, ByteFallback, Fuse, Strip, Replace or Sequence");
  }
  fields.finish();
}

}  // namespace

std::unique_ptr<TokenSink> Decoder::start(std::string& text) const {
  std::unique_ptr<TokenSink> sink = std::make_unique<AppendSink>(text);
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) sink = (*step)(std::move(sink));
  return sink;
}

Decoder read_decoder(JsonFields& fields) {
  Decoder decoder;
  read_steps(fields, decoder.steps_);
  return decoder;
}

Decoder joining_decoder() {
  Decoder decoder;
  decoder.steps_.push_back(decoder_step<SpaceTokens>());
  return decoder;
}

}  // namespace ostrakon::texts
