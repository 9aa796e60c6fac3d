// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/jinja/lexer.hpp>

#include <algorithm>
#include <cctype>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/jinja/text.hpp>
#include <ostrakon/text/jinja/value.hpp>
#include <ostrakon/text/utf8.hpp>

namespace ostrakon::texts::jinja {
namespace {

/// Returns the source with each line break as "\n", without the last one.
std::string with_plain_lines(const std::string& source) {
  std::string result;
  result.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      result += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      result += source[i];
    }
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  Lexer(std::string source, std::string file)
      : source_(std::move(source)), file_(std::move(file)) {}

  std::vector<Token> read() {
    while (at_ < source_.size()) read_data();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail_here(const Parts&... parts) const {
    throw Error(ostrakon::text(file_, ":", line_, ": ", parts...));
  }

  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  bool follows(std::string_view text, std::size_t at) const {
    return source_.compare(at, text.size(), text) == 0;
  }
  bool follows(std::string_view text) const { return follows(text, at_); }

  void advance_to(std::size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    if (end > at_) line_begins_ = source_[end - 1] == '\n';
    at_ = end;
  }

  std::size_t behind_space(std::size_t at) const {
    while (at < source_.size()) {
      std::size_t next = at;
      if (!is_space(next_character(source_, next))) break;
      at = next;
    }
    return at;
  }

  Token& add(TokenKind kind, std::string text) {
    tokens_.push_back({kind, line_, std::move(text)});
    return tokens_.back();
  }

  std::size_t find_tag(std::size_t from) const {
    for (std::size_t at = source_.find('{', from); at != std::string::npos;
         at = source_.find('{', at + 1)) {
      const char second = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (second == '%' || second == '{' || second == '#') return at;
    }
    return source_.size();
  }

  /// Adds the text [at_, end) before a tag, which `sign` follows.
  void add_data(std::size_t end, char sign, bool strips_line) {
    std::string_view data = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      data = strip(data, {}, Side::right);
    } else if (sign != '+' && strips_line) {
      const std::size_t found = data.rfind('\n');
      const std::size_t begin = found == std::string_view::npos ? 0 : found + 1;
      if ((begin > 0 || line_begins_) && strip(data.substr(begin), {}, Side::left).empty())
        data = data.substr(0, begin);
    }
    if (!data.empty()) add(TokenKind::data, std::string(data));
    advance_to(end);
  }

  void read_data() {
    const std::size_t tag = find_tag(at_);
    if (tag == source_.size()) {
      add(TokenKind::data, source_.substr(at_));
      advance_to(tag);
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool has_sign = sign == '-' || sign == '+';
    add_data(tag, sign, kind != '{');
    const std::size_t inside = tag + (has_sign ? 3 : 2);
    if (kind == '#') {
      read_comment(inside);
    } else if (kind == '{') {
      add(TokenKind::variable_begin, "");
      advance_to(inside);
      read_expression(true);
    } else if (const std::size_t raw = raw_begin(inside); raw != 0) {
      advance_to(raw);
      read_raw();
    } else {
      add(TokenKind::block_begin, "");
      advance_to(inside);
      read_expression(false);
    }
  }

  /// Returns the end of a mark such as "%}" at `at` with what it removes; 0 if there is none.
  std::size_t behind_mark(std::string_view mark, std::size_t at, bool trims_line) const {
    if (follows(mark, at)) {
      const std::size_t end = at + mark.size();
      return trims_line && end < source_.size() && source_[end] == '\n' ? end + 1 : end;
    }
    if (at < source_.size() && source_[at] == '-' && follows(mark, at + 1))
      return behind_space(at + 1 + mark.size());
    if (trims_line && at < source_.size() && source_[at] == '+' && follows(mark, at + 1))
      return at + 1 + mark.size();
    return 0;
  }

  void read_comment(std::size_t inside) {
    for (std::size_t at = inside; at < source_.size(); ++at) {
      if (const std::size_t end = behind_mark("#}", at, true); end != 0) {
        advance_to(end);
        return;
      }
    }
    fail_here("a comment has no end '#}'");
  }

  /// Returns the end of "raw %}" at `at`; 0 if this is another block.
  std::size_t raw_begin(std::size_t at) const {
    at = behind_space(at);
    if (!follows("raw", at)) return 0;
    at = behind_space(at + 3);
    if (follows("%}", at)) return at + 2;
    return follows("-%}", at) ? behind_space(at + 3) : 0;
  }

  void read_raw() {
    for (std::size_t at = source_.find("{%", at_); at != std::string::npos;
         at = source_.find("{%", at + 1)) {
      const char sign = at + 2 < source_.size() ? source_[at + 2] : '\0';
      std::size_t end = behind_space(at + (sign == '-' || sign == '+' ? 3 : 2));
      if (!follows("endraw", end)) continue;
      end = behind_mark("%}", behind_space(end + 6), true);
      if (end == 0) continue;
      add_data(at, sign, true);
      advance_to(end);
      return;
    }
    fail_here("a raw block has no end '{% endraw %}'");
  }

  void read_expression(bool is_variable) {
    std::vector<char> open;
    while (at_ < source_.size()) {
      if (open.empty()) {
        const std::size_t end = behind_mark(is_variable ? "}}" : "%}", at_, !is_variable);
        if (end != 0) {
          add(is_variable ? TokenKind::variable_end : TokenKind::block_end, "");
          advance_to(end);
          return;
        }
      }
      read_token(open);
    }
  }

  void read_token(std::vector<char>& open) {
    const char c = peek();
    if (const std::size_t behind = behind_space(at_); behind != at_) {
      advance_to(behind);
    } else if (is_digit(c)) {
      read_number();
    } else if (is_word(c)) {
      read_name();
    } else if (c == '\'' || c == '"') {
      read_string(c);
    } else {
      read_sign(open);
    }
  }

  void read_name() {
    std::size_t end = at_;
    while (end < source_.size() && is_word(source_[end])) ++end;
    std::string name = source_.substr(at_, end - at_);
    if (!is_ascii(name)) fail_here("names with letters outside of ASCII are not implemented");
    add(TokenKind::name, std::move(name));
    advance_to(end);
  }

  /// Returns the end of digits with single underscores between them.
  std::size_t behind_digits(std::size_t at) const {
    const auto digit = [&](std::size_t i) { return i < source_.size() && is_digit(source_[i]); };
    while (digit(at) ||
           (at > 0 && at < source_.size() && source_[at] == '_' && digit(at - 1) && digit(at + 1)))
      ++at;
    return at;
  }

  void read_number() {
    if (peek() == '0' && std::isalpha(static_cast<unsigned char>(peek(1))) != 0 && peek(1) != 'e' &&
        peek(1) != 'E')
      fail_here("binary, octal and hexadecimal numbers are not implemented");
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    std::size_t end = behind_digits(at_);
    const std::size_t whole_end = end;
    const auto digit = [&](std::size_t i) { return i < source_.size() && is_digit(source_[i]); };
    if (!after_dot) {
      if (end < source_.size() && source_[end] == '.' && digit(end + 1))
        end = behind_digits(end + 1);
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        const bool has_sign =
            end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-');
        if (digit(end + (has_sign ? 2 : 1))) end = behind_digits(end + (has_sign ? 2 : 1));
      }
    }
    const std::string digits = source_.substr(at_, end - at_);
    try {
      if (end != whole_end) {
        add(TokenKind::real, "").real = parse_real(digits).value();
      } else {
        if (digits.size() > 1 && digits.front() == '0' &&
            digits.find_first_not_of("0_") != std::string::npos)
          fail("integers with leading zeros are not implemented");
        add(TokenKind::integer, digits).integer = parse_integer(digits, 10).value();
      }
    } catch (const Problem& problem) {
      fail_here(problem.what());
    }
    advance_to(end);
  }

  void read_string(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_here("a string has no end ", quote);
    std::string value = unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1));
    add(TokenKind::string, std::move(value));
    advance_to(end + 1);
  }

  /// Escapes of Python's strings.
  std::string unescaped(std::string_view text) const {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
      if (text[at] != '\\') {
        result += text[at++];
        continue;
      }
      constexpr std::string_view letters = "\\'\"abfnrtv", values = "\\'\"\a\b\f\n\r\t\v";
      const char kind = text[at + 1];
      at += 2;
      if (const std::size_t known = letters.find(kind); known != std::string_view::npos) {
        result += values[known];
      } else if (kind == 'x' || kind == 'u' || kind == 'U') {
        append_code(result, text, at, 16, kind == 'x' ? 2 : kind == 'u' ? 4 : 8);
      } else if (kind >= '0' && kind <= '7') {
        --at;
        std::size_t digits = 1;
        while (digits < 3 && at + digits < text.size() && text[at + digits] >= '0' &&
               text[at + digits] <= '7')
          ++digits;
        append_code(result, text, at, 8, digits);
      } else if (kind == '\n') {
        continue;
      } else if (kind == 'N' || static_cast<unsigned char>(kind) >= 0x80) {
        fail_here("the escape '\\", kind == 'N' ? "N" : "", "' of a character by its name, or ",
                  "before a character outside of ASCII, is not implemented");
      } else {
        result += '\\';
        result += kind;
      }
    }
    return result;
  }

  void append_code(std::string& result, std::string_view text, std::size_t& at, int base,
                   std::size_t digits) const {
    const std::string code(text.substr(at, digits));
    const bool complete =
        code.size() == digits && std::all_of(code.begin(), code.end(), [](char c) {
          return std::isxdigit(static_cast<unsigned char>(c)) != 0;
        });
    if (!complete) fail_here("a string has a truncated escape");
    const auto character = static_cast<char32_t>(parse_integer(code, base).value());
    if (character > 0x10FFFF || (character >= 0xD800 && character <= 0xDFFF))
      fail_here("a string has an escape of what is no character: ", shown(code));
    append_character(result, character);
    at += digits;
  }

  void read_sign(std::vector<char>& open) {
    for (const char* sign : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!follows(sign)) continue;
      add(TokenKind::sign, sign);
      advance_to(at_ + 2);
      return;
    }
    const char c = peek();
    if (std::string_view("+-/*%~[](){}<>=.:|,;").find(c) == std::string_view::npos)
      fail_here("unexpected character ", shown(std::string(1, c)));
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) fail_here("unexpected '", c, "'");
      open.pop_back();
    }
    add(TokenKind::sign, std::string(1, c));
    advance_to(at_ + 1);
  }

  const std::string source_;
  const std::string file_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true;  ///< the last token ended with a new line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> read_tokens(const std::string& source, const std::string& file) {
  const std::size_t bad = valid_utf8(source);
  require(bad == source.size(), file, ": not UTF-8 at byte ", bad);
  return Lexer(with_plain_lines(source), file).read();
}

}  // namespace ostrakon::texts::jinja
