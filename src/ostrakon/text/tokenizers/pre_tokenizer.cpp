// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/pre_tokenizer.hpp>

#include <algorithm>
#include <ostrakon/text/tokenizers/byte_alphabet.hpp>
#include <ostrakon/text/tokenizers/regex.hpp>
#include <ostrakon/text/utf8.hpp>
#include <utility>

namespace ostrakon::texts {
namespace {

/// What becomes of the matches that cut a text, by its name in the file.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

constexpr std::pair<const char*, Behavior> behaviors[] = {
    {"Removed", Behavior::removed},
    {"Isolated", Behavior::isolated},
    {"MergedWithPrevious", Behavior::merged_with_previous},
    {"MergedWithNext", Behavior::merged_with_next},
    {"Contiguous", Behavior::contiguous}};

Behavior read_behavior(JsonFields& fields) {
  const std::string name = fields.string("behavior");
  for (const auto& [known, behavior] : behaviors)
    if (name == known) return behavior;
  fields.refuse("behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

/// Calls `take(part, is_match)` for matches and what is between them; with `inverts` the other way
/// round.
template <class Take>
void for_each_part(const Span& whole, const std::vector<Span>& matches, bool inverts,
                   const Take& take) {
  std::uint32_t at = whole.begin;
  for (const Span& match : matches) {
    if (at < match.begin) take(Span{at, match.begin}, inverts);
    take(match, !inverts);
    at = match.end;
  }
  if (at < whole.end) take(Span{at, whole.end}, inverts);
}

void cut_one(const Span& whole, const std::vector<Span>& matches, Behavior behavior, bool inverts,
             std::vector<Span>& cut) {
  const auto first = static_cast<std::ptrdiff_t>(cut.size());
  bool after_match = false;
  for_each_part(whole, matches, inverts, [&](const Span& part, bool is_match) {
    bool joins_last = false;  // where there is a last one
    switch (behavior) {
      case Behavior::removed:
        if (is_match) return;
        break;
      case Behavior::isolated:
        break;
      case Behavior::merged_with_previous:
        joins_last = is_match && !after_match;
        break;
      case Behavior::contiguous:
        joins_last = is_match == after_match;
        break;
      case Behavior::merged_with_next:
        // The last of several matches joins what follows it.
        joins_last = after_match && !is_match;
        break;
    }
    after_match = is_match;
    if (joins_last && cut.begin() + first != cut.end()) {
      cut.back().end = part.end;
    } else {
      cut.push_back(part);
    }
  });
}

/// Cuts at the matches of a pattern.
class SplitPieces : public PreTokenizer {
 public:
  SplitPieces(std::unique_ptr<Pattern> pattern, Behavior behavior, bool inverts)
      : pattern_(std::move(pattern)), behavior_(behavior), inverts_(inverts) {}

  void cut(Pieces& pieces) const override {
    if (pieces.spans.empty()) return;
    const std::uint32_t begin = pieces.spans.front().begin;
    pieces.cut.clear();
    for (const Span& span : pieces.spans) {
      pieces.matches.clear();
      pattern_->find(pieces.piece(span), span.begin, pieces.matches);
      cut_one(span, pieces.matches, behavior_, inverts_, pieces.cut);
    }
    pieces.spans.swap(pieces.cut);
    const bool keeps_begin = !pieces.spans.empty() && pieces.spans.front().begin == begin;
    pieces.begins_document = pieces.begins_document && keeps_begin;
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  Behavior behavior_;
  bool inverts_;
};

/// Changes each piece by itself: `change(piece, is_first, text)` appends what becomes of it.
template <class Change>
void change_pieces(Pieces& pieces, const Change& change) {
  pieces.changed.clear();
  bool is_first = true;
  for (Span& span : pieces.spans) {
    const auto begin = static_cast<std::uint32_t>(pieces.changed.size());
    change(pieces.piece(span), is_first, pieces.changed);
    span = {begin, static_cast<std::uint32_t>(pieces.changed.size())};
    is_first = false;
  }
  require_spans(pieces.changed.size());
  pieces.text.swap(pieces.changed);
}

/// Lets each piece begin with a space.
class PrefixSpace : public PreTokenizer {
 public:
  void cut(Pieces& pieces) const override {
    change_pieces(pieces, [](std::string_view piece, bool, std::string& text) {
      if (piece[0] != ' ') text += ' ';
      text += piece;
    });
  }
};

/// Writes bytes as characters.
class ByteCharacters : public PreTokenizer {
 public:
  void cut(Pieces& pieces) const override {
    change_pieces(pieces, [](std::string_view piece, bool, std::string& text) {
      append_characters(piece, text);
    });
  }
};

enum class Prepends { always, first, never };

/// Writes spaces as another character, and begins pieces with it.
class MetaspacePieces : public PreTokenizer {
 public:
  MetaspacePieces(std::string replacement, Prepends prepends)
      : replacement_(std::move(replacement)), prepends_(prepends) {}

  void cut(Pieces& pieces) const override {
    const bool begins = pieces.begins_document;
    change_pieces(pieces, [&](std::string_view piece, bool is_first, std::string& text) {
      const bool prepends =
          prepends_ == Prepends::always || (prepends_ == Prepends::first && is_first && begins);
      const bool has_it = piece[0] == ' ' || piece.substr(0, replacement_.size()) == replacement_;
      if (prepends && !has_it) text += replacement_;
      for (const char c : piece) {
        if (c == ' ') {
          text += replacement_;
        } else {
          text += c;
        }
      }
    });
  }

 private:
  std::string replacement_;
  Prepends prepends_;
};

/// Runs of word characters, and runs of others that are not white space.
class WordRuns : public Pattern {
 public:
  void find(std::string_view text, std::uint32_t offset,
            std::vector<Span>& matches) const override {
    enum { space, word, other } last = space;
    for (std::size_t at = 0; at < text.size();) {
      const std::uint32_t character = code_point(text, at);
      const auto begin = static_cast<std::uint32_t>(offset + at);
      at += utf8_length(text[at]);
      const auto end = static_cast<std::uint32_t>(offset + at);
      const auto kind = word_characters().contains(character) ? word
                        : white_space().contains(character)   ? space
                                                              : other;
      if (kind != space && kind == last) {
        matches.back().end = end;
      } else if (kind != space) {
        matches.push_back({begin, end});
      }
      last = kind;
    }
  }
};

/// The regular expression of GPT-2, which `ByteLevel` has without naming it.
constexpr const char* gpt2_regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class PreTokenizerReader {
 public:
  PreTokenizerSteps steps;

  void read(JsonFields& fields) {
    const std::string type = fields.type();
    if (steps.ends_with_bytes) {  // what follows sees characters
      steps.ends_with_bytes = false;
      add<ByteCharacters>();
    }
    if (type == "Sequence") {
      for (JsonFields& step : fields.objects("pretokenizers")) read(step);
    } else if (type == "ByteLevel") {
      read_byte_level(fields);
    } else if (type == "Split") {
      auto pattern = read_pattern(fields.object("pattern"));
      const Behavior behavior = read_behavior(fields);
      add<SplitPieces>(std::move(pattern), behavior, fields.boolean("invert"));
    } else if (type == "Digits") {
      const bool each = fields.boolean("individual_digits");
      add<SplitPieces>(character_pattern(numeric()),
                       each ? Behavior::isolated : Behavior::contiguous, false);
    } else if (type == "Punctuation") {
      const Behavior behavior = fields.has("behavior") ? read_behavior(fields) : Behavior::isolated;
      add<SplitPieces>(character_pattern(punctuation()), behavior, false);
    } else if (type == "Whitespace") {
      add<SplitPieces>(std::make_unique<WordRuns>(), Behavior::removed, true);
    } else if (type == "WhitespaceSplit") {
      add<SplitPieces>(character_pattern(white_space()), Behavior::removed, false);
    } else if (type == "Metaspace") {
      read_metaspace(fields);
    } else {
      fields.refuse_type(
          "ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace or "
          "Sequence");
    }
    fields.finish();
  }

 private:
  template <class Step, class... Arguments>
  void add(Arguments&&... arguments) {
    steps.steps.push_back(std::make_unique<Step>(std::forward<Arguments>(arguments)...));
  }

  void read_byte_level(JsonFields& fields) {
    fields.boolean("trim_offsets", true);  // says where tokens are in the text, not which ones
    if (fields.boolean("add_prefix_space")) add<PrefixSpace>();
    if (fields.boolean("use_regex", true))
      add<SplitPieces>(regex_pattern(gpt2_regex), Behavior::isolated, false);
    steps.ends_with_bytes = true;
  }

  void read_metaspace(JsonFields& fields) {
    const std::string replacement = fields.character("replacement");
    Prepends prepends = Prepends::always;
    if (fields.has("prepend_scheme")) {
      const std::string scheme = fields.string("prepend_scheme");
      if (scheme == "first") {
        prepends = Prepends::first;
      } else if (scheme == "never") {
        prepends = Prepends::never;
      } else if (scheme != "always") {
        fields.refuse("prepend_scheme", "always, first or never");
      }
    }
    const bool has_prefix = fields.boolean("add_prefix_space", prepends != Prepends::never);
    if (!has_prefix && prepends != Prepends::never)
      fields.refuse("add_prefix_space", "true, as prepend_scheme is not never");
    if (fields.has("str_rep") && fields.string("str_rep") != replacement)
      fields.refuse("str_rep", "the same as replacement");
    steps.knows_begin = steps.knows_begin || prepends == Prepends::first;
    add<MetaspacePieces>(replacement, prepends);
    if (fields.boolean("split", true))
      add<SplitPieces>(literal_pattern(replacement), Behavior::merged_with_next, false);
  }
};

}  // namespace

PreTokenizerSteps read_pre_tokenizer(JsonFields& fields) {
  PreTokenizerReader reader;
  reader.read(fields);
  return std::move(reader.steps);
}

}  // namespace ostrakon::texts
