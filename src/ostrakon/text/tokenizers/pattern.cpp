// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/pattern.hpp>

#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/tokenizers/regex.hpp>
#include <ostrakon/text/utf8.hpp>
#include <utility>

namespace ostrakon::texts {
namespace {

class Literal : public Pattern {
 public:
  explicit Literal(std::string literal) : literal_(std::move(literal)) {}
  void find(std::string_view text, std::uint32_t offset,
            std::vector<Span>& matches) const override {
    std::size_t at = text.find(literal_);
    for (; at != std::string_view::npos; at = text.find(literal_, at + literal_.size())) {
      const auto begin = static_cast<std::uint32_t>(offset + at);
      matches.push_back({begin, begin + static_cast<std::uint32_t>(literal_.size())});
    }
  }

 private:
  std::string literal_;
};

class Characters : public Pattern {
 public:
  explicit Characters(const CodePointSet& set) : set_(&set) {}
  void find(std::string_view text, std::uint32_t offset,
            std::vector<Span>& matches) const override {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t bytes = utf8_length(text[at]);
      const auto begin = static_cast<std::uint32_t>(offset + at);
      if (set_->contains(code_point(text, at)))
        matches.push_back({begin, begin + static_cast<std::uint32_t>(bytes)});
      at += bytes;
    }
  }

 private:
  const CodePointSet* set_;
};

}  // namespace

void require_spans(std::size_t bytes) {
  constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max();
  require(bytes <= most, "a text has ", bytes, " bytes as the tokenizer changes it; expected at ",
          "most ", most, ": split it into documents");
}

std::unique_ptr<Pattern> literal_pattern(std::string literal) {
  return std::make_unique<Literal>(std::move(literal));
}

std::unique_ptr<Pattern> character_pattern(const CodePointSet& set) {
  return std::make_unique<Characters>(set);
}

std::unique_ptr<Pattern> read_pattern(JsonFields fields) {
  std::unique_ptr<Pattern> pattern;
  if (fields.has("Regex")) {
    const std::string regex = fields.string("Regex");
    try {
      pattern = regex_pattern(regex);
    } catch (const Error& error) {
      fields.refuse("Regex", text("a regular expression that is implemented; ", error.what()));
    }
  } else {
    const std::string literal = fields.string("String");
    if (literal.empty()) fields.refuse("String", "a text that is not empty");
    pattern = literal_pattern(literal);
  }
  fields.finish();
  return pattern;
}

}  // namespace ostrakon::texts
