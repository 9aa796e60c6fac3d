// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/tokenizers/regex.hpp>
#include <ostrakon/text/utf8.hpp>

namespace ostrakon::texts {
namespace {

bool is_ascii_letter(std::uint32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii_digit(std::uint32_t c) { return c >= '0' && c <= '9'; }

std::string literal_for_pcre2(std::uint32_t c) {
  return is_ascii_letter(c) || is_ascii_digit(c) ? std::string{static_cast<char>(c)}
                                                 : character_for_pcre2(c);
}

/// The characters that an ASCII letter matches in (?i:...).
std::string folded_for_pcre2(std::uint32_t letter) {
  const std::uint32_t lower = letter | 0x20;
  std::string inside = {static_cast<char>(lower), static_cast<char>(lower ^ 0x20)};
  if (lower == 's') inside += "\\x{17f}";   // long s
  if (lower == 'k') inside += "\\x{212a}";  // Kelvin sign
  return inside;
}

/// Reads a regular expression of Oniguruma and writes it for PCRE2.
class RegexTranslation {
 public:
  explicit RegexTranslation(const std::string& regex) : regex_(regex) {}

  std::string run() {
    require(valid_utf8(regex_) == regex_.size(), "it is not UTF-8");
    alternatives(false);
    require(done(), "it has a ) too many");
    return out_;
  }

 private:
  bool done() const { return at_ == regex_.size(); }
  bool next_is(std::string_view text) const { return regex_.compare(at_, text.size(), text) == 0; }
  bool skip(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  std::uint32_t take() {
    require(!done(), "it ends too early");
    const std::uint32_t c = code_point(regex_, at_);
    at_ += utf8_length(regex_[at_]);
    return c;
  }
  [[noreturn]] void refuse(std::size_t from) const {
    constexpr std::size_t most = 8;
    std::size_t end = std::min(regex_.size(), from + most);
    while (end < regex_.size() && (regex_[end] & 0xc0) == 0x80) ++end;
    throw Error(
        text("at byte ", from, " ", shown(regex_.substr(from, end - from)), " is not implemented"));
  }

  void alternatives(bool folds) {
    require(++depth_ < 100, "its groups are nested too deeply");
    while (!done() && !next_is(")")) {
      if (skip("|")) {
        out_ += '|';
        last_letter_ = 0;
        continue;
      }
      const std::size_t begin = out_.size();
      if (atom(folds)) quantifier(begin);
    }
    --depth_;
  }

  /// Returns whether a quantifier may follow.
  bool atom(bool folds) {
    const std::size_t begin = at_;
    const std::uint32_t c = take();
    switch (c) {
      case '(':
        return group(begin, folds);
      case '[':
        out_ += '[';
        if (skip("^")) out_ += '^';
        characters(begin, folds);
        out_ += ']';
        return true;
      case '.':
        out_ += "[^\\n]";
        return true;
      case '^':
        out_ += "(?m:^)";
        return false;
      case '$':
        out_ += "(?m:$)";
        return false;
      case '\\': {
        const Escape escape = escaped(begin);
        if (escape.inside.empty()) {
          literal(begin, escape.character, folds);
        } else {
          if (folds) refuse(begin);
          out_ += (escape.negated ? "[^" : "[") + escape.inside + "]";
        }
        return true;
      }
      case '*':
      case '+':
      case '?':
      case '{':
        refuse(begin);
      default:
        literal(begin, c, folds);
        return true;
    }
  }

  void literal(std::size_t begin, std::uint32_t c, bool folds) {
    if (!folds) {
      out_ += literal_for_pcre2(c);
      return;
    }
    if (c >= 0x80) refuse(begin);
    if (!is_ascii_letter(c)) {
      out_ += literal_for_pcre2(c);
      last_letter_ = 0;
      return;
    }
    // Oniguruma lets one character such as U+FB01 match two of these letters.
    const std::string pair = {static_cast<char>(last_letter_ | 0x20), static_cast<char>(c | 0x20)};
    for (const char* const ligature : {"ss", "ff", "fi", "fl", "st"})
      if (pair == ligature) refuse(begin);
    out_ += "[" + folded_for_pcre2(c) + "]";
    last_letter_ = c;
  }

  bool group(std::size_t begin, bool folds) {
    struct Kind {
      const char* text;
      const char* written;
      bool is_atom;
    };
    static constexpr Kind kinds[] = {{"?:", "(?:", true},
                                     {"?>", "(?>", true},
                                     {"?i:", "(?:", true},
                                     {"?=", "(?=", false},
                                     {"?!", "(?!", false}};
    const Kind* found = nullptr;
    for (const Kind& kind : kinds)
      if (found == nullptr && next_is(kind.text)) found = &kind;
    if (found == nullptr && next_is("?")) refuse(begin);
    if (found != nullptr) at_ += std::string_view(found->text).size();
    out_ += found != nullptr ? found->written : "(?:";
    alternatives(folds || (found != nullptr && found->text[1] == 'i'));
    require(skip(")"), "it lacks a )");
    out_ += ')';
    last_letter_ = 0;
    return found == nullptr || found->is_atom;
  }

  /// What stands after a backslash: a character, or the inside of a class.
  struct Escape {
    std::uint32_t character = 0;
    std::string inside;
    bool negated = false;
    CodePointSet set;  ///< the class, where it is negated
  };

  Escape escaped(std::size_t begin) {
    Escape escape;
    const std::uint32_t c = take();
    switch (c) {
      case 'n':
        return escape.character = '\n', escape;
      case 'r':
        return escape.character = '\r', escape;
      case 't':
        return escape.character = '\t', escape;
      case 'f':
        return escape.character = '\f', escape;
      case 'v':
        return escape.character = '\v', escape;
      case 'u':
        return escape.character = hexadecimal(begin, 4), escape;
      case 'x':
        if (!skip("{")) refuse(begin);
        escape.character = hexadecimal(begin, 0);
        if (!skip("}")) refuse(begin);
        return escape;
      case 's':
      case 'S':
        escape.negated = c == 'S';
        escape.set = white_space();
        escape.inside = ranges_for_pcre2(white_space());
        return escape;
      case 'd':
      case 'D':
        escape.negated = c == 'D';
        return property(escape, "Nd");
      case 'p':
      case 'P': {
        if (!skip("{")) refuse(begin);
        escape.negated = (c == 'P') != skip("^");
        std::string name;
        while (!done() && !next_is("}")) append_utf8(take(), name);
        if (!skip("}")) refuse(begin);
        if (name.size() > 2 || !category(name)) refuse(begin);
        return property(escape, name);
      }
      default:
        if (is_ascii_letter(c) || is_ascii_digit(c) || c >= 0x80) refuse(begin);
        return escape.character = c, escape;
    }
  }

  static Escape& property(Escape& escape, const std::string& name) {
    escape.inside = class_for_pcre2(name);
    if (escape.negated) escape.set = *category(name);
    return escape;
  }

  /// `digits`: how many there are; 0: any number.
  std::uint32_t hexadecimal(std::size_t begin, std::size_t digits) {
    std::uint32_t value = 0;
    std::size_t count = 0;
    for (; !done() && (digits == 0 || count < digits); ++count) {
      const std::size_t digit =
          std::string_view("0123456789abcdef")
              .find(static_cast<char>(is_ascii_letter(regex_[at_]) ? regex_[at_] | 0x20
                                                                   : regex_[at_]));
      if (digit == std::string_view::npos) break;
      value = value * 16 + static_cast<std::uint32_t>(digit);
      if (value >= CodePointSet::end) refuse(begin);
      ++at_;
    }
    const bool is_surrogate = value >= 0xd800 && value <= 0xdfff;
    if (count == 0 || (digits != 0 && count != digits) || is_surrogate) refuse(begin);
    return value;
  }

  /// Writes the characters of a class, after its [ or [^, and reads its ].
  void characters(std::size_t begin, bool folds) {
    if (next_is("]")) refuse(begin);
    while (!skip("]")) {
      const std::size_t item = at_;
      if (next_is("[:") || next_is("[^") || next_is("&&")) refuse(item);
      if (skip("[")) {  // Oniguruma's union of sets
        characters(item, folds);
        continue;
      }
      std::uint32_t first = take();
      if (first == '\\') {
        Escape escape = escaped(item);
        if (!escape.inside.empty()) {
          if (folds || next_is("-")) refuse(item);
          add_class(escape);
          continue;
        }
        first = escape.character;
      }
      const bool is_range = next_is("-") && !next_is("-]");
      if (folds && (is_range || first >= 0x80)) refuse(item);
      if (!is_range) {
        out_ +=
            folds && is_ascii_letter(first) ? folded_for_pcre2(first) : literal_for_pcre2(first);
        continue;
      }
      skip("-");
      const std::size_t end = at_;
      if (next_is("[") || next_is("&&")) refuse(end);
      std::uint32_t last = take();
      if (last == '\\') {
        const Escape escape = escaped(end);
        if (!escape.inside.empty()) refuse(item);
        last = escape.character;
      }
      if (last < first) refuse(item);
      out_ += literal_for_pcre2(first) + "-" + literal_for_pcre2(last);
    }
  }

  void add_class(const Escape& escape) {
    if (!escape.negated) {
      out_ += escape.inside;
      return;
    }
    CodePointSet rest({{0, CodePointSet::end - 1}});
    rest.remove(escape.set);
    out_ += ranges_for_pcre2(rest);
  }

  /// Writes the quantifier of what begins at `begin` of out_, if there is one.
  void quantifier(std::size_t begin) {
    const std::size_t from = at_;
    if (skip("*") || skip("+") || skip("?")) {
      out_ += regex_[from];
      if (next_is("+") || next_is("?")) out_ += static_cast<char>(take());
    } else if (skip("{")) {
      const auto least = number(), comma = skip(",") ? std::optional<int>(0) : std::nullopt;
      const auto most = comma ? number() : least;
      if (!skip("}") || (!least && !most) || (least && most && *least > *most)) refuse(from);
      out_ += text("{", least.value_or(0), comma ? "," : "");
      if (comma && most) out_ += text(*most);
      out_ += '}';
      if (next_is("?") && !comma) refuse(from);
      if (skip("?")) out_ += '?';
      if (skip("+")) {  // not possessive, but one more quantifier
        out_.insert(begin, "(?:");
        out_ += ")+";
      }
    } else {
      return;
    }
    if (next_is("*") || next_is("+") || next_is("?") || next_is("{")) refuse(from);
  }

  std::optional<int> number() {
    constexpr int most = 1000;
    if (done() || !is_ascii_digit(regex_[at_])) return std::nullopt;
    const std::size_t begin = at_;
    int value = 0;
    while (!done() && is_ascii_digit(regex_[at_])) {
      value = value * 10 + (regex_[at_++] - '0');
      if (value > most) refuse(begin);
    }
    return value;
  }

  const std::string& regex_;
  std::string out_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::uint32_t last_letter_ = 0;  ///< the letter before, where case does not count
};

}  // namespace

std::string regex_for_pcre2(const std::string& regex) { return RegexTranslation(regex).run(); }

}  // namespace ostrakon::texts
